"""Matches victims to pods by name and address, and to container terminations by time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from attrs import evolve, frozen

from workerdiag.model.identity import Identity, is_ip_address
from workerdiag.model.scene import Victim
from workerdiag.sources.kubernetes.pods import KubernetesEvent, Pod, Termination

#: A container may end this many seconds before its worker's removal: the scheduler gives up a silent worker
#: after ``distributed.scheduler.worker-ttl``, 5 minutes (distributed.yaml, 2026.8.0).
SILENT_S = 330.0
#: Maximum remaining difference of a scheduler's and a node's clock after correction, in seconds.
SKEW_S = 3.0
#: Times of containers are whole seconds, rounded down.
SECOND_S = 1.0
#: Reasons of events that report the end of a pod.
END_REASONS = (
    "Killing",
    "Evicted",
    "Preempted",
    "Preempting",
    "TaintManagerEviction",
    "ScaleDown",
    "NodeNotReady",
)
#: Suffix that a deployment adds to its name for a pod: two words of the safe alphabet.
_SUFFIX = re.compile(r"-[a-z0-9]{1,10}-[a-z0-9]{5}")


@frozen(kw_only=True)
class VictimPod:
    """A victim, its pod, and the termination of its container."""

    victim: Victim
    namespace: str
    name: str
    uid: str
    #: None if the pod is gone and only its events are left.
    pod: Pod | None = None
    #: None if its container did not end, or its termination is no longer reported.
    end: Termination | None = None
    #: Whether its termination is no longer reported because the container ended again.
    is_end_expired: bool = False

    @property
    def identity(self) -> Identity:
        """The victim without its pid: the container's exit is that of its first process."""
        known = self.victim.identity
        container = Identity(container=f"{self.namespace}/{self.name}")
        return (evolve(known, pid=None) if known.worker else known).merged_with(container)


def match_pods(victims: Sequence[Victim], pods: Sequence[Pod], own: Mapping[Victim, str]) -> list[VictimPod]:
    """Return the victims whose pod is among *pods*, each with its container's termination if reported.

    *own* holds the pods that nannies report for their workers.
    """
    pairs = [
        (victim, pod) for victim in victims for pod in pods if is_victims_pod(pod, victim, own.get(victim))
    ]
    ends = _assign_terminations(pairs)
    found: dict[Victim, VictimPod] = {}
    for victim, pod in sorted(pairs, key=lambda pair: _rank(pair[0], pair[1], ends)):
        end = ends.get((victim, pod.uid))
        if victim not in found and (end is not None or _existed_then(pod, victim)):
            found[victim] = VictimPod(
                victim=victim,
                namespace=pod.namespace,
                name=pod.name,
                uid=pod.uid,
                pod=pod,
                end=end,
                is_end_expired=end is None and _started_after(pod, victim),
            )
    return list(found.values())


def _rank(
    victim: Victim, pod: Pod, ends: Mapping[tuple[Victim, str], Termination]
) -> tuple[bool, bool, bool]:
    """Return a sort key, lower for a likelier pod: it ended then, has the address, and is not a left-over."""
    known_end = (victim, pod.uid) in ends
    return not known_end, victim.identity.host not in pod.addresses, pod.failed


def match_deleted_pods(
    victims: Iterable[Victim],
    events: Sequence[KubernetesEvent],
    there: Iterable[Pod],
    own: Mapping[Victim, str],
    *,
    namespace: str,
) -> list[VictimPod]:
    """Return the victims whose pod is gone but has events that report its end."""
    uids = {pod.uid for pod in there}
    ending = [
        each for each in events if each.kind == "Pod" and each.reason in END_REASONS and each.uid not in uids
    ]
    found = []
    for victim in victims:
        fitting = [each for each in ending if _is_named_for(each.name, victim, own.get(victim))]
        nearest = min(fitting, key=lambda each: _seconds_apart(each.last, victim.when), default=None)
        if nearest is not None and _ended_near(nearest, victim):
            found.append(VictimPod(victim=victim, namespace=namespace, name=nearest.name, uid=nearest.uid))
    return found


