"""Converts pods, their events and nodes to evidence, for victims and for unhealthy pods."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence

from workerdiag.model.evidence import Evidence, Gap, Inspected, LogChunk, MemoryReading, ProcessExit
from workerdiag.model.identity import Identity
from workerdiag.model.scene import Victim
from workerdiag.sources.kubernetes.api import SOURCE_NAME
from workerdiag.sources.kubernetes.attribution import VictimPod
from workerdiag.sources.kubernetes.describe import describe_events, describe_pod
from workerdiag.sources.kubernetes.pods import KubernetesEvent, Pod, Termination

#: A node's OOM event belongs to a death at most this many seconds away.
_SAME_MOMENT_S = 5.0
_KILLS_FOR_MEMORY = ("SystemOOM", "OOMKilling")
#: Reasons of node events that report health or a kubelet's start.
_HARMLESS_REASONS = (
    "Starting",
    "Registered",
    "NodeHasSufficient",
    "NodeHasNo",
    "NodeAllocatable",
    "InvalidDisk",
)
#: At most this many unhealthy pods are described, one for each kind of failure.
_MOST = 3


def container_evidence(found: VictimPod) -> Iterator[Evidence]:
    """Yield the exit of the victim's container and its memory limit."""
    end, pod = found.end, found.pod
    if end is not None and _is_workers_exit(end, found.victim):
        who, when = found.identity, end.finished
        yield ProcessExit.of_container(end.exit_code, identity=who, when=when, reporter="Kubernetes")
    if end is not None and pod is not None and end.reason == "OOMKilled" and pod.memory_limit_bytes:
        yield MemoryReading(identity=found.identity, limit_bytes=pod.memory_limit_bytes, when=end.finished)
    if pod is not None and found.is_end_expired:
        yield Gap(
            source=f"{SOURCE_NAME} container status",
            reason="expired",
            detail=f"{pod.container_name} of {pod.name} was started again since: only its last end is kept",
            remedy=f"{logs_command(pod)} --previous",
        )
    elif pod is not None and pod.container_status:
        yield Inspected(identity=found.identity)


def pod_evidence(
    found: VictimPod, among: Sequence[VictimPod], listed: Sequence[KubernetesEvent] | None, *, now: float
) -> Iterator[Evidence]:
    """Yield the victim's pod as kubectl describes it, with the *listed* events of this death.

    *among* has all victims that were found; *now* is by the API server's clock.
    """
    rivals = [each for each in among if each.uid == found.uid]
    mine = [
        each
        for each in listed or ()
        if _is_event_of_pod(each, found) and _nearest_victim(each, rivals) is found
    ]
    description = "" if found.pod is None else describe_pod(found.pod, found.end)
    description += describe_events(mine, now=now) if mine else ""
    of = f"  # {found.victim.identity.worker}" if len(rivals) > 1 else ""
    yield from text_chunks(
        f"kubectl -n {found.namespace} describe pod {found.name}{of}", description, found.identity
    )
    if listed:
        yield Inspected(identity=found.identity)


def describe_node_events(events: Sequence[KubernetesEvent], found: VictimPod, *, now: float) -> str:
    """Return a node's events that may concern this death, as ``kubectl get events`` prints them."""
    relevant = [each for each in events if _may_concern(each, found)]
    return describe_events(relevant, now=now) if relevant else ""


def text_chunks(origin: str, text: str, identity: Identity) -> Iterator[LogChunk]:
    """Yield one Kubernetes text, unless it is empty."""
    if text:
        yield LogChunk(origin=origin, data=text.encode(), stream="kubernetes", identity=identity)


def logs_command(pod: Pod) -> str:
    """Return the command for the log of the container that runs Dask."""
    return shlex.join(["kubectl", "-n", pod.namespace, "logs", pod.name, "-c", pod.container_name])


def pod_identity(pod: Pod) -> Identity:
    """Return the identity of a pod without a known worker."""
    return Identity(container=f"{pod.namespace}/{pod.name}")


def log_identity(found: VictimPod) -> Identity:
    """Return the identity for a container's log: the victim, or the whole container if it still runs."""
    known = found.identity
    return (
        known
        if found.end is not None
        else Identity(nanny=known.nanny, host=known.host, container=known.container)
    )


def _is_workers_exit(end: Termination, victim: Victim) -> bool:
    """Whether the container's exit is the worker's; with a nanny only a kill is, as it ends all processes."""
    return victim.identity.nanny is None or end.exit_code == 137


def _is_event_of_pod(event: KubernetesEvent, found: VictimPod) -> bool:
    if (
        event.kind != "Pod"
        or event.name != found.name
        or (event.uid and found.uid and event.uid != found.uid)
    ):
        return False
    container = found.pod.container_name if found.pod is not None else ""
    return not container or event.container in ("", container)


def _nearest_victim(event: KubernetesEvent, rivals: Sequence[VictimPod]) -> VictimPod:
    if event.last is None:
        return rivals[0]
    last = event.last
    return min(rivals, key=lambda each: abs(last - each.victim.when) if each.victim.when else 0.0)


def _may_concern(event: KubernetesEvent, found: VictimPod) -> bool:
    """Whether a node's event may concern this death; an OOM kill only at the same moment."""
    if event.reason not in _KILLS_FOR_MEMORY:
        return not event.reason.startswith(_HARMLESS_REASONS)
    when = found.end.finished if found.end is not None else found.victim.when
    return when is None or event.last is None or abs(event.last - when) <= _SAME_MOMENT_S


def unhealthy_pods(pods: Iterable[Pod], *, since: float | None) -> list[Pod]:
    """Return the latest pod with each kind of failure, at most three, without those healthy after *since*."""
    found: dict[str, Pod] = {}
    for pod in sorted(pods, key=lambda each: -(each.created or 0.0)):
        if trouble := pod.trouble(since=since):
            found.setdefault(trouble, pod)
    return list(found.values())[:_MOST]


def unhealthy_evidence(
    pods: Iterable[Pod], listed: Sequence[KubernetesEvent], *, now: float
) -> Iterator[Evidence]:
    """Yield unhealthy *pods* as kubectl describes them, with their events."""
    for pod in pods:
        mine = [each for each in listed if each.uid == pod.uid]
        description = describe_pod(pod, None, all_ends=True) + (
            describe_events(mine, now=now) if mine else ""
        )
        origin = f"kubectl -n {pod.namespace} describe pod {pod.name}"
        yield from text_chunks(origin, description, pod_identity(pod))


def owner_evidence(
    cluster: str, pods: Iterable[Pod], listed: Iterable[KubernetesEvent], *, namespace: str, now: float
) -> Iterator[Evidence]:
    """Yield the events of the deployments, replica sets and worker groups that own a cluster's pods.

    *cluster* is its name in the operator; if empty, nothing is yielded.
    """
    groups = {pod.worker_group for pod in pods} - {""}
    beginnings = {f"{cluster}-scheduler", f"{cluster}-default", *groups}
    mine = [
        each
        for each in listed
        if cluster and each.kind != "Pod" and _is_owner(each.name, cluster, beginnings)
    ]
    if mine:
        identity = Identity(container=f"{namespace}/{cluster}")  # the pods may not exist
        yield from text_chunks(f"kubectl -n {namespace} get events", describe_events(mine, now=now), identity)


def _is_owner(name: str, cluster: str, beginnings: Iterable[str]) -> bool:
    return name == cluster or any(name == each or name.startswith(f"{each}-") for each in beginnings)
