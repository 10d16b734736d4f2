"""Azure, asked through azure-mgmt-monitor and azure-mgmt-compute over HTTPS.

The bodies are built from the REST references (Activity Logs 2015-04-01, Virtual Machines) and the
documentation of resource health.
"""

from __future__ import annotations

import ssl
import sys
import time
from contextlib import ExitStack

import pytest

from support.certificates import write_certificate
from support.hanging_peers import gives_up, only_timed_out
from support.http_server import HttpAnswer, HttpServer, by_last_path_part
from support.lost_worker import (
    CLUSTER,
    MACHINE,
    cause_of,
    chunks,
    evidence_from,
    gaps,
    scene,
    text_in,
    utc,
    victim,
)
from workerdiag.model.scene import Victim
from workerdiag.sources.clouds.azure import AzureSource

pytest.importorskip("azure.mgmt.compute")
pytest.importorskip("azure.mgmt.monitor")

pytestmark = pytest.mark.slow

ADDRESS = "tcp://10.1.0.7:34937"
DEAD = victim(ADDRESS)
SUBSCRIPTION, GROUP = "00000000-0000-0000-0000-000000000001", "dask-lab"
_MACHINES = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers/Microsoft.Compute/virtualMachines/"


class Credential:
    def get_token(self, *_scopes, **_more):
        from azure.core.credentials import AccessToken

        return AccessToken("not-a-token", int(time.time()) + 3600)


class AzureVMCluster:
    """What sources look at of dask-cloudprovider's class of this name (2025.9.0)."""

    uuid = CLUSTER
    subscription_id = SUBSCRIPTION
    resource_group = GROUP
    credentials = Credential()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """For a server that the SDK talks to: it sends tokens over TLS only."""
    return write_certificate(tmp_path_factory.mktemp("azure") / "both.pem")


@pytest.fixture
def azure(monkeypatch, certificate):
    """Starts a server of Azure Resource Manager, which answers by the last part of the path."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    missing = HttpAnswer({"error": {"code": "ResourceNotFound", "message": "was not found"}}, status=404)

    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with ExitStack() as servers:

        def start(**answers: HttpAnswer) -> HttpServer:
            answer = by_last_path_part({"values": logged(), **answers}, otherwise=missing)
            return servers.enter_context(HttpServer(answer, tls=context))

        yield start


def entry(operation: str, *, ago_s: float = 5.0, name: str = MACHINE, **more) -> dict:
    return {
        "eventDataId": "e1",
        "operationName": {"value": operation, "localizedValue": operation},
        "category": {"value": "Administrative"},
        "status": {"value": "Succeeded"},
        "caller": "alice@example.org",
        "claims": {"secret": "hunter2"},
        "eventTimestamp": utc(ago_s),
        "resourceId": f"{_MACHINES}{name}",
        **more,
    }


def health(cause: str, title: str) -> dict:
    """A resource health event in the activity log, as documented."""
    return entry(
        "Microsoft.Resourcehealth/healthevent/Activated/action",
        category={"value": "ResourceHealth"},
        caller=None,
        properties={"cause": cause, "title": title, "type": "Downtime", "currentHealthStatus": "Unavailable"},
    )


def logged(*entries: dict) -> HttpAnswer:
    return HttpAnswer({"value": list(entries)})


def ask_azure(server: HttpServer, *victims: Victim, budget_s: float = 60.0) -> list:
    """What Azure says of the *victims*, through a server."""
    found = scene(*victims, cluster=AzureVMCluster())
    assert AzureSource.of(found) is not None
    return evidence_from(AzureSource(found, endpoint=server.url), budget_s)


@pytest.mark.parametrize(
    ("event", "cause"),
    [
        (
            entry("Microsoft.Compute/virtualMachines/evictSpotVM/action", caller=None),
            "cloud.spot-interruption",
        ),
        (entry("Microsoft.Compute/virtualMachines/simulateEviction/action"), "cloud.spot-interruption"),
        (entry("Microsoft.Compute/virtualMachines/deallocate/action"), "cloud.instance-stopped"),
        (entry("Microsoft.Compute/virtualMachines/powerOff/action"), "cloud.instance-stopped"),
        (entry("Microsoft.Compute/virtualMachines/restart/action"), "cloud.instance-stopped"),
        (entry("Microsoft.Compute/virtualMachines/delete"), "cloud.instance-stopped"),
        (health("PlatformInitiated", "Downtime: host failure"), "cloud.maintenance"),
    ],
)
def test_an_entry_of_the_activity_log_names_the_cause(azure, event, cause):
    """Evictions, the platform's own trouble and the calls of users are told apart."""
    pieces = ask_azure(azure(values=logged(event)), DEAD)
    assert not gaps(pieces)
    assert cause_of(pieces) == cause
    assert {each.identity.worker for each in chunks(pieces)} == {ADDRESS}
    assert b"hunter2" not in text_in(pieces)


