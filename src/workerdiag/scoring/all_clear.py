"""Whether the report may say "nothing died": a place that would show a death was read, and all of it is known."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from math import inf

from workerdiag.model.diagnosis import RECOGNITION_ROLE, Match
from workerdiag.model.evidence import Gap
from workerdiag.model.incident import Incident, grouped
from workerdiag.model.normalize import decimal, whole
from workerdiag.model.process_end import ProcessEnd
from workerdiag.model.rules import (
    EVERYDAY_ENDS,
    KILLED_WORKER,
    LAST_LINE,
    LOG_OF_OTHERS,
    REGISTRATIONS,
    SCHEDULER_STATE,
    STILL_ALIVE,
    Rulebook,
)
from workerdiag.model.vocabulary import LEAVE_ROLES, LOG_PLACES, GapReason, MatchRole, Place, Stream
from workerdiag.scoring.failures import SILENT_ROLES, is_callers_own, unknown_error
from workerdiag.values import define, field, frozen

#: Places that cover all workers of a cluster. A log covers only what is known in it.
_CLUSTER_PLACES: frozenset[Place] = frozenset(
    ("scheduler", "scheduler events", "scheduler log", "worker states", "task states", "versions", "workerdiag")
)
_LOGS: frozenset[Place] = frozenset(("log", *LOG_PLACES))
_FAILURE_REASONS: tuple[GapReason, ...] = ("forbidden", "not-installed", "unreachable", "timed-out", "malformed")
#: Streams that report much besides Dask. A known message in them says nothing about workers.
_PLATFORMS: tuple[Stream, ...] = ("kernel", "kubernetes", "batch")


@frozen(kw_only=True)
class AllClearObstacles:
    """What bars the all-clear of one incident."""

    #: Messages of trouble, of losses before any stop request, and of deaths without a proved cause.
    troubles: tuple[Match, ...] = ()
    #: The last error that no cause and no landmark recognises.
    unknown_error: Match | None = None
    #: Whether a worker was lost, or an exception was raised outside of tasks.
    is_loss: bool = False
    #: Whether a client connected to a scheduler and no worker is reported.
    lacks_workers: bool = False
    #: The start of a worker whose log, the only evidence, ends while it runs.
    open_ended_log: Match | None = None
    #: Whether a log that was given could not be read.
    has_unread_log: bool = False
    #: Whether a cluster was queried and did not answer.
    lacks_cluster_answer: bool = False
    #: Whether the time ran out before all inputs were read.
    is_cut_short: bool = False
    #: Whether anything in the inputs is known at all.
    is_recognised: bool = True
    #: Whether a place was read that would show the death of a worker.
    shows_deaths: bool = True

    @property
    def bars(self) -> bool:
        """Whether "nothing died" would be a guess."""
        wrong = self.troubles or self.unknown_error or self.is_loss or self.lacks_workers or self.open_ended_log
        unread = self.has_unread_log or self.lacks_cluster_answer
        return bool(wrong or unread or not self.shows_deaths)


def all_clear_obstacles(incident: Incident, gaps: Sequence[Gap], book: Rulebook) -> AllClearObstacles:
    """What speaks against an all-clear for *incident*. Takes time linear in its marks."""
    signs = incident.all_signs
    marks = [each for each in incident.marks if each.role not in SILENT_ROLES and each.owner != LOG_OF_OTHERS]
    closing = _ShutdownNoise(incident)
    places = incident.inspected - _LOGS
    from_task = any(each.from_task for each in incident.exceptions) or is_callers_own(incident)
    return AllClearObstacles(
        troubles=(*_troubles(incident, closing), *_unproved_deaths(signs, book)),
        unknown_error=unknown_error(incident, _explaining(signs, book), closing.is_noise),
        is_loss=any(
            each.relation == "raised" and not (each.from_task or each.in_caller) for each in incident.exceptions
        )
        or any(end.unexpected or _was_lost_before_asked(end) for end in incident.ends),
        lacks_workers=lacks_workers(incident),
        open_ended_log=None if from_task or places else open_ended_log(incident),
        has_unread_log=_has_gap(gaps, {"log"}),
        lacks_cluster_answer=_has_gap(gaps, _CLUSTER_PLACES),
        is_cut_short=_has_gap(gaps, {"log"}, ("timed-out",)),
        is_recognised=bool(marks or signs or incident.cases or incident.exceptions or places),
        shows_deaths=bool(from_task or places)
        or any(each.stream not in (_PLATFORMS if each.role == RECOGNITION_ROLE else ("kernel",)) for each in marks),
    )


def _has_gap(
    gaps: Iterable[Gap], places: Collection[Place], reasons: tuple[GapReason, ...] = _FAILURE_REASONS
) -> bool:
    return any(each.reason in reasons and each.place in places for each in gaps)


def _troubles(incident: Incident, closing: _ShutdownNoise) -> Iterator[Match]:
    requested = {mark for end in incident.ends if end.stop_requested and not end.crashed for mark in end.marks}
    for each in incident.marks:
        is_trouble = each.role in ("trouble", "blame")
        strayed = each.role in ("death", "self-closed") and each not in requested
        broken = (each.role == "disconnect" or each.owner == STILL_ALIVE) and not closing.is_noise(each)
        if (is_trouble or strayed or broken) and (not each.in_task or each.owner == KILLED_WORKER):
            yield each
    yield from unfinished_starts(incident)
    yield from left_unasked(incident)
    yield from aftermaths(incident)
    yield from blocked_loops(incident)
    yield from endless_tasks(incident)


class _ShutdownNoise:
    """Losses and errors that an orderly shutdown leaves in logs; they mean nothing."""

    def __init__(self, incident: Incident) -> None:
        self._in_order = bool(incident.cases) and all(map(_is_in_order, incident.ends))
        self._first_line = _first_order_lines(incident.marks)
        self._first_when: dict[str, float] = {}
        self._harmless: dict[str, set[int]] = {}
        for each in incident.marks:
            if _is_order(each) and each.when is not None:
                self._first_when[each.origin] = min(each.when, self._first_when.get(each.origin, each.when))
            elif each.role == "harmless":
                lines = [-each.message_line] if each.message_line else range(each.line, each.last_line + 1)
                self._harmless.setdefault(each.origin, set()).update(lines)

    def is_noise(self, mark: Match) -> bool:
        """Whether all workers left in order, a stop request came first, or the message is known to be harmless."""
        harmless = (-mark.message_line or mark.line) in self._harmless.get(mark.origin, ())
        ordered = mark.line >= self._first_line.get(mark.origin, mark.line + 1)
        elsewhere = min((when for origin, when in self._first_when.items() if origin != mark.origin), default=inf)
        return self._in_order or harmless or ordered or (mark.when is not None and mark.when >= elsewhere)


def _is_order(mark: Match) -> bool:
    return mark.role == "stop-request" and mark.owner != STILL_ALIVE


def _lines(marks: Iterable[Match], pick: Callable[[int, int], int]) -> dict[str, int]:
    """The first or last line (*pick*: min, max) of the marks in each log."""
    found: dict[str, int] = {}
    for each in marks:
        found[each.origin] = pick(each.line, found.get(each.origin, each.line))
    return found


def _first_order_lines(marks: Iterable[Match]) -> dict[str, int]:
    return _lines((each for each in marks if _is_order(each) and each.line), min)


def _is_in_order(end: ProcessEnd) -> bool:
    """Whether the end was requested. A nanny that kills a slow worker does not say who requested it."""
    asked = end.stop_requested and any(each.owner != STILL_ALIVE for each in end.marks)
    return asked or (end.deregistered and not end.lost)


def _was_lost_before_asked(end: ProcessEnd) -> bool:
    """Whether a log shows the removal of a lost worker, which did not deregister, above the first stop request."""
    if not end.lost or end.deregistered:
        return False
    first_order = _first_order_lines(end.marks)
    return any(each.role == "removal" and each.line < first_order.get(each.origin, 0) for each in end.marks)


def _explaining(signs: Iterable[Match], book: Rulebook) -> Iterator[Match]:
    """The *signs* that explain the error in their own message: of an everyday end, or against a cause."""
    for each in signs:
        cause, sign = book.cause(each.owner), book.signs.get((each.owner, each.sign))
        if cause is None or sign is None or cause.ends in EVERYDAY_ENDS or sign not in cause.signs:
            yield each


def _unproved_deaths(signs: Iterable[Match], book: Rulebook) -> Iterator[Match]:
    """Signs that suggest a worker's death, too weak to name its cause; none where that is decisively excluded."""
    found = [
        (mark, cause, sign)
        for mark in signs
        if (cause := book.cause(mark.owner)) and (sign := book.signs.get((mark.owner, mark.sign)))
    ]
    ruled_out = {
        (mark.owner, mark.origin)
        for mark, cause, sign in found
        if sign.grade == "decisive" and sign in cause.against
    }
    for mark, cause, sign in found:
        is_telling = sign.grade in ("decisive", "strong", "moderate") and any(one is sign for one in cause.signs)
        may_kill = cause.ends in ("raised", "killed", "crashed", "never-started") and not mark.in_task
        if is_telling and may_kill and (mark.owner, mark.origin) not in ruled_out:
            yield mark


