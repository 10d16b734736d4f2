"""
Logs that end while their worker runs: it may run still, or was killed and wrote nothing.

Who writes of other processes' ends (a nanny, a scheduler) writes of this one too, unless it ended as well.
"""

from __future__ import annotations

from collections.abc import Iterator

from workerdiag.model.diagnosis import Match
from workerdiag.model.incident import Incident
from workerdiag.model.rules import LAST_LINE, LOG_OF_OTHERS, REGISTRATIONS
from workerdiag.model.vocabulary import MatchRole, Stream

_REGISTERED = ("worker.registered", *REGISTRATIONS)
#: How a worker takes leave, or is seen to have gone.
GOODBYES: frozenset[MatchRole] = frozenset(
    (
        "death",
        "self-closed",
        "closed",
        "stop-request",
        "removal",
        "deregistered",
        "connection-lost",
        "disconnect",
        "clean-exit",
    )
)
#: Who writes nothing of a worker that somebody kills: the worker, its command (whose lines count as a
#: nanny's), and a kernel that did not kill it.
_SILENT_STREAMS: frozenset[Stream | None] = frozenset(("worker", "nanny", "kernel", None))
_OF_NANNIES = "nanny."


def open_ended_log(incident: Incident) -> Match | None:
    """
    Where a worker registered whose log ends without its goodbye, and of which no nanny or other log tells.

    A log that ends in a line of somebody else tells nothing of its end: that line, if there is one. Nor does
    any log tell of what another one says, of which nothing is known.
    """
    marks = (each for each in incident.marks if each.owner != LOG_OF_OTHERS and each.role != "deployment")
    known = {each.origin for each in (*marks, *_signs(incident))}
    for each in incident.marks:
        if each.owner == LOG_OF_OTHERS and each.origin not in known:
            return each
    ended_by_others = {each.origin: each for each in incident.marks if each.owner == LAST_LINE}
    if any(
        each.origin not in ended_by_others
        and (each.stream not in _SILENT_STREAMS or each.owner.startswith(_OF_NANNIES))
        for each in incident.marks
    ):
        return None
    registered: dict[str, Match] = {}
    left: dict[str, int] = {}
    for each in incident.marks:
        if each.owner in _REGISTERED:
            registered[each.origin] = each
        elif each.role in GOODBYES:
            left[each.origin] = max(each.line, left.get(each.origin, 0))
    open_ended = [each for each in registered.values() if each.line > left.get(each.origin, 0)]
    return next((ended_by_others.get(each.origin, each) for each in open_ended), None)


def _signs(incident: Incident) -> Iterator[Match]:
    yield from incident.unassigned_signs
    for case in incident.cases:
        yield from case.signs
