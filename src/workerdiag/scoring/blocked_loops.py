"""
Event loops that were blocked for so long that nobody can say that all went well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from workerdiag.model.diagnosis import Match
from workerdiag.model.incident import Incident
from workerdiag.model.normalize import decimal

#: A loop that is blocked for so long in one piece, or for such a share of the time, does not answer in time:
#: others wait for 30 s (``distributed.comm.timeouts.connect`` and ``tcp`` in distributed.yaml).
_BLOCKED_S = 30.0
_BLOCKED_SHARE = 0.2
_BLOCKED_TIMES = 3
#: Where the text has no times, so many seconds in sum.
_BLOCKED_SUM_S = 10.0


def blocked_loops(incident: Incident) -> Iterator[Match]:
    """
    Event loops that are blocked for so long that others may take the process for dead.
    """
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
