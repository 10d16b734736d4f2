"""Coiled, asked through its public package over HTTP.

There is no account to test with: the server answers what the package (1.135.6) asks for and reads; the
reasons of state changes are those of public reports and of the providers.
"""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from support.hanging_peers import gives_up, only_timed_out
from support.http_server import HttpAnswer, HttpServer, by_last_path_part
from support.lost_worker import (
    NOW,
    cause_of,
    chunks,
    evidence_from,
    gaps,
    oom_kill,
    scene,
    text_in,
    utc,
    victim,
)
from workerdiag.model.scene import Victim
from workerdiag.sources.coiled import CoiledSource

coiled = pytest.importorskip("coiled")

pytestmark = pytest.mark.slow

WORKER = "lab-worker-fd511b087b"
ADDRESS = "tls://10.0.3.187:43629"
DEAD = victim(ADDRESS, name=WORKER)
INSTANCE = 4711
#: What parts of paths are called here: ``/api/v2/clusters/account/lab/id/17`` and below it.
NAMES = {"details": "17", "better_logs": "better-logs"}


def state(state: str, reason: str = "", ago_s: float = 5.0) -> dict:
    return {"state": state, "reason": reason, "updated": utc(ago_s)}


def process(name: str = WORKER, instance_id: int = INSTANCE, *, created_s: float = 3000.0) -> dict:
    return {
        "created": utc(created_s),
        "name": name,
        "current_state": state("stopped"),
        "instance": {
            "id": instance_id,
            "created": utc(created_s),
            "name": f"{name}-instance",
            "public_ip_address": None,
            "private_ip_address": "10.0.3.187",
            "current_state": state("stopped"),
        },
    }


DETAILS = {
    "id": 17,
    "name": "lab",
    "created": utc(3600),
    "current_state": state("ready"),
    "scheduler": process("lab-scheduler", 1),
    "workers": [process("lab-worker-other", 2), process()],
}


def change(to: str, reason: str, *, ago_s: float = 5.0, name: str = WORKER) -> dict:
    return {**state(to, reason, ago_s), "stateful_object": {"name": name}}


class Cluster:
    """What sources look at of ``coiled.Cluster``."""

    name = "lab"
    cluster_id = 17
    workspace = "lab"

    def __init__(self, cloud):
        self.cloud = cloud


Cluster.__module__ = "coiled.v2.cluster"


@pytest.fixture
def cluster():
    """Starts a server that plays Coiled's, and connects to it with Coiled's own package."""
    account = {"slug": "lab", "name": "lab", "id": 1}
    usual = {
        "me": HttpAnswer({"username": "me"}),
        "memberships": HttpAnswer([{"account": account, "is_admin": False, "is_default_account": True}]),
        "17": HttpAnswer(DETAILS),
        "states": HttpAnswer({}),
    }
    with ExitStack() as opened:

        def start(**answers: HttpAnswer) -> tuple[HttpServer, Cluster]:
            named = {NAMES.get(name, name): answer for name, answer in answers.items()}
            answer = by_last_path_part({**usual, **named}, otherwise=HttpAnswer([]))
            server = opened.enter_context(HttpServer(answer))
            cloud = coiled.Cloud(server=server.url, user="me", token="not-a-token", workspace="lab")
            opened.callback(cloud.close)
            return server, Cluster(cloud)

        yield start


def ask_coiled(cluster: Cluster, *victims: Victim, budget_s: float = 10.0) -> list:
    """What Coiled says of the *victims*."""
    return evidence_from(CoiledSource.of(scene(*victims, cluster=cluster)), budget_s)


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("alice requested", "cloud.instance-stopped"),
        ("Spot instance was interrupted by AWS", "cloud.spot-interruption"),
        ("Server.SpotInstanceTermination: Spot instance termination", "cloud.spot-interruption"),
    ],
)
def test_the_reason_of_a_state_change_names_the_cause(cluster, reason, cause):
    """Coiled keeps a reason with each state of a worker and of its instance."""
    states = {
        "worker": [change("stopping", reason), change("stopping", "bob requested", name="lab-worker-other")],
        "worker_instance": [change("stopping", "Instance self terminating", name=f"{WORKER}-instance")],
    }
    _, found = cluster(states=HttpAnswer(states))
    pieces = ask_coiled(found, DEAD)
    assert b"Instance self terminating" in text_in(pieces)
    assert b"bob" not in text_in(pieces)
    assert cause_of(pieces) == cause
    assert {each.identity.worker for each in chunks(pieces)} == {ADDRESS}