def is_victims_pod(pod: Pod, victim: Victim, own: str | None) -> bool:
    """Whether the victim ran in *pod*, by names and addresses."""
    if own is not None:
        return pod.name == own
    identity, named = victim.identity, pod.worker_name
    if identity.name and named and named != identity.name:
        return False
    here = identity.host in pod.addresses
    if pod.addresses and identity.host and is_ip_address(identity.host) and not here:
        return False
    if _is_named_for(pod.name, victim, None) or (identity.name and named == identity.name):
        return True
    return here and not pod.shares_its_address and bool(pod.container)


def _is_named_for(pod: str, victim: Victim, own: str | None) -> bool:
    if own is not None:
        return pod == own
    name = victim.identity.name
    return bool(name) and (
        pod == name or (pod.startswith(name or "") and bool(_SUFFIX.fullmatch(pod[len(name or "") :])))
    )


def _assign_terminations(pairs: Iterable[tuple[Victim, Pod]]) -> dict[tuple[Victim, str], Termination]:
    """Assign each termination to the victim nearest in time, and one termination to each victim.

    Of equally near ones the last victim gets the last termination: earlier ones soon expire.
    """
    fitting = sorted(
        (
            (_seconds_from_end(end, victim), -(victim.when or 0.0), end.earlier, number, victim, pod, end)
            for number, (victim, pod) in enumerate(pairs)
            for end in pod.terminations
            if _may_be_victims_end(end, pod, victim)
        ),
        key=lambda each: each[:4],
    )
    ends: dict[tuple[Victim, str], Termination] = {}
    used: set[tuple[str, Termination]] = set()
    for *_, victim, pod, end in fitting:
        if (pod.uid, end) not in used and victim not in {each for each, _ in ends}:
            ends[victim, pod.uid] = end
            used.add((pod.uid, end))
    return ends


def _seconds_from_end(end: Termination, victim: Victim) -> float:
    if end.finished is None or victim.when is None:
        return 0.0
    return max(0.0, end.finished - victim.when, victim.when - (end.finished + SECOND_S))


def _may_be_victims_end(end: Termination, pod: Pod, victim: Victim) -> bool:
    if victim.when is None:
        return not end.earlier or not any(not each.earlier for each in pod.terminations)
    if end.finished is None or end.finished > victim.when + pod.grace_s + SKEW_S:
        return False
    if end.started is not None and end.started > victim.when + SKEW_S:
        return False
    next_run = _next_run_started(end, pod)
    if next_run is not None and next_run < victim.when - SKEW_S:
        return False  # the victim ran in the container's next run
    return end.finished > victim.when - SILENT_S


def _next_run_started(end: Termination, pod: Pod) -> float | None:
    if not end.earlier:
        return None
    current = next((each.started for each in pod.terminations if not each.earlier), None)
    return current if current is not None else pod.running_since


def _existed_then(pod: Pod, victim: Victim) -> bool:
    """Whether the pod existed when the victim joined and died, and had not failed long before.

    A deployment creates the next pod while the last one is terminating, with the same address on a host
    network.
    """
    if victim.since is not None and pod.created is not None and pod.created > victim.since + SKEW_S:
        return False
    if victim.when is None:
        return True
    if pod.failed and pod.changed is not None and abs(pod.changed - victim.when) > SILENT_S:
        return False
    if pod.created is not None and pod.created > victim.when:
        return False
    return not _started_after(pod, victim) or pod.restarts > 0


def _started_after(pod: Pod, victim: Victim) -> bool:
    began = pod.running_since
    if began is None:
        began = max((each.started for each in pod.terminations if each.started is not None), default=None)
    return began is not None and victim.when is not None and began > victim.when - SECOND_S


def _ended_near(event: KubernetesEvent, victim: Victim) -> bool:
    if victim.when is None or event.last is None:
        return True
    return -SILENT_S < event.last - victim.when < 30.0


def _seconds_apart(one: float | None, two: float | None) -> float:
    return abs(one - two) if one is not None and two is not None else 0.0