def test_only_reading_calls_are_made(azure):
    """Asking changes nothing."""
    server = azure(values=logged())
    ask_azure(server, DEAD)
    assert len(server.requests) == 2
    assert {each.method for each in server.requests} == {"GET"}
    assert f"resourceGroupName eq '{GROUP}'" in server.requests[0].query["$filter"][0]


@pytest.mark.parametrize(
    "of_others",
    [
        entry("Microsoft.Compute/virtualMachines/delete", ago_s=-15),  # SpecCluster cleans up
        entry("Microsoft.Compute/virtualMachines/deallocate/action", ago_s=7200),
        entry("Microsoft.Compute/virtualMachines/deallocate/action", name="dask-1f2e3d4c-worker-ffffffff"),
        entry("Microsoft.Compute/virtualMachines/write"),
    ],
)
def test_what_followed_or_is_of_others_is_no_cause(azure, of_others):
    """Order, time, name and kind of an entry must fit."""
    assert not chunks(ask_azure(azure(values=logged(of_others)), DEAD))


def test_a_deallocated_machine_is_told_with_its_priority(azure):
    """The state of a machine lasts longer than the worker did."""
    machine = {
        "name": MACHINE,
        "location": "westeurope",
        "properties": {
            "priority": "Spot",
            "evictionPolicy": "Deallocate",
            "instanceView": {"statuses": [{"code": "PowerState/deallocated", "displayStatus": "VM deallocated"}]},
        },
    }
    pieces = ask_azure(azure(**{MACHINE: HttpAnswer(machine)}), DEAD)
    [chunk] = chunks(pieces)
    assert b'"priority": "Spot"' in chunk.data
    assert cause_of(pieces) == "cloud.instance-stopped"


def test_machines_that_could_not_be_made_are_told_where_nobody_died(azure):
    """Workers that never arrive: the creation failed."""
    message = '{"error":{"code":"SkuNotAvailable","message":"The requested VM size is currently not available"}}'
    failed = entry(
        "Microsoft.Compute/virtualMachines/write",
        status={"value": "Failed"},
        properties={"statusMessage": message},
    )
    assert cause_of(ask_azure(azure(values=logged(failed)))) == "cloud.no-capacity"


def test_nothing_is_asked_of_clusters_elsewhere():
    """Only the cluster object knows subscription and resource group."""
    assert AzureSource.of(scene(cluster=object())) is None


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (HttpAnswer({"error": {"code": "AuthorizationFailed", "message": "no"}}, status=403), "forbidden"),
        (HttpAnswer({"error": {"code": "ServerBusy", "message": "busy"}}, status=503), "unreachable"),
        (HttpAnswer(b"\x00<garbage"), "malformed"),
    ],
)
def test_refusals_and_garbage_are_gaps_with_the_command_to_type(azure, answer, reason):
    """What could not be asked is said, and how a person would ask."""
    found = gaps(ask_azure(azure(values=answer), DEAD))
    assert found[0].reason == reason
    assert found[0].remedy.startswith(f"az monitor activity-log list --resource-group {GROUP}")


@gives_up
def test_a_server_that_hangs_is_left_behind(azure):
    """The source ends by itself, while the server hangs, and says so."""
    server = azure(values=HttpAnswer(hangs=True))
    assert only_timed_out(ask_azure(server, DEAD, budget_s=2.0))
    assert server.is_hanging()


def test_without_the_sdk_the_gap_names_the_extra(azure, monkeypatch):
    """It is imported where it is used, and missed in words."""
    monkeypatch.setitem(sys.modules, "azure.mgmt.monitor", None)
    [gap] = gaps(ask_azure(azure(), DEAD))
    assert (gap.reason, gap.remedy) == ("not-installed", "pip install 'workerdiag[azure]'")
