"""Compute Engine, asked through google-cloud-compute over HTTP.

The bodies are built from the API reference (Compute Engine v1) and the documentation of system events.
"""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack

import pytest

from support.hanging_peers import gives_up, only_timed_out
from support.http_server import HttpAnswer, HttpServer, by_last_path_part
from support.lost_worker import (
    CLUSTER,
    MACHINE,
    cause_of,
    chunks,
    evidence_from,
    gaps,
    oom_kill,
    scene,
    utc,
    victim,
)
from workerdiag.model.scene import Victim
from workerdiag.sources.clouds.gcp import GcpSource

pytest.importorskip("google.cloud.compute_v1")
rsa = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.rsa")
serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")

pytestmark = pytest.mark.slow

ADDRESS = "tcp://10.164.0.7:34937"
DEAD = victim(ADDRESS)
PROJECT, ZONE = "acme", "us-east1-c"
_COMPUTE = f"/compute/v1/projects/{PROJECT}/zones/{ZONE}"


class GCPCluster:
    """What sources look at of dask-cloudprovider's class of this name (2025.9.0)."""

    uuid = CLUSTER
    auto_shutdown = True

    def __init__(self):
        self.options = {"projectid": PROJECT, "zone": ZONE}
        self.config = {}


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    """Of a service account that nobody has; the SDK signs its requests itself with it."""
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
    """Starts a server of Compute Engine, which answers by the last part of the path."""
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with ExitStack() as servers:
        yield lambda **answers: servers.enter_context(HttpServer(by_last_path_part(answers, otherwise=listed())))


def operation(kind: str, *, ago_s: float = 5.0, name: str = MACHINE, user: str = "system", **more) -> dict:
    return {
        "kind": "compute#operation",
        "id": "1234",
        "name": "systemevent-1234",
        "operationType": kind,
        "status": "DONE",
        "progress": 100,
        "user": user,
        "insertTime": utc(ago_s),
        "startTime": utc(ago_s),
        "endTime": utc(ago_s - 1),
        "targetLink": f"https://www.googleapis.com{_COMPUTE}/instances/{name}",
        "zone": ZONE,
        **more,
    }


def listed(*operations: dict) -> HttpAnswer:
    return HttpAnswer({"kind": "compute#operationList", "id": "x", "items": list(operations)})


def ask_gcp(server: HttpServer, *victims: Victim, cluster: object = None, budget_s: float = 60.0) -> list:
    """What Compute Engine says of the *victims*, through a server."""
    found = scene(*victims, cluster=cluster)
    assert GcpSource.of(found) is not None
    return evidence_from(GcpSource(found, endpoint=server.url), budget_s)


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
def test_an_operation_that_ended_the_machine_names_the_cause(gcp, kind, user, cause):
    """System events and the calls of users are told apart by their types."""
    server = gcp(operations=listed(operation(kind, user=user)))
    pieces = ask_gcp(server, DEAD, cluster=GCPCluster())
    assert cause_of(pieces) == cause
    assert {each.identity.worker for each in chunks(pieces)} == {ADDRESS}


def test_only_reading_calls_are_made(gcp):
    """Asking changes nothing."""
    server = gcp(operations=listed(operation("stop")))
    ask_gcp(server, DEAD, cluster=GCPCluster())
    requests = [each for each in server.requests if each.path.startswith("/compute/")]
    assert requests
    assert {each.method for each in requests} == {"GET"}
    assert requests[0].query["filter"] == [f'targetLink eq ".*/instances/({MACHINE})"']


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
    """Order, time, name and type of an operation must fit."""
    assert not chunks(ask_gcp(gcp(operations=listed(of_others)), DEAD, cluster=GCPCluster()))


def test_the_console_tells_what_the_kernel_did_then(gcp):
    """The serial port has the kernel's lines, and the machine its last start."""
    text = f"{oom_kill(100.0, 11)}\r\ndask kernel: {oom_kill(3590.0, 22)}"
    server = gcp(
        **{
            MACHINE: HttpAnswer({"name": MACHINE, "status": "RUNNING", "lastStartTimestamp": utc(3600)}),
            "serialPort": HttpAnswer({"contents": text, "start": "0", "next": "9"}),
        }
    )
    pieces = ask_gcp(server, DEAD, cluster=GCPCluster())
    [chunk] = chunks(pieces)
    assert b"process 11" not in chunk.data
    assert cause_of(pieces) == "kernel.oom-killer"


def test_machines_that_could_not_be_made_are_told_where_nobody_died(gcp):
    """Workers that never arrive: the insertion failed."""
    code = "ZONE_RESOURCE_POOL_EXHAUSTED"
    message = f"The zone 'projects/{PROJECT}/zones/{ZONE}' does not have enough resources available to fulfill the request."
    failed = operation("insert", error={"errors": [{"code": code, "message": message}]})
    assert cause_of(ask_gcp(gcp(operations=listed(failed)), cluster=GCPCluster())) == "cloud.no-capacity"


def test_an_internal_host_name_is_enough_to_ask(gcp):
    """Project, zone and instance are in the name."""
    host = f"vm-7.{ZONE}.c.{PROJECT}.internal"
    server = gcp(operations=listed(operation("compute.instances.preempted", name="vm-7")))
    assert chunks(ask_gcp(server, victim(f"tcp://{host}:1", name=None)))


def test_nothing_is_asked_of_clusters_elsewhere():
    """Which sources apply is worked out from the cluster and the hosts."""
    assert GcpSource.of(scene(DEAD, cluster=object())) is None


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (HttpAnswer({"error": {"code": 403, "message": "Required permission"}}, status=403), "forbidden"),
        (HttpAnswer({"error": {"code": 404, "message": "The project was not found"}}, status=404), "expired"),
        (HttpAnswer({"error": {"code": 503, "message": "backend"}}, status=503), "unreachable"),
        (HttpAnswer(b"\x00<garbage"), "malformed"),
    ],
)
def test_refusals_and_garbage_are_gaps_with_the_command_to_type(gcp, answer, reason):
    """What could not be asked is said, and how a person would ask."""
    found = gaps(ask_gcp(gcp(operations=answer), DEAD, cluster=GCPCluster()))
    assert found[0].reason == reason
    assert found[0].remedy.startswith(f"gcloud compute operations list --project={PROJECT} --zones={ZONE}")


@gives_up
def test_a_server_that_hangs_is_left_behind(gcp):
    """The source ends by itself, while the server hangs, and says so."""
    server = gcp(operations=HttpAnswer(hangs=True))
    assert only_timed_out(ask_gcp(server, DEAD, cluster=GCPCluster(), budget_s=2.0))
    assert server.is_hanging()


def test_without_the_sdk_the_gap_names_the_extra(gcp, monkeypatch):
    """It is imported where it is used, and missed in words."""
    monkeypatch.setitem(sys.modules, "google.cloud.compute_v1", None)
    [gap] = gaps(ask_gcp(gcp(), DEAD, cluster=GCPCluster()))
    assert (gap.reason, gap.remedy) == ("not-installed", "pip install 'workerdiag[gcp]'")
