"""Workers that may be lost without a message: their start, their departure or their log has no proper end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from attrs import define, field

from workerdiag.model.diagnosis import Match
from workerdiag.model.incident import Incident
from workerdiag.model.rules import LAST_LINE, LOG_OF_OTHERS, REGISTRATIONS
from workerdiag.model.vocabulary import MatchRole, Stream

_REGISTERED = ("worker.registered", *REGISTRATIONS)
_WAITING, _PRELOADING = "worker.waiting-to-connect", "process.preloading"
_NANNY_STARTS, _STARTS = "nanny.start", "worker.start"
_UP = (*_REGISTERED, _WAITING, _STARTS)
_ANY_WORKER = (*_REGISTERED, _STARTS, _NANNY_STARTS, "nanny.starts-worker")
_SCHEDULER_STARTS, _SCHEDULER_STOPS = "scheduler.start", "scheduler.closing"
_CLIENT_CAME, _CLIENT_WENT = "scheduler.client-connected", "scheduler.client-removed"
#: How a worker leaves, or is seen to be gone.
_GOODBYES: frozenset[MatchRole] = frozenset(
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
#: Streams that report nothing when a worker is killed: the worker, its command (whose lines count as a
#: nanny's), and a kernel that did not kill it.
_SILENT_STREAMS: frozenset[Stream | None] = frozenset(("worker", "nanny", "kernel", None))
_OF_NANNIES = "nanny."
#: Seconds within which one command starts its nannies.
_ONE_COMMAND_S = 60.0
#: Seconds after the workers within which clients or the scheduler leave at the end of the work. Our
#: judgement.
_LEFT_TOGETHER_S = 3.0


def open_ended_log(incident: Incident) -> Match | None:
    """The registration of a worker whose log ends without a goodbye and that no other log mentions.

    The worker may still run, or it was killed and wrote nothing. If the log ends in a line of another
    program, the result is that line; a log in which nothing is known comes first.
    """
    marks = (each for each in incident.marks if each.owner != LOG_OF_OTHERS and each.role != "deployment")
    known = {each.origin for each in (*marks, *incident.all_signs)}
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
        elif each.role in _GOODBYES:
            left[each.origin] = max(each.line, left.get(each.origin, 0))
    open_ended = [each for each in registered.values() if each.line > left.get(each.origin, 0)]
    return next((ended_by_others.get(each.origin, each) for each in open_ended), None)


def aftermaths(incident: Incident) -> Iterator[Match]:
    """The first mark in each log that shows that a worker disappeared without a message.

    It is a command that starts again (a service or container was restarted), or a client without workers. A
    scheduler in the same log means a local cluster, which starts nannies on demand.
    """
    shared = {each.origin for each in incident.marks if each.stream == "scheduler"}
    is_up: set[str] = set()
    nanny_starts: dict[str, dict[str, float]] = {}
    for each in incident.marks:
        if each.owner in _REGISTERED:
            is_up.add(each.origin)
        elif each.role in _GOODBYES:
            is_up.discard(each.origin)
            nanny_starts.pop(each.origin, None)
        elif (each.origin not in shared and _is_restart(each, nanny_starts.setdefault(each.origin, {}))) or (
            each.role == "aftermath" and each.origin in is_up
        ):
            is_up.discard(each.origin)
            yield each


def _is_restart(mark: Match, latest: dict[str, float]) -> bool:
    """Whether a nanny starts long after another one on its host; *latest* has the last start on each host."""
    if mark.owner != _NANNY_STARTS or mark.when is None:
        return False
    host = mark.captures.get("nanny", "").rpartition(":")[0]
    before, latest[host] = latest.get(host), mark.when
    return before is not None and mark.when - before > _ONE_COMMAND_S


def left_unasked(incident: Incident) -> Iterator[Match]:
    """Departures of workers while a client was connected that may have needed them, or may have been.

    A worker leaves like this after SIGTERM, ^C, the end of its lifetime or an error of its own. At the end of
    the work, the clients or the scheduler leave with it.
    """
    ends = [case.end for case in incident.cases if case.end]
    leaving = {mark for end in ends if end.deregistered and not end.stop_requested for mark in end.marks}
    logs: dict[str, _SchedulerLog] = {}
    for each in incident.marks:
        yield from logs.setdefault(each.origin, _SchedulerLog()).read(each, is_leave=each in leaving)
    for log in logs.values():
        yield from log.pending


@define
class _SchedulerLog:
    #: The connected clients. None in a log that begins after the scheduler started and mentions no client.
    _clients: set[str] | None = None
    #: Departures that no later mark has explained.
    pending: list[Match] = field(factory=list)

    def read(self, mark: Match, *, is_leave: bool) -> list[Match]:
        """The pending departures that *mark* shows not to belong to the shutdown of the cluster."""
        client = mark.captures.get("client", "")
        if mark.owner == _SCHEDULER_STARTS:
            self._clients = set()
        elif mark.owner == _CLIENT_CAME:
            self._clients = {*(self._clients or ()), client}
        elif mark.owner == _CLIENT_WENT:
            self._clients = {*(self._clients or ())} - {client}
            if not self._clients:
                return self._settle(mark)
        elif mark.owner == _SCHEDULER_STOPS:
            self._clients = set()
            return self._settle(mark)
        elif mark.owner in REGISTRATIONS:
            return self._settle(None)
        elif is_leave and self._clients != set():
            self.pending.append(mark)
        return []

    def _settle(self, end_of_all: Match | None) -> list[Match]:
        left = [each for each in self.pending if end_of_all is None or not _is_together(each, end_of_all)]
        self.pending.clear()
        return left


def _is_together(leave: Match, end_of_all: Match) -> bool:
    if leave.when is None or end_of_all.when is None:
        return True
    return end_of_all.when - leave.when <= _LEFT_TOGETHER_S


def unfinished_starts(incident: Incident) -> Iterator[Match]:
    """The last mark of each process that did not finish its start."""
    marks = incident.marks
    yield from _never_registered(incident)
    yield from _never_up(incident)
    if not any(each.owner in _REGISTERED for each in marks):  # older nannies do not say why they close
        yield from _last_starts(marks, (_NANNY_STARTS, _STARTS), lambda each: each.role == "stop-request")
    up = {each.origin for each in marks if each.owner in (*_UP, _SCHEDULER_STARTS)}
    not_up = (each for each in marks if each.origin not in up)
    yield from _last_starts(not_up, (_PRELOADING,), lambda each: each.owner == _NANNY_STARTS)


def is_start(mark: Match) -> bool:
    """Whether *mark* says that a process starts, not that it fails."""
    return mark.role == "start" or mark.owner == _PRELOADING


def all_died_at_start(incident: Incident) -> bool:
    """Whether worker processes died, and no worker is known to have been up."""
    return any(_never_up(incident))


def lacks_workers(incident: Incident) -> bool:
    """Whether a client connected to a scheduler, and no worker is known."""
    owners = {each.owner for each in incident.marks}
    return owners >= {_SCHEDULER_STARTS, _CLIENT_CAME} and owners.isdisjoint(_ANY_WORKER)


def _never_registered(incident: Incident) -> Iterator[Match]:
    """Workers that still wait for the scheduler at the end of their log, and that nobody asked to stop."""
    last: dict[tuple[str, int | None], Match] = {}
    stopped: dict[str, int] = {}
    for each in incident.marks:
        if each.owner in (_WAITING, *_REGISTERED):
            last[each.origin, each.identity.pid] = each
        elif each.role == "stop-request":
            stopped[each.origin] = max(each.line, stopped.get(each.origin, 0))
    for each in last.values():
        if each.owner == _WAITING and each.line >= stopped.get(each.origin, 0):
            yield each


def _never_up(incident: Incident) -> Iterator[Match]:
    """Ends of worker processes in logs where nannies start but no worker does: these starts failed."""
    if any(each.owner in _UP for each in incident.marks):
        return
    started: dict[str, int] = {}
    for each in incident.marks:
        if each.owner == _NANNY_STARTS:
            started.setdefault(each.origin, each.line)
        elif each.role == "death" and each.line > started.get(each.origin, each.line):
            yield each


def _last_starts(
    marks: Iterable[Match], owners: tuple[str, ...], is_over: Callable[[Match], bool]
) -> Iterable[Match]:
    """The last mark of one of *owners* in each log, unless a mark below it ends that start."""
    last: dict[str, Match] = {}
    for each in marks:
        if each.owner in owners:
            last[each.origin] = each
        elif is_over(each):
            last.pop(each.origin, None)
    return last.values()
