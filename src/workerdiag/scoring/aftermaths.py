"""
What tells that a worker went without a word: what starts again below its log, or a client without workers.
"""

from __future__ import annotations

from collections.abc import Iterator

from workerdiag.model.diagnosis import Match
from workerdiag.model.incident import Incident
from workerdiag.model.rules import REGISTRATIONS
from workerdiag.scoring.open_ended_logs import GOODBYES

_UP = (*REGISTRATIONS, "worker.registered")
#: One command starts its nannies within so many seconds.
_ONE_COMMAND_S = 60.0


def aftermaths(incident: Incident) -> Iterator[Match]:
    """
    The first such mark of each log below a worker that was up, where no line between tells that one went.
    """
    is_up: set[str] = set()
    restarts = _Restarts(incident)
    for each in incident.marks:
        if each.owner in _UP:
            is_up.add(each.origin)
        elif each.role in GOODBYES:
            is_up.discard(each.origin)
            restarts.forget(each.origin)
        elif restarts.include(each) or (each.role == "aftermath" and each.origin in is_up):
            is_up.discard(each.origin)
            yield each


class _Restarts:
    """
    Starts of a command in the log of an earlier one: a service or a container that was started again.

    Where a scheduler writes in the same log, a cluster of one machine starts its nannies as they are wanted.
    """

    def __init__(self, incident: Incident) -> None:
        self._shared = {each.origin for each in incident.marks if each.stream == "scheduler"}
        #: When the last nanny of a host started, by log.
        self._latest: dict[str, dict[str, float]] = {}

    def include(self, mark: Match) -> bool:
        """
        Whether *mark* is the start of a nanny long after another one of its host; marks come in order.
        """
        if mark.owner != "nanny.start" or mark.when is None or mark.origin in self._shared:
            return False
        latest = self._latest.setdefault(mark.origin, {})
        host = mark.captures.get("nanny", "").rpartition(":")[0]
        before, latest[host] = latest.get(host), mark.when
        return before is not None and mark.when - before > _ONE_COMMAND_S

    def forget(self, origin: str) -> None:
        """
        Forget who started in a log: somebody took leave there.
        """
        self._latest.pop(origin, None)
