"""
Compute Engine, asked through google-cloud-compute over HTTP.

The bodies are built from the API reference (Compute Engine v1) and the documentation of system events.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
import time

import pytest

from answering import Answer, Answering, Asked
from workerdiag.model.evidence import Gap, Identity, LogChunk
from workerdiag.model.scene import Scene, Victim
from workerdiag.pipeline import diagnose
from workerdiag.rulebook import load_rulebook
from workerdiag.sources.clouds.gcp import GcpSource

pytest.importorskip("google.cloud.compute_v1")
rsa = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.rsa")
serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")

NOW = float(int(time.time()))
WORKER = "dask-1f2e3d4c-worker-0a1b2c3d"
ADDRESS = "tcp://10.164.0.7:34937"
PROJECT, ZONE = "acme", "us-east1-c"
_COMPUTE = f"/compute/v1/projects/{PROJECT}/zones/{ZONE}"


class GCPCluster:
    """
    What sources look at of dask-cloudprovider's class of this name (2025.9.0).
    """

    uuid = "1f2e3d4c"
    auto_shutdown = True

    def __init__(self):
        self.options = {"projectid": PROJECT, "zone": ZONE}
        self.config = {}


class Client:
    def __init__(self, cluster):
        self.cluster = cluster


@pytest.fixture(scope="module")
def book():
    return load_rulebook()


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    """
    Of a service account that nobody has; the SDK signs its requests itself with it.
    """
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = tmp_path_factory.mktemp("gcp") / "key.json"
    account = {
        "type": "service_account",
        "project_id": PROJECT,
        "private_key_id": "1",
        "private_key": pem.decode(),
        "client_email": "workerdiag@example.org",
        "token_uri": "http://127.0.0.1:9/token",
    }
    path.write_text(json.dumps(account))
    return path


@pytest.fixture
def gcp(monkeypatch, key):
    """
    Starts a server of Compute Engine, which answers by the last part of the path.
    """
    servers = []

    def start(**answers: Answer) -> Answering:
        def answer(asked: Asked) -> Answer:
            return answers.get(asked.path.rpartition("/")[2], Answer({"items": []}))

        server = Answering(answer).__enter__()
        servers.append(server)
        return server

    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield start
    for server in servers:
        server.__exit__()


def at(seconds_ago: float) -> str:
    return dt.datetime.fromtimestamp(NOW - seconds_ago, dt.UTC).isoformat(timespec="milliseconds")


def operation(kind: str, *, ago_s: float = 5.0, name: str = WORKER, user: str = "system", **more) -> dict:
    return {
        "kind": "compute#operation",
        "id": "1234",
        "name": "systemevent-1234",
        "operationType": kind,
        "status": "DONE",
        "progress": 100,
        "user": user,
        "insertTime": at(ago_s),
        "startTime": at(ago_s),
        "endTime": at(ago_s - 1),
        "targetLink": f"https://www.googleapis.com{_COMPUTE}/instances/{name}",
        "zone": ZONE,
        **more,
    }


def listed(*operations: dict) -> Answer:
    return Answer({"kind": "compute#operationList", "id": "x", "items": list(operations)})


WHOSE = Identity(worker=ADDRESS, pid=77, name=WORKER, host="10.164.0.7")


def scene(**parts) -> Scene:
    victims = parts.pop("victims", (Victim(whose=WHOSE, when=NOW),))
    client = parts.pop("client", Client(GCPCluster()))
    return Scene(client=client, victims=victims, since=NOW - 900, until=NOW + 120)


def told(server: Answering, budget_s: float = 15.0, **parts) -> list:
    source = GcpSource.of(scene(**parts))
    assert source is not None
    return list(GcpSource(scene(**parts), endpoint=server.url).collect(budget_s=budget_s))


def chunks(pieces: list) -> list[LogChunk]:
    return [each for each in pieces if isinstance(each, LogChunk)]


def gaps(pieces: list) -> list[Gap]:
    return [each for each in pieces if isinstance(each, Gap)]


@pytest.mark.parametrize(
    ("kind", "user", "cause"),
    [
        ("compute.instances.preempted", "system", "cloud.spot-interruption"),
        ("compute.instances.hostError", "system", "cloud.maintenance"),
        ("compute.instances.terminateOnHostMaintenance", "system", "cloud.maintenance"),
        ("stop", "alice@example.org", "cloud.instance-stopped"),
        ("delete", "alice@example.org", "cloud.instance-stopped"),
        ("suspend", "alice@example.org", "cloud.instance-stopped"),
        ("reset", "alice@example.org", "cloud.instance-stopped"),
    ],
)
def test_an_operation_that_ended_the_machine_names_the_cause(gcp, book, kind, user, cause):
    """
    System events and the calls of users are told apart by their types.
    """
    server = gcp(operations=listed(operation(kind, user=user)))
    pieces = told(server)
    findings = diagnose(pieces, book)
    assert findings.top is not None
    assert findings.top.id == cause
    assert {each.whose.worker for each in chunks(pieces)} == {ADDRESS}


def test_only_reading_calls_are_made(gcp):
    """
    Asking changes nothing.
    """
    server = gcp(operations=listed(operation("stop")))
    told(server)
    asked = [each for each in server.asked if each.path.startswith("/compute/")]
    assert asked
    assert {each.method for each in asked} == {"GET"}
    assert asked[0].query["filter"] == [f'targetLink eq ".*/instances/({WORKER})"']


@pytest.mark.parametrize(
    "of_others",
    [
        operation("delete", ago_s=-15, user="alice@example.org"),  # SpecCluster cleans up
        operation("compute.instances.guestTerminate", ago_s=2),  # the machine ends with its container
        operation("compute.instances.preempted", ago_s=7200),
        operation("compute.instances.preempted", name="dask-1f2e3d4c-worker-ffffffff"),
        operation("setMetadata", user="alice@example.org"),
    ],
)
def test_what_followed_or_is_of_others_is_no_cause(gcp, of_others):
    """
    Order, time, name and type of an operation must fit.
    """
    assert not chunks(told(gcp(operations=listed(of_others))))


def test_the_console_tells_what_the_kernel_did_then(gcp, book):
    """
    The serial port has the kernel's lines, and the machine its last start.
    """
    kill = "[ {at:.6f}] Out of memory: Killed process {pid} (python) total-vm:9000000kB, anon-rss:7900000kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:16000kB oom_score_adj:0"
    text = "\r\n".join([kill.format(at=100.0, pid=11), f"dask kernel: {kill.format(at=3590.0, pid=22)}"])
    server = gcp(
        **{
            WORKER: Answer({"name": WORKER, "status": "RUNNING", "lastStartTimestamp": at(3600)}),
            "serialPort": Answer({"contents": text, "start": "0", "next": "9"}),
        }
    )
    pieces = told(server)
    [chunk] = chunks(pieces)
    assert b"process 11" not in chunk.data
    findings = diagnose(pieces, book)
    assert findings.top is not None
    assert findings.top.id == "kernel.oom-killer"


def test_machines_that_could_not_be_made_are_told_where_nobody_died(gcp, book):
    """
    Workers that never arrive: the insertion failed.
    """
    code = "ZONE_RESOURCE_POOL_EXHAUSTED"
    message = f"The zone 'projects/{PROJECT}/zones/{ZONE}' does not have enough resources available to fulfill the request."
    failed = operation("insert", error={"errors": [{"code": code, "message": message}]})
    findings = diagnose(told(gcp(operations=listed(failed)), victims=()), book)
    assert findings.top is not None
    assert findings.top.id == "cloud.no-capacity"


def test_an_internal_host_name_is_enough_to_ask(gcp):
    """
    Project, zone and instance are in the name.
    """
    host = f"vm-7.{ZONE}.c.{PROJECT}.internal"
    victims = (Victim(whose=Identity(worker=f"tcp://{host}:1", host=host), when=NOW),)
    server = gcp(operations=listed(operation("compute.instances.preempted", name="vm-7")))
    assert chunks(told(server, victims=victims, client=None))


def test_nothing_is_asked_of_clusters_elsewhere():
    """
    Which sources apply is worked out from the cluster and the hosts.
    """
    assert GcpSource.of(scene(client=Client(object()))) is None


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer({"error": {"code": 403, "message": "Required permission"}}, status=403), "forbidden"),
        (Answer({"error": {"code": 404, "message": "The project was not found"}}, status=404), "expired"),
        (Answer({"error": {"code": 503, "message": "backend"}}, status=503), "unreachable"),
        (Answer(b"\x00<garbage"), "malformed"),
    ],
)
def test_refusals_and_garbage_are_gaps_with_the_command_to_type(gcp, answer, reason):
    """
    What could not be asked is said, and how a person would ask.
    """
    found = gaps(told(gcp(operations=answer)))
    assert found[0].reason == reason
    assert found[0].remedy.startswith(f"gcloud compute operations list --project={PROJECT} --zones={ZONE}")


def test_a_server_that_hangs_costs_no_more_than_the_budget(gcp):
    """
    A source given a second ends in a second.
    """
    server = gcp(operations=Answer({}, after_s=5.0))
    begun = time.monotonic()
    assert gaps(told(server, budget_s=1.0))[0].reason == "timed-out"
    assert time.monotonic() - begun < 1.1


def test_without_the_sdk_the_gap_names_the_extra(gcp, monkeypatch):
    """
    It is imported where it is used, and missed in words.
    """
    monkeypatch.setitem(sys.modules, "google.cloud.compute_v1", None)
    [gap] = gaps(told(gcp()))
    assert (gap.reason, gap.remedy) == ("not-installed", "pip install 'workerdiag[gcp]'")
