"""Standstills in which no worker ends: blocked event loops, and tasks that may never finish."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from workerdiag.model.diagnosis import Match
from workerdiag.model.incident import Incident
from workerdiag.model.normalize import decimal, whole
from workerdiag.model.rules import SCHEDULER_STATE

#: A loop that is blocked this long at once, or for this share of the time, does not answer in time:
#: peers wait for 30 s (``distributed.comm.timeouts.connect`` and ``tcp`` in distributed.yaml).
_BLOCKED_S = 30.0
_BLOCKED_SHARE = 0.2
_BLOCKED_TIMES = 3
#: Without times in the text: seconds in total.
_BLOCKED_SUM_S = 10.0
#: Seconds after which a thread that is still taken counts as stuck. Our judgement.
_LEAST_S = 5.0
#: Counts of them, and what is known of these.
_COUNTS: Mapping[str, str] = {
    "overdue_tasks": ", and for ten times as long as that kind of task takes.",
    "idle_tasks": " on workers that use hardly any processor time, and none of that kind has finished: what "
    "they wait for may never come.",
}


def blocked_loops(incident: Incident) -> Iterator[Match]:
    """Event loops that were blocked so long that other processes may take theirs for dead."""
    by_log: dict[str, list[Match]] = {}
    for each in incident.marks:
        if each.role == "blocked":
            by_log.setdefault(each.origin, []).append(each)
    for some in by_log.values():
        if _is_long_blocked(some):
            yield some[-1]


def _is_long_blocked(marks: Sequence[Match]) -> bool:
    seconds = [decimal(each.captures.get("seconds")) or 0.0 for each in marks]
    if max(seconds) >= _BLOCKED_S:
        return True
    if len(marks) < _BLOCKED_TIMES:
        return False
    times = [each.when for each in marks if each.when is not None]
    if len(times) < len(marks):
        return sum(seconds) >= _BLOCKED_SUM_S
    return sum(seconds) >= _BLOCKED_SHARE * (max(times) - min(times) + seconds[0])


def endless_tasks(incident: Incident) -> Iterator[Match]:
    """The state of a scheduler whose tasks may never finish; it cannot be seen from outside whether they will."""
    for each in incident.marks:
        if each.owner == SCHEDULER_STATE and (_starved_count(each) or any(_counts(each))):
            yield each


def endless_sentence(state: Match) -> str:
    """What is known about endless tasks, and what helps if they wait for each other."""
    if count := _starved_count(state):
        taken_s = decimal(state.captures.get("threads_taken_s"))
        tasks = "task waits" if count == 1 else "tasks wait"
        return (
            f"{count} {tasks} that running tasks asked for, and each thread has been taken for at least "
            f"{taken_s:.0f} s: they may wait for each other for ever, as tasks that wait for tasks without "
            "worker_client() or secede() do."
        )
    count, why = next(_counts(state))
    tasks = "1 task has" if count == 1 else f"{count} tasks have"
    return f"{tasks} run for more than a minute{why}"


def _counts(state: Match) -> Iterator[tuple[int, str]]:
    for name, why in _COUNTS.items():
        if count := whole(state.captures.get(name)):
            yield count, why


def _starved_count(state: Match) -> int:
    taken_s = decimal(state.captures.get("threads_taken_s")) or 0.0
    return whole(state.captures.get("starved_tasks")) or 0 if taken_s >= _LEAST_S else 0
