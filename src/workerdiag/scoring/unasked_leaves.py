"""
Workers that took leave of the scheduler in order, and of which nobody knows who wanted it.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import define, field

from workerdiag.model.diagnosis import Match
from workerdiag.model.incident import Incident
from workerdiag.model.rules import REGISTRATIONS

_CLIENT_CAME, _CLIENT_WENT = "scheduler.client-connected", "scheduler.client-removed"
_SCHEDULER_STARTS, _SCHEDULER_STOPS = "scheduler.start", "scheduler.closing"
#: At the end of the work, clients or the scheduler follow the workers within so many seconds. Our judgement.
TOGETHER_S = 3.0


def left_unasked(incident: Incident) -> Iterator[Match]:
    """
    Leaves of workers while a client was there that may have needed them, or where its log began before.

    A worker leaves so after SIGTERM or ^C, at the end of its life, and after an error of its own. At the
    end of the work it does as well: then the clients or the scheduler go with it.
    """
    ends = [case.end for case in incident.cases if case.end]
    leaving = {mark for end in ends if end.deregistered and not end.stop_requested for mark in end.marks}
    logs: dict[str, _SchedulerLog] = {}
    for each in incident.marks:
        yield from logs.setdefault(each.origin, _SchedulerLog()).left(each, is_leave=each in leaving)
    for log in logs.values():
        yield from log.pending


@define
class _SchedulerLog:
    """
    One log, read from its start.
    """

    #: Who is connected; None in a part of a log that begins after the scheduler did, until it tells of one.
    _clients: set[str] | None = None
    #: Leaves of which nothing that came since says more.
    pending: list[Match] = field(factory=list)

    def left(self, mark: Match, *, is_leave: bool) -> list[Match]:
        """
        The leaves that were not part of the end of all.
        """
        client = mark.captures.get("client", "")
        if mark.owner == _SCHEDULER_STARTS:
            self._clients = set()
        elif mark.owner == _CLIENT_CAME:
            self._clients = {*(self._clients or ()), client}
        elif mark.owner == _CLIENT_WENT:
            self._clients = {*(self._clients or ())} - {client}
            if not self._clients:
                return self._settled(mark)
        elif mark.owner == _SCHEDULER_STOPS:
            self._clients = set()
            return self._settled(mark)
        elif mark.owner in REGISTRATIONS:
            return self._settled(None)
        elif is_leave and self._clients != set():
            self.pending.append(mark)
        return []

    def _settled(self, end_of_all: Match | None) -> list[Match]:
        left = [each for each in self.pending if end_of_all is None or not _is_together(each, end_of_all)]
        self.pending.clear()
        return left


def _is_together(leave: Match, end_of_all: Match) -> bool:
    if leave.when is None or end_of_all.when is None:
        return True
    return end_of_all.when - leave.when <= TOGETHER_S
