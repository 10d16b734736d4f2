"""
Whom to ask Kubernetes about, worked out from the scene without asking anybody.

The dask-kubernetes operator (2026.3.0, ``controller.py``) labels pods with ``dask.org/cluster-name``,
gives workers the name of their deployment, and tells them of their scheduler as
``tcp://CLUSTER-scheduler.NAMESPACE.svc.cluster.local:8786``. Dask Gateway
(``backends/kubernetes/controller.py``) labels them with ``gateway.dask.org/cluster``, names workers
after their pods, and tells them of their cluster as ``NAMESPACE.CLUSTER``; the Helm chart of Dask
labels pods with ``release``.
"""

from __future__ import annotations

import re

from attrs import field, frozen

from workerdiag.model.identity import Identity
from workerdiag.model.scene import Location, Scene, Victim
from workerdiag.sources.machine_match import scheduler_ahead_s

#: Names that Kubernetes allows (RFC 1123); nothing else gets into a request.
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_SERVICE = re.compile(r"://(?P<service>[a-z0-9-]+)\.(?P<namespace>[a-z0-9-]+)(?P<svc>\.svc\b)?")
_NAMESPACES = ("POD_NAMESPACE", "MY_POD_NAMESPACE")
_PODS = ("POD_NAME", "MY_POD_NAME")
_GATEWAY = "DASK_GATEWAY_CLUSTER_NAME"
#: Part of the path of a control group below a kubelet.
_KUBELET_GROUP = "kubepods"


@frozen(kw_only=True)
class KubernetesTarget:
    """
    The cluster and the dead that Kubernetes is asked about.
    """

    victims: tuple[Victim, ...] = ()
    #: None: where the credentials point to.
    namespace: str | None = None
    #: Label selector of the cluster's pods; empty: not known.
    labels: str = ""
    #: Name of the cluster as it begins the names of what the operator makes; empty: not known.
    cluster: str = ""
    #: Pods of the dead, by what their nannies say of where they run: victim to pod.
    pods: dict[Victim, str] = field(factory=dict, eq=False)
    #: How far the scheduler's clock is ahead of ours, in seconds.
    scheduler_ahead_s: float = 0.0
    #: The time of interest, seconds since the epoch by the scheduler's clock.
    since: float | None = None
    until: float | None = None


def target_of(scene: Scene) -> KubernetesTarget | None:
    """
    Whom to ask about; None where nothing points to Kubernetes.
    """
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
    """
    *name*, if Kubernetes allows it as a name.
    """
    return name if isinstance(name, str) and _NAME.fullmatch(name) else None


def _ran_in_pods(scene: Scene) -> bool:
    """
    Whether the dead lived in pods; where nobody who was near them is left, whether we do.
    """
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
    """
    The pod that a victim's nanny, or who else speaks of the same process, says it runs in.
    """
    for place in places:
        if place.role not in ("worker", "nanny") or not _is_same_process(place.identity, identity):
            continue
        names = [*(place.environment.get(each) for each in _PODS), place.environment.get("HOSTNAME")]
        return next((each for each in map(name_or_none, [*names, place.hostname]) if each), None)
    return None


def _is_same_process(speaker: Identity, identity: Identity) -> bool:
    same_nanny = speaker.nanny is not None and speaker.nanny == identity.nanny
    return same_nanny or (speaker.worker is not None and speaker.worker == identity.worker)
