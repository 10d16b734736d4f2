"""
Pods of a cluster in which no worker, or no scheduler, came to be: one of each kind of trouble.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from workerdiag.model.evidence import Evidence
from workerdiag.model.identity import Identity
from workerdiag.sources.kubernetes.describe import describe_events, describe_pod
from workerdiag.sources.kubernetes.events import KubernetesEvent
from workerdiag.sources.kubernetes.evidence import pod_identity, text_chunks
from workerdiag.sources.kubernetes.pods import Pod

#: So many are told of; the others are like them.
_MOST = 3


def unhealthy_pods(pods: Iterable[Pod], *, since: float | None) -> list[Pod]:
    """
    The latest pod of each kind of trouble, at most three.

    Args:
        pods: Of one cluster.
        since: What is well again since then is left out; seconds since the epoch.
    """
    found: dict[str, Pod] = {}
    for pod in sorted(pods, key=lambda each: -(each.created or 0.0)):
        if trouble := pod.trouble(since=since):
            found.setdefault(trouble, pod)
    return list(found.values())[:_MOST]


def unhealthy_evidence(
    pods: Iterable[Pod], listed: Sequence[KubernetesEvent], *, now: float
) -> Iterator[Evidence]:
    """
    The pods as kubectl describes them, with their events.

    Args:
        pods: Those that are unwell.
        listed: Events of their namespace.
        now: Seconds since the epoch, by the API server's clock.
    """
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
    """
    What befell the deployments, replica sets and worker groups that were to make a cluster's pods.

    Args:
        cluster: The operator's name of the cluster; empty: not known, and nothing is told.
        pods: Of the cluster; they name their worker groups.
        listed: Events of the namespace.
        namespace: Its name.
        now: Seconds since the epoch, by the API server's clock.
    """
    groups = {pod.worker_group for pod in pods} - {""}
    beginnings = {f"{cluster}-scheduler", f"{cluster}-default", *groups}
    mine = [
        each
        for each in listed
        if cluster and each.kind != "Pod" and _is_owner(each.name, cluster, beginnings)
    ]
    if mine:
        identity = Identity(container=f"{namespace}/{cluster}")  # what would have been made
        yield from text_chunks(f"kubectl -n {namespace} get events", describe_events(mine, now=now), identity)


def _is_owner(name: str, cluster: str, beginnings: Iterable[str]) -> bool:
    return name == cluster or any(name == each or name.startswith(f"{each}-") for each in beginnings)