def test_what_coiled_did_because_of_the_death_is_no_cause(cluster):
    """Later state changes are consequences."""
    _, found = cluster(states=HttpAnswer({"worker": [change("stopping", "alice requested", ago_s=-30)]}))
    assert not chunks(ask_coiled(found, DEAD))


def test_system_and_dask_logs_of_the_instance_are_read_around_the_death(cluster):
    """Both kinds, of this instance alone, and of the time in question alone."""
    kill = f"kernel: {oom_kill(3590.0, 22)}"
    events = [
        {"timestamp": NOW * 1000, "instance_id": INSTANCE, "message": kill},
        {"timestamp": NOW * 1000, "instance_id": 2, "message": "of another"},
    ]
    server, found = cluster(better_logs=HttpAnswer(events), states=HttpAnswer({"worker": []}))
    pieces = ask_coiled(found, DEAD)
    assert b"of another" not in text_in(pieces)
    assert cause_of(pieces) == "kernel.oom-killer"
    [query] = [each.query for each in server.requests if each.path.endswith("/better-logs")]
    assert query["instance_ids"] == [str(INSTANCE)]
    assert query["dask"] == query["system"] == ["True"]
    assert int(query["since_ms"][0]) == (NOW - 600) * 1000


def test_only_reading_calls_are_made(cluster):
    """Asking changes nothing, and nobody is asked to log in."""
    server, found = cluster()
    ask_coiled(found, DEAD)
    assert {each.method for each in server.requests} == {"GET"}


def test_a_worker_that_coiled_does_not_list_is_a_gap(cluster):
    """Another worker's states are not taken for it."""
    _, found = cluster()
    pieces = ask_coiled(found, victim(ADDRESS, name="lab-worker-unknown"))
    assert not chunks(pieces)
    assert gaps(pieces)[0].reason == "expired"


def test_failed_instances_are_told_where_nobody_died(cluster):
    """Workers that never arrive have a reason."""
    reason = "InsufficientInstanceCapacity - There is no Spot capacity available that matches your request."
    failed = change("error", reason, name="lab-worker-new-instance")
    _, found = cluster(states=HttpAnswer({"worker_instance": [failed, change("started", "fine", name="x")]}))
    pieces = ask_coiled(found)
    [chunk] = chunks(pieces)
    assert chunk.identity.name == "lab-worker-new"
    assert cause_of(pieces) == "cloud.no-capacity"


def test_a_cluster_of_another_kind_is_left_alone():
    """Without the package's own cluster object there is no connection to ask through."""
    assert CoiledSource.of(scene(cluster=object())) is None


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (HttpAnswer({"detail": "You do not have permission"}, status=403), "forbidden"),
        (HttpAnswer({"detail": "Not found."}, status=404), "expired"),
        (HttpAnswer(b"\x00<garbage"), "malformed"),
    ],
)
def test_refusals_and_garbage_are_gaps_with_the_command_to_type(cluster, answer, reason):
    """What could not be asked is said, and how a person would ask."""
    _, found = cluster(details=answer)
    gap = gaps(ask_coiled(found, DEAD))[0]
    assert gap.reason == reason
    assert gap.remedy == "coiled cluster status lab"


@gives_up
def test_a_server_that_hangs_is_left_behind(cluster):
    """The source ends by itself, while the server hangs, and says so."""
    server, found = cluster(details=HttpAnswer(hangs=True))
    assert only_timed_out(ask_coiled(found, DEAD, budget_s=2.0))
    assert server.is_hanging()


@gives_up
def test_a_server_that_is_always_busy_is_left_behind(cluster):
    """The package would try again for five minutes."""
    server, found = cluster(details=HttpAnswer({}, status=503))
    assert only_timed_out(ask_coiled(found, DEAD, budget_s=2.0))
    assert server.requests