_REGISTERED = ("worker.registered", *REGISTRATIONS)
_WAITING, _PRELOADING = "worker.waiting-to-connect", "process.preloading"
_NANNY_STARTS, _STARTS = "nanny.start", "worker.start"
_ANY_WORKER = (*_REGISTERED, _STARTS, _NANNY_STARTS, "nanny.starts-worker")
_SCHEDULER_STARTS, _SCHEDULER_STOPS = "scheduler.start", "scheduler.closing"
_CLIENT_CAME, _CLIENT_WENT = "scheduler.client-connected", "scheduler.client-removed"
#: How a worker leaves, or is seen to be gone.
_GOODBYES: frozenset[MatchRole] = frozenset((*LEAVE_ROLES, "disconnect", "clean-exit"))


def open_ended_log(incident: Incident) -> Match | None:
    """The registration of a worker whose only log ends without a goodbye, or a line of another program there."""
    marks = (each for each in incident.marks if each.owner != LOG_OF_OTHERS and each.role != "deployment")
    known = {each.origin for each in (*marks, *incident.all_signs)}
    for each in incident.marks:
        if each.owner == LOG_OF_OTHERS and each.origin not in known:
            return each
    ended_by_others = {each.origin: each for each in incident.marks if each.owner == LAST_LINE}
    if any(
        each.origin not in ended_by_others
        and (each.stream not in ("worker", "nanny", "kernel", None) or each.owner.startswith("nanny."))
        for each in incident.marks
    ):
        return None
    registered = {each.origin: each for each in incident.marks if each.owner in _REGISTERED}
    left = _lines((each for each in incident.marks if each.role in _GOODBYES), max)
    open_ended = [each for each in registered.values() if each.line > left.get(each.origin, 0)]
    return next((ended_by_others.get(each.origin, each) for each in open_ended), None)


