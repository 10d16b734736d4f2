"""Whether the report may say "nothing died": a place that would show a death was read, and all of it is known.

Unexplained trouble, losses, standstills and gaps bar it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from math import inf

from attrs import frozen

from workerdiag.model.diagnosis import RECOGNITION_ROLE, Match
from workerdiag.model.evidence import Gap
from workerdiag.model.incident import Incident
from workerdiag.model.process_end import ProcessEnd
from workerdiag.model.rules import EVERYDAY_ENDS, KILLED_WORKER, LOG_OF_OTHERS, STILL_ALIVE, Rulebook
from workerdiag.model.vocabulary import LOG_PLACES, CauseEnd, GapReason, Grade, Place, Stream
from workerdiag.scoring.failures import SILENT_ROLES, unknown_error
from workerdiag.scoring.silent_losses import (
    aftermaths,
    lacks_workers,
    left_unasked,
    open_ended_log,
    unfinished_starts,
)
from workerdiag.scoring.standstills import blocked_loops, endless_tasks

#: Places that cover all workers of a cluster. A log covers only what is known in it.
_CLUSTER_PLACES: frozenset[Place] = frozenset(
    (
        "scheduler",
        "scheduler events",
        "scheduler log",
        "worker states",
        "task states",
        "versions",
        "workerdiag",
    )
)
_LOGS: frozenset[Place] = frozenset(("log", *LOG_PLACES))
_FAILURE_REASONS: tuple[GapReason, ...] = (
    "forbidden",
    "not-installed",
    "unreachable",
    "timed-out",
    "malformed",
)
#: Streams that report much besides Dask. A known message in them says nothing about workers.
_PLATFORMS: tuple[Stream, ...] = ("kernel", "kubernetes", "batch")
#: Ends that a worker does not survive, unlike a stop, a lost connection or a standstill.
_DEADLY_ENDS: tuple[CauseEnd, ...] = ("raised", "killed", "crashed", "never-started")
_TELLING_GRADES: tuple[Grade, ...] = ("decisive", "strong", "moderate")


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
        wrong = (
            self.troubles or self.unknown_error or self.is_loss or self.lacks_workers or self.open_ended_log
        )
        return bool(wrong or self.has_unread_log or self.lacks_cluster_answer or not self.shows_deaths)


def all_clear_obstacles(incident: Incident, gaps: Sequence[Gap], book: Rulebook) -> AllClearObstacles:
    """What speaks against an all-clear for *incident*. Takes time linear in its marks."""
    signs = incident.all_signs
    marks = [each for each in incident.marks if each.role not in SILENT_ROLES and each.owner != LOG_OF_OTHERS]
    closing = _ShutdownNoise(incident)
    places = incident.inspected - _LOGS
    from_task = any(each.from_task for each in incident.exceptions)
    return AllClearObstacles(
        troubles=(*_troubles(incident, closing), *_unproved_deaths(signs, book)),
        unknown_error=unknown_error(incident, _explaining(signs, book), closing.is_noise),
        is_loss=any(each.relation == "raised" and not each.from_task for each in incident.exceptions)
        or any(
            case.end and (case.end.unexpected or _was_lost_before_asked(case.end)) for case in incident.cases
        ),
        lacks_workers=lacks_workers(incident),
        open_ended_log=None if from_task or places else open_ended_log(incident),
        has_unread_log=_has_gap(gaps, {"log"}),
        lacks_cluster_answer=_has_gap(gaps, _CLUSTER_PLACES),
        is_cut_short=_has_gap(gaps, {"log"}, ("timed-out",)),
        is_recognised=bool(marks or signs or incident.cases or incident.exceptions or places),
        shows_deaths=bool(from_task or places or any(map(_shows_deaths, marks))),
    )


def _shows_deaths(mark: Match) -> bool:
    if mark.role == RECOGNITION_ROLE:
        return mark.stream not in _PLATFORMS
    return mark.stream != "kernel"


def _has_gap(
    gaps: Iterable[Gap], places: Collection[Place], reasons: tuple[GapReason, ...] = _FAILURE_REASONS
) -> bool:
    return any(each.reason in reasons and each.place in places for each in gaps)


def _troubles(incident: Incident, closing: _ShutdownNoise) -> Iterator[Match]:
    ends = [case.end for case in incident.cases if case.end]
    requested = {mark for end in ends if end.stop_requested and not end.crashed for mark in end.marks}
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
        ends = [case.end for case in incident.cases if case.end]
        self._in_order = bool(ends) and all(map(_is_in_order, ends))
        self._first_line: dict[str, int] = {}
        self._first_when: dict[str, float] = {}
        self._harmless: dict[str, set[int]] = {}
        for each in incident.marks:
            if each.role == "stop-request" and each.owner != STILL_ALIVE:
                self._note_order(each)
            elif each.role == "harmless":
                lines = [-each.message_line] if each.message_line else range(each.line, each.last_line + 1)
                self._harmless.setdefault(each.origin, set()).update(lines)

    def _note_order(self, mark: Match) -> None:
        if mark.line:
            self._first_line[mark.origin] = min(mark.line, self._first_line.get(mark.origin, mark.line))
        if mark.when is not None:
            self._first_when[mark.origin] = min(mark.when, self._first_when.get(mark.origin, mark.when))

    def is_noise(self, mark: Match) -> bool:
        """Whether all workers left in order, a stop request came first, or the message is known to be harmless."""
        harmless = (-mark.message_line or mark.line) in self._harmless.get(mark.origin, ())
        ordered = mark.line >= self._first_line.get(mark.origin, mark.line + 1)
        elsewhere = min(
            (when for origin, when in self._first_when.items() if origin != mark.origin), default=inf
        )
        return self._in_order or harmless or ordered or (mark.when is not None and mark.when >= elsewhere)


def _is_in_order(end: ProcessEnd) -> bool:
    """Whether the end was requested. A nanny that kills a slow worker does not say who requested it."""
    asked = end.stop_requested and any(each.owner != STILL_ALIVE for each in end.marks)
    return asked or (end.deregistered and not end.lost)


def _was_lost_before_asked(end: ProcessEnd) -> bool:
    """Whether a log shows the removal of a lost worker above the first request to stop it.

    A worker that closes on request says so to the scheduler (``close-stream``), and is not lost.
    """
    if not end.lost or end.deregistered:
        return False
    first_order: dict[str, int] = {}
    for each in end.marks:
        if each.role == "stop-request" and each.owner != STILL_ALIVE:
            first_order[each.origin] = min(each.line, first_order.get(each.origin, each.line))
    return any(each.role == "removal" and each.line < first_order.get(each.origin, 0) for each in end.marks)


def _explaining(signs: Iterable[Match], book: Rulebook) -> Iterator[Match]:
    """The *signs* that explain the error in their own message.

    They show a stop or a closed connection, which every run leaves, or speak against a cause. A sign that
    suggests another cause without proving it leaves the error unexplained.
    """
    for each in signs:
        cause, sign = book.cause(each.owner), book.signs.get((each.owner, each.sign))
        if cause is None or sign is None or cause.ends in EVERYDAY_ENDS or sign not in cause.signs:
            yield each


def _unproved_deaths(signs: Iterable[Match], book: Rulebook) -> Iterator[Match]:
    """The signs that suggest the death of a worker, even where they are too weak to name its cause.

    A decisive sign against the cause in the same log excludes them: Dask, too, raises `MemoryError`.
    """
    found = [(each, book.cause(each.owner), book.signs.get((each.owner, each.sign))) for each in signs]
    ruled_out = {
        (mark.owner, mark.origin)
        for mark, cause, sign in found
        if cause and sign and sign.grade == "decisive" and sign in cause.against
    }
    for mark, cause, sign in found:
        if cause is None or sign is None or mark.in_task or cause.ends not in _DEADLY_ENDS:
            continue
        is_telling = sign.grade in _TELLING_GRADES and any(one is sign for one in cause.signs)
        if is_telling and (mark.owner, mark.origin) not in ruled_out:
            yield mark
