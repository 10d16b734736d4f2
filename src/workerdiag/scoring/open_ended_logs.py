"""
Logs that end while their worker runs: it may run still, or was killed and wrote nothing.
"""

from __future__ import annotations

from workerdiag.model.diagnosis import Match
from workerdiag.model.incident import Incident
from workerdiag.model.vocabulary import MatchRole, Stream

_REGISTERED = "worker.registered"
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
    """
    if any(
        each.stream not in _SILENT_STREAMS or each.owner.startswith(_OF_NANNIES) for each in incident.marks
    ):
        return None
    registered: dict[str, Match] = {}
    left: dict[str, int] = {}
    for each in incident.marks:
        if each.owner == _REGISTERED:
            registered[each.origin] = each
        elif each.role in GOODBYES:
            left[each.origin] = max(each.line, left.get(each.origin, 0))
    return next((each for each in registered.values() if each.line > left.get(each.origin, 0)), None)