def aftermaths(incident: Incident) -> Iterator[Match]:
    """The first mark in each log that a worker had gone unseen: its command starts again, or a client has none."""
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
    return before is not None and mark.when - before > 60.0  # one command starts all of its nannies in less


def left_unasked(incident: Incident) -> Iterator[Match]:
    """Departures of workers, unasked, while a client was connected that may have needed them, or may have been."""
    leaving = {mark for end in incident.ends if end.deregistered and not end.stop_requested for mark in end.marks}
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
        left, self.pending = self.pending, []
        if end_of_all is None:
            return left
        end = end_of_all.when
        return [each for each in left if each.when is not None and end is not None and end - each.when > 3.0]


def unfinished_starts(incident: Incident) -> Iterator[Match]:
    """The last mark of each process that did not finish its start."""
    marks = incident.marks
    yield from _never_registered(incident)
    yield from _never_up(incident)
    if not any(each.owner in _REGISTERED for each in marks):  # older nannies do not say why they close
        yield from _last_starts(marks, (_NANNY_STARTS, _STARTS), lambda each: each.role == "stop-request")
    up = {each.origin for each in marks if each.owner in (*_REGISTERED, _WAITING, _STARTS, _SCHEDULER_STARTS)}
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
    steps = (each for each in incident.marks if each.owner in (_WAITING, *_REGISTERED))
    last = {(each.origin, each.identity.pid): each for each in steps}
    stopped = _lines((each for each in incident.marks if each.role == "stop-request"), max)
    for each in last.values():
        if each.owner == _WAITING and each.line >= stopped.get(each.origin, 0):
            yield each


