"""Finds the Kubernetes cluster of a scene, and the victims' pods with few requests however many pods exist.

The dask-kubernetes operator (2026.3.0, ``controller.py``) labels pods with ``dask.org/cluster-name``,
names workers after their deployment, and gives them the scheduler address
``tcp://CLUSTER-scheduler.NAMESPACE.svc.cluster.local:8786``. Dask Gateway
(``backends/kubernetes/controller.py``) labels pods with ``gateway.dask.org/cluster``, names workers
after their pods, and gives them the cluster as ``NAMESPACE.CLUSTER``. Dask's Helm chart labels pods with
``release``.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence

from attrs import evolve, field, frozen

from workerdiag.model.identity import Identity
from workerdiag.model.scene import Location, Scene, Victim
from workerdiag.sources.kubernetes.api import KubernetesApi
from workerdiag.sources.kubernetes.attribution import VictimPod, match_deleted_pods, match_pods
from workerdiag.sources.kubernetes.pods import KubernetesEvent, Pod, parse_pod
from workerdiag.sources.machine import scheduler_ahead_s

#: Valid Kubernetes names (RFC 1123); nothing else gets into a request.
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_SERVICE = re.compile(r"://(?P<service>[a-z0-9-]+)\.(?P<namespace>[a-z0-9-]+)(?P<svc>\.svc\b)?")
_NAMESPACES = ("POD_NAMESPACE", "MY_POD_NAMESPACE")
_PODS = ("POD_NAME", "MY_POD_NAME")
_GATEWAY = "DASK_GATEWAY_CLUSTER_NAME"
#: Part of a cgroup path below a kubelet.
_KUBELET_GROUP = "kubepods"
#: A cluster of at most this many pods is listed completely; of a larger one only the relevant pods.
_MAX_PODS = 60
#: Smaller differences of clocks are not measurable: HTTP has whole seconds.
_MIN_APART_S = 2.0


@frozen(kw_only=True)
class KubernetesTarget:
    """The cluster and the victims to query Kubernetes about."""

    victims: tuple[Victim, ...] = ()
    #: None stands for the namespace of the credentials.
    namespace: str | None = None
    #: Label selector of the cluster's pods; "" if unknown.
    labels: str = ""
    #: The cluster's name, with which the operator's object names begin; "" if unknown.
    cluster: str = ""
    #: Maps victims to the pods that their nannies report.
    pods: dict[Victim, str] = field(factory=dict, eq=False)
    #: Seconds by which the scheduler's clock is ahead of ours.
    scheduler_ahead_s: float = 0.0
    #: The relevant time, in seconds since the epoch by the scheduler's clock.
    since: float | None = None
    until: float | None = None


def target_of(scene: Scene) -> KubernetesTarget | None:
    """Return the target of the queries, or None without a sign of Kubernetes."""
    address = _service_address(scene)
    object_ = scene.cluster if scene.cluster_is("dask_kubernetes", "KubeCluster", "HelmCluster") else None
    if object_ is None and address is None and not _ran_in_pods(scene):
        return None
    cluster, labels = _cluster_and_labels(object_, address, scene)
    namespaces = [
        getattr(object_, "namespace", None),
        *(scene.variable(each) for each in _NAMESPACES),
        (scene.variable(_GATEWAY) or "").rpartition(".")[0],
        address and address["namespace"],
    ]
    return KubernetesTarget(
        victims=scene.victims,
        namespace=next((each for each in map(name_or_none, namespaces) if each), None),
        labels=labels,
        cluster=cluster,
        pods={each: pod for each in scene.victims if (pod := _own_pod(each.identity, scene.locations))},
        scheduler_ahead_s=scheduler_ahead_s(scene),
        since=scene.since,
        until=scene.until,
    )


def name_or_none(name: object) -> str | None:
    """Return *name* if it is a valid Kubernetes name, else None."""
    return name if isinstance(name, str) and _NAME.fullmatch(name) else None


def _ran_in_pods(scene: Scene) -> bool:
    """Whether the victims ran in pods; without a surviving process near them, whether this one does."""
    near = [each for each in scene.locations if each.role in ("worker", "nanny", "neighbour")]
    return any(
        each.environment.get("KUBERNETES_SERVICE_HOST")
        or any(_KUBELET_GROUP in path for path in each.cgroups.values())
        for each in near or scene.locations
    )


def _service_address(scene: Scene) -> re.Match[str] | None:
    scheduler = getattr(scene.client, "scheduler", None)
    addresses = (getattr(scheduler, "address", None), scene.variable("DASK_SCHEDULER_ADDRESS"))
    for address in addresses:
        found = _SERVICE.search(address) if isinstance(address, str) else None
        if found and (found["svc"] or found["service"].endswith("-scheduler")):
            return found
    return None


def _cluster_and_labels(object_: object, address: re.Match[str] | None, scene: Scene) -> tuple[str, str]:
    release = name_or_none(getattr(object_, "release_name", None))
    if release:
        return "", f"release={release}"
    gateway = name_or_none(scene.variable(_GATEWAY))
    if gateway:
        return "", f"gateway.dask.org/cluster={gateway.rpartition('.')[2]}"
    of_service = address["service"].removesuffix("-scheduler") if address else None
    cluster = name_or_none(getattr(object_, "name", None)) or of_service
    return (cluster, f"dask.org/cluster-name={cluster}") if cluster else ("", "")


def _own_pod(identity: Identity, places: tuple[Location, ...]) -> str | None:
    """Return the pod that the victim's nanny, or another process that speaks for it, reports."""
    for place in places:
        if place.role not in ("worker", "nanny") or not _is_same_process(place.identity, identity):
            continue
        names = [*(place.environment.get(each) for each in _PODS), place.environment.get("HOSTNAME")]
        return next((each for each in map(name_or_none, [*names, place.hostname]) if each), None)
    return None


