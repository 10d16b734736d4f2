"""
Coiled, asked through its public package over HTTP.

There is no account to test with: the server answers what the package (1.135.6) asks for and reads; the
reasons of state changes are those of public reports and of the providers.
"""

from __future__ import annotations

import datetime as dt
import time

import pytest

from answering import Answer, Answering, Asked
from workerdiag.model.evidence import Gap, Identity, LogChunk
from workerdiag.model.scene import Scene, Victim
from workerdiag.pipeline import diagnose
from workerdiag.rulebook import load_rulebook
from workerdiag.sources.coiled import CoiledSource

coiled = pytest.importorskip("coiled")

NOW = float(int(time.time()))
WORKER = "lab-worker-fd511b087b"
ADDRESS = "tls://10.0.3.187:43629"
INSTANCE = 4711
_CLUSTER = "/api/v2/clusters/account/lab/id/17"


def at(seconds_ago: float) -> str:
    return dt.datetime.fromtimestamp(NOW - seconds_ago, dt.UTC).isoformat()


def state(state: str, reason: str = "", ago_s: float = 5.0) -> dict:
    return {"state": state, "reason": reason, "updated": at(ago_s)}


def process(name: str = WORKER, instance_id: int = INSTANCE, *, created_s: float = 3000.0) -> dict:
    return {
        "created": at(created_s),
        "name": name,
        "current_state": state("stopped"),
        "instance": {
            "id": instance_id,
            "created": at(created_s),
            "name": f"{name}-instance",
            "public_ip_address": None,
            "private_ip_address": "10.0.3.187",
            "current_state": state("stopped"),
        },
    }


DETAILS = {
    "id": 17,
    "name": "lab",
    "created": at(3600),
    "current_state": state("ready"),
    "scheduler": process("lab-scheduler", 1),
    "workers": [process("lab-worker-other", 2), process()],
}


def change(to: str, reason: str, *, ago_s: float = 5.0, name: str = WORKER) -> dict:
    return {**state(to, reason, ago_s), "stateful_object": {"name": name}}


class Cluster:
    """
    What sources look at of ``coiled.Cluster``.
    """

    name = "lab"
    cluster_id = 17
    workspace = "lab"

    def __init__(self, cloud):
        self.cloud = cloud


Cluster.__module__ = "coiled.v2.cluster"


class Client:
    def __init__(self, cluster):
        self.cluster = cluster


@pytest.fixture(scope="module")
def book():
    return load_rulebook()


@pytest.fixture
def cluster():
    """
    Starts a server that plays Coiled's, and connects to it with Coiled's own package.
    """
    opened = []

    def start(**answers: Answer) -> tuple[Answering, Cluster]:
        def answer(asked: Asked) -> Answer:
            if asked.path == "/api/v2/user/me":
                return Answer({"username": "me"})
            if asked.path == "/api/v2/user/me/memberships":
                account = {"slug": "lab", "name": "lab", "id": 1}
                return Answer([{"account": account, "is_admin": False, "is_default_account": True}])
            if asked.path == _CLUSTER:
                return answers.get("details", Answer(DETAILS))
            empty: dict | list = {} if asked.path.endswith("/states") else []
            return answers.get(asked.path.rpartition("/")[2].replace("-", "_"), Answer(empty))

        server = Answering(answer).__enter__()
        cloud = coiled.Cloud(server=server.url, user="me", token="not-a-token", workspace="lab")
        opened.append((server, cloud))
        return server, Cluster(cloud)

    yield start
    for server, cloud in opened:
        cloud.close()
        server.__exit__()


WHOSE = Identity(worker=ADDRESS, pid=77, name=WORKER, host="10.0.3.187")


def scene(cluster: object, **parts) -> Scene:
    victims = parts.pop("victims", (Victim(whose=WHOSE, when=NOW),))
    return Scene(client=Client(cluster), victims=victims, since=NOW - 900, until=NOW + 120)


def told(cluster: object, budget_s: float = 10.0, **parts) -> list:
    source = CoiledSource.of(scene(cluster, **parts))
    assert source is not None
    return list(source.collect(budget_s=budget_s))


def chunks(pieces: list) -> list[LogChunk]:
    return [each for each in pieces if isinstance(each, LogChunk)]