def _never_up(incident: Incident) -> Iterator[Match]:
    """Ends of worker processes in logs where nannies start but no worker does: these starts failed."""
    if any(each.owner in (*_REGISTERED, _WAITING, _STARTS) for each in incident.marks):
        return
    started = _lines((each for each in incident.marks if each.owner == _NANNY_STARTS), min)
    for each in incident.marks:
        if each.role == "death" and each.line > started.get(each.origin, each.line):
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


#: A loop that is blocked this long at once, or for this share of the time, does not answer in time:
#: peers wait for 30 s (``distributed.comm.timeouts.connect`` and ``tcp`` in distributed.yaml).
_BLOCKED_S = 30.0
_BLOCKED_SHARE = 0.2
#: Counts of them, and what is known of these.
_COUNTS: Mapping[str, str] = {
    "overdue_tasks": ", and for ten times as long as that kind of task takes.",
    "idle_tasks": " on workers that use hardly any processor time, and none of that kind has finished: what "
    "they wait for may never come.",
}


def blocked_loops(incident: Incident) -> Iterator[Match]:
    """Event loops that were blocked so long that other processes may take theirs for dead."""
    by_log = grouped((each for each in incident.marks if each.role == "blocked"), lambda each: each.origin)
    yield from (some[-1] for some in by_log.values() if _is_long_blocked(some))


def _is_long_blocked(marks: Sequence[Match]) -> bool:
    seconds = [decimal(each.captures.get("seconds")) or 0.0 for each in marks]
    if max(seconds) >= _BLOCKED_S:
        return True
    if len(marks) < 3:
        return False
    times = [each.when for each in marks if each.when is not None]
    if len(times) < len(marks):
        return sum(seconds) >= 10.0  # without times in the text
    return sum(seconds) >= _BLOCKED_SHARE * (max(times) - min(times) + seconds[0])


def endless_tasks(incident: Incident) -> Iterator[Match]:
    """The state of a scheduler whose tasks may never finish; it cannot be seen from outside whether they will."""
    return (each for each in incident.marks if each.owner == SCHEDULER_STATE and endless_sentence(each))


def endless_sentence(state: Match) -> str:
    """What is known about endless tasks, and what helps if they wait for each other; empty if there are none."""
    taken_s = decimal(state.captures.get("threads_taken_s")) or 0.0
    if (count := whole(state.captures.get("starved_tasks"))) and taken_s >= 5.0:
        tasks = "task waits" if count == 1 else "tasks wait"
        return (
            f"{count} {tasks} that running tasks asked for, and each thread has been taken for at least "
            f"{taken_s:.0f} s: they may wait for each other for ever, as tasks that wait for tasks without "
            "worker_client() or secede() do."
        )
    for name, why in _COUNTS.items():
        if count := whole(state.captures.get(name)):
            tasks = "1 task has" if count == 1 else f"{count} tasks have"
            return f"{tasks} run for more than a minute{why}"
    return ""
