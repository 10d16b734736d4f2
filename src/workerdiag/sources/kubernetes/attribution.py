"""
Which pod, and which end of its container, was a victim's: by name and address, and by time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from attrs import evolve, frozen

from workerdiag.model.identity import Identity, is_ip_address
from workerdiag.model.scene import Victim
from workerdiag.sources.kubernetes.pods import KubernetesEvent, Pod, Termination

#: A worker that falls silent is given up after ``distributed.scheduler.worker-ttl``, 5 minutes
#: (distributed.yaml, 2026.8.0): this long before its removal its container may have ended.
SILENT_S = 330.0
#: Clocks of a scheduler and of nodes differ by at most this, after the known difference.
SKEW_S = 3.0
#: Times of containers are whole seconds, rounded down.
SECOND_S = 1.0
#: Events by which a pod that is gone is known to have ended.
END_REASONS = (
    "Killing",
    "Evicted",
    "Preempted",
    "Preempting",
    "TaintManagerEviction",
    "ScaleDown",
    "NodeNotReady",
)
#: What a deployment adds to its name to make a pod's: two words of the safe alphabet.
_SUFFIX = re.compile(r"-[a-z0-9]{1,10}-[a-z0-9]{5}")


@frozen(kw_only=True)
class VictimPod:
    """
    A victim, the pod it ran in, and how its container ended.
    """

    victim: Victim
    namespace: str
    name: str
    uid: str
    #: None: it is gone, and only its events are left.
    pod: Pod | None = None
    #: None: its container did not end, or not yet, or that is not told any more.
    end: Termination | None = None
    #: Whether its container has ended since in a way that is not told any more.
    is_end_expired: bool = False

    @property
    def identity(self) -> Identity:
        """
        The victim, without its process id: what ends with a container is its first process.
        """
        known = self.victim.identity
        container = Identity(container=f"{self.namespace}/{self.name}")
        return (evolve(known, pid=None) if known.worker else known).merged_with(container)


def match_pods(victims: Sequence[Victim], pods: Sequence[Pod], own: Mapping[Victim, str]) -> list[VictimPod]:
    """
    The victims whose pod is among *pods*, each with the end of its container if that is reported.

    *own* has the pods that nannies say their workers ran in.
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
    """
    Lower for a pod that is likelier the victim's: it ended then, has its address, is no left-over.
    """
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
    """
    The victims whose pod is gone, and whose end its events report.
    """
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
    """
    Whether the victim ran in *pod*, by names and addresses.
    """
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
    """
    Assign each end to the one victim that is nearest in time, and each victim to one end.

    Of equally near ones the last victim has the last end: an earlier one is soon not reported any more.
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
    """
    Whether a victim that was found gone at its time may have gone in this *end*.
    """
    if victim.when is None:
        return not end.earlier or not any(not each.earlier for each in pod.terminations)
    if end.finished is None or end.finished > victim.when + pod.grace_s + SKEW_S:
        return False
    if end.started is not None and end.started > victim.when + SKEW_S:
        return False
    next_run = _next_run_started(end, pod)
    if next_run is not None and next_run < victim.when - SKEW_S:
        return False  # it lived in the next run of the container
    return end.finished > victim.when - SILENT_S


def _next_run_started(end: Termination, pod: Pod) -> float | None:
    if not end.earlier:
        return None
    current = next((each.started for each in pod.terminations if not each.earlier), None)
    return current if current is not None else pod.running_since


def _existed_then(pod: Pod, victim: Victim) -> bool:
    """
    Whether the pod was there when the victim joined and died, and had not failed long before.

    A deployment makes the next pod while the last one still ends, with the same address on a host's network.
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
    """
    Whether what runs in the pod, or ran there last, began after the victim's death.
    """
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