def gaps(pieces: list) -> list[Gap]:
    return [each for each in pieces if isinstance(each, Gap)]


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("alice requested", "cloud.instance-stopped"),
        ("Spot instance was interrupted by AWS", "cloud.spot-interruption"),
        ("Server.SpotInstanceTermination: Spot instance termination", "cloud.spot-interruption"),
    ],
)
def test_the_reason_of_a_state_change_names_the_cause(cluster, book, reason, cause):
    """
    Coiled keeps a reason with each state of a worker and of its instance.
    """
    states = {
        "worker": [change("stopping", reason), change("stopping", "bob requested", name="lab-worker-other")],
        "worker_instance": [change("stopping", "Instance self terminating", name=f"{WORKER}-instance")],
    }
    _, found = cluster(states=Answer(states))
    pieces = told(found)
    text = b"".join(each.data for each in chunks(pieces))
    assert b"Instance self terminating" in text
    assert b"bob" not in text
    findings = diagnose(pieces, book)
    assert findings.top is not None
    assert findings.top.id == cause
    assert {each.whose.worker for each in chunks(pieces)} == {ADDRESS}


def test_what_coiled_did_because_of_the_death_is_no_cause(cluster):
    """
    Later state changes are consequences.
    """
    _, found = cluster(states=Answer({"worker": [change("stopping", "alice requested", ago_s=-30)]}))
    assert not chunks(told(found))


def test_system_and_dask_logs_of_the_instance_are_read_around_the_death(cluster, book):
    """
    Both kinds, of this instance alone, and of the time in question alone.
    """
    kill = "kernel: [ 3590.000000] Out of memory: Killed process 22 (python) total-vm:9000000kB, anon-rss:7900000kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:16000kB oom_score_adj:0"
    events = [
        {"timestamp": NOW * 1000, "instance_id": INSTANCE, "message": kill},
        {"timestamp": NOW * 1000, "instance_id": 2, "message": "of another"},
    ]
    server, found = cluster(better_logs=Answer(events), states=Answer({"worker": []}))
    pieces = told(found)
    assert b"of another" not in b"".join(each.data for each in chunks(pieces))
    findings = diagnose(pieces, book)
    assert findings.top is not None
    assert findings.top.id == "kernel.oom-killer"
    [asked] = [each for each in server.asked if each.path.endswith("/better-logs")]
    assert asked.query["instance_ids"] == [str(INSTANCE)]
    assert asked.query["dask"] == asked.query["system"] == ["True"]
    assert int(asked.query["since_ms"][0]) == (NOW - 600) * 1000


def test_only_reading_calls_are_made(cluster):
    """
    Asking changes nothing, and nobody is asked to log in.
    """
    server, found = cluster()
    told(found)
    assert {each.method for each in server.asked} == {"GET"}


def test_a_worker_that_coiled_does_not_list_is_a_gap(cluster):
    """
    Another worker's states are not taken for it.
    """
    _, found = cluster()
    victims = (Victim(whose=Identity(worker=ADDRESS, name="lab-worker-unknown"), when=NOW),)
    pieces = told(found, victims=victims)
    assert not chunks(pieces)
    assert gaps(pieces)[0].reason == "expired"


def test_failed_instances_are_told_where_nobody_died(cluster, book):
    """
    Workers that never arrive have a reason.
    """
    reason = "InsufficientInstanceCapacity - There is no Spot capacity available that matches your request."
    failed = change("error", reason, name="lab-worker-new-instance")
    _, found = cluster(states=Answer({"worker_instance": [failed, change("started", "fine", name="x")]}))
    pieces = told(found, victims=())
    [chunk] = chunks(pieces)
    assert chunk.whose.name == "lab-worker-new"
    findings = diagnose(pieces, book)
    assert findings.top is not None
    assert findings.top.id == "cloud.no-capacity"


def test_a_cluster_of_another_kind_is_left_alone():
    """
    Without the package's own cluster object there is no connection to ask through.
    """
    assert CoiledSource.of(Scene(client=Client(object()))) is None


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer({"detail": "You do not have permission"}, status=403), "forbidden"),
        (Answer({"detail": "Not found."}, status=404), "expired"),
        (Answer(b"\x00<garbage"), "malformed"),
    ],
)
def test_refusals_and_garbage_are_gaps_with_the_command_to_type(cluster, answer, reason):
    """
    What could not be asked is said, and how a person would ask.
    """
    _, found = cluster(details=answer)
    gap = gaps(told(found))[0]
    assert gap.reason == reason
    assert gap.remedy == "coiled cluster status lab"


@pytest.mark.parametrize("slow", [Answer(DETAILS, after_s=5.0), Answer({}, status=503)])
def test_a_server_that_hangs_costs_no_more_than_the_budget(cluster, slow):
    """
    The package would try again for five minutes.
    """
    _, found = cluster(details=slow)
    begun = time.monotonic()
    assert gaps(told(found, budget_s=1.0))[0].reason == "timed-out"
    assert time.monotonic() - begun < 1.1