def _is_same_process(speaker: Identity, identity: Identity) -> bool:
    same_nanny = speaker.nanny is not None and speaker.nanny == identity.nanny
    return same_nanny or (speaker.worker is not None and speaker.worker == identity.worker)


class PodSearch:
    """The pods listed so far, matched to victims."""

    def __init__(self, api: KubernetesApi, target: KubernetesTarget) -> None:
        self._api = api
        self._target = target
        self._pods: dict[str, Pod] = {}
        self.namespace = target.namespace or api.namespace

    @property
    def pods(self) -> list[Pod]:
        """All listed pods."""
        return list(self._pods.values())

    @property
    def victims(self) -> tuple[Victim, ...]:
        """The victims, with times by the API server's clock."""
        return tuple(map(self._on_api_clock, self._target.victims))

    async def list_pods(self) -> None:
        """List the cluster's pods; of many, those with the victims' names or addresses and unhealthy ones.

        Raises UnansweredError if a request was not answered; the other answers are kept.
        """
        if self._target.labels and await self._add_matching_pods(labels=self._target.labels):
            return
        hosts = sorted({each.identity.host for each in self._target.victims if each.identity.host})
        requests = [
            self._add_matching_pods(fields=f"status.podIP={each}")
            for each in hosts
            if _may_be_pod_address(each)
        ]
        unwell = "status.phase!=Running,status.phase!=Succeeded"
        requests.append(self._add_matching_pods(labels=self._target.labels, fields=unwell))
        requests += [self._add_pod(each) for each in self.names()]
        for answer in await asyncio.gather(*requests, return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer

    def names(self) -> list[str]:
        """Possible names of the victims' pods."""
        named = {name_or_none(each.identity.name) for each in self._target.victims}
        return sorted({each for each in (*named, *self._target.pods.values()) if each})

    def found(self) -> list[VictimPod]:
        """Return the victims whose pod was listed."""
        return match_pods(self.victims, self.pods, self._own_pods())

    def gone(self, found: Sequence[VictimPod], events: Sequence[KubernetesEvent]) -> list[VictimPod]:
        """Return the other victims whose pod is gone but has events."""
        known = {each.victim for each in found}
        left = [each for each in self.victims if each not in known]
        return match_deleted_pods(left, events, self.pods, self._own_pods(), namespace=self.namespace)

    def to_api_clock(self, when: float | None) -> float | None:
        """Convert a scheduler's time to the API server's clock, if the two are known to differ."""
        apart_s = (self._api.ahead_s or 0.0) - self._target.scheduler_ahead_s
        return when if when is None or abs(apart_s) < _MIN_APART_S else when + apart_s

    def is_in_window(self, event: KubernetesEvent) -> bool:
        """Whether an event is within the relevant time."""
        since, until = self.to_api_clock(self._target.since), self.to_api_clock(self._target.until)
        last, first = event.last, event.first
        if last is None or first is None:
            return True
        return (since is None or last >= since) and (until is None or first <= until)

    def now(self) -> float:
        """Return seconds since the epoch by the API server's clock."""
        return time.time() + (self._api.ahead_s or 0.0)

    def _on_api_clock(self, victim: Victim) -> Victim:
        return evolve(victim, when=self.to_api_clock(victim.when), since=self.to_api_clock(victim.since))

    def _own_pods(self) -> dict[Victim, str]:
        return {self._on_api_clock(victim): pod for victim, pod in self._target.pods.items()}

    async def _add_matching_pods(self, *, labels: str = "", fields: str = "") -> bool:
        items, complete = await self._api.items(
            "pods", namespace=self.namespace, labels=labels, fields=fields, most=_MAX_PODS
        )
        self._pods |= {pod.uid: pod for pod in map(parse_pod, items)}
        return complete

    async def _add_pod(self, name: str) -> bool:
        item = await self._api.item("pods", name, namespace=self.namespace)
        if item is not None:
            pod = parse_pod(item)
            self._pods[pod.uid] = pod
        return item is not None


def _may_be_pod_address(host: str) -> bool:
    """Whether a host may be a pod's address: no loopback, and without a selector's special characters."""
    return not host.startswith("127.") and not {",", "=", "!"}.intersection(host)
