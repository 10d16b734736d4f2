"""What the live source says of real deaths in a real cluster."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed import Client

import workerdiag
from workerdiag.model.evidence import Evidence, Gap, LogChunk, ProcessExit
from workerdiag.model.identity import Identity
from workerdiag.model.scene import Location, Scene, Victim
from workerdiag.sources.kubernetes.source import KubernetesSource

from .deaths import CAUSES, DEATHS
from .node import ADDRESS, SERVER, kubectl, until, write_kubeconfig
from .recording import who_died

# The limit is a test's own: building and starting the cluster take as long as the machine needs.
pytestmark = [pytest.mark.lab, pytest.mark.timeout(300, func_only=True)]

MANIFEST = Path(__file__).parents[2] / "docs" / "kubernetes-rbac.yaml"


class Given:
    """A source that says what it was given."""

    name = "given"

    def __init__(self, evidence: list[Evidence]) -> None:
        self._evidence = evidence

    def collect(self, *, budget_s: float) -> Iterator[Evidence]:
        assert budget_s > 0
        yield from self._evidence


def scene_after(client: Client, error: BaseException | None) -> Scene:
    """What is known when the scheduler has been asked, of a cluster that the operator calls ``lab``."""
    address = "tcp://lab-scheduler.default.svc.cluster.local:8786"
    environment = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "DASK_SCHEDULER_ADDRESS": address}
    victims: tuple[Victim, ...] = who_died(client, error)
    place = Location(role="scheduler", identity=Identity(host=ADDRESS), environment=environment)
    now = time.time()
    return Scene(victims=victims, locations=(place,), since=now - 900, until=now + 120)


@pytest.mark.parametrize("name", CAUSES)
def test_a_death_is_explained_right_after_it(name: str, client: Client) -> None:
    """What the API server says names the cause; only a lost node does not give its logs."""
    error = DEATHS[name](client)
    scene = scene_after(client, error)
    source = KubernetesSource.of(scene)
    assert source is not None
    evidence = list(source.collect(budget_s=30))
    missing = {each.source for each in evidence if isinstance(each, Gap) and each.reason != "expired"}
    assert missing <= ({"Kubernetes pods/log"} if name == "node-lost" else set())
    diagnosis = workerdiag.explain(error, sources=[Given(evidence)], timeout="60s")
    assert diagnosis.top is not None
    assert diagnosis.top.id in CAUSES[name].split(), str(diagnosis)


def test_the_documented_rights_are_enough(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service account with nothing but docs/kubernetes-rbac.yaml is refused nothing that is asked."""
    manifest = MANIFEST.read_text().replace("namespace: dask", "namespace: default")
    kubectl("apply", "-f", "-", stdin=manifest)
    point_to(token_of("workerdiag"), tmp_path, monkeypatch)
    evidence = after_an_oom(client)
    assert [each for each in evidence if isinstance(each, Gap)] == []
    assert any(isinstance(each, ProcessExit) and each.signal == 9 for each in evidence)


def test_without_any_right_each_kind_is_a_gap(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service account without rights is refused, which is said with the commands that grant them."""
    kubectl("create", "serviceaccount", "nobody", check=False)
    point_to(token_of("nobody"), tmp_path, monkeypatch)
    evidence = after_an_oom(client)
    gaps = [each for each in evidence if isinstance(each, Gap)]
    assert {(each.source, each.reason) for each in gaps} == {
        ("Kubernetes pods", "forbidden"),
        ("Kubernetes events", "forbidden"),
    }
    for each in gaps:
        kubectl(*each.remedy.split(" && ")[0].replace("'", "").split()[1:], "--dry-run=client")
    assert not any(isinstance(each, LogChunk) for each in evidence)


def after_an_oom(client: Client) -> list[Evidence]:
    """What the source says of a worker that was killed for memory."""
    source = KubernetesSource.of(scene_after(client, DEATHS["oom-killed"](client)))
    assert source is not None
    return list(source.collect(budget_s=10))


def token_of(account: str) -> str:
    """The token that the cluster has made for a service account."""
    until(lambda: secret_of(account), within_s=20)
    secret = json.loads(kubectl("get", "secret", secret_of(account), "-o", "json"))
    return base64.b64decode(secret["data"]["token"]).decode()


def secret_of(account: str) -> str:
    """The name of the secret with that token; empty before it is made."""
    secrets = json.loads(kubectl("get", "serviceaccount", account, "-o", "json")).get("secrets", [])
    return str(secrets[0]["name"]) if secrets else ""


def point_to(token: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the kubeconfig of this process hold that token."""
    monkeypatch.setenv("KUBECONFIG", str(write_kubeconfig(folder / "kubeconfig", SERVER, token)))
