"""
Which evidence belongs to which death, and which death was first.

Logs, events and exceptions each tell of ends in their own words. Here the ends that are
one process are joined: by worker address or pid, else by time, else by order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import evolve, field, frozen

from workerdiag.model.diagnosis import Match
from workerdiag.model.evidence import (
    Evidence,
    ExceptionFacts,
    Identity,
    LogChunk,
    Looked,
    MemoryReading,
    ProcessExit,
)
from workerdiag.reasoning.ends import NEAR_LINES, NEAR_S, End, LogReader, ends_of_events

#: Two observers of one death write within so many seconds of each other.
SAME_MOMENT_S = 3.0
_KERNEL = "kernel log"
#: Streams whose writers watch processes from outside, also within one text with Dask's own.
_PLATFORMS = ("kernel", "kubernetes", "batch")
#: Observers by how closely they know a worker process.
_TRUSTED = ("worker", "scheduler", *_PLATFORMS)
#: Signs count for a death from so long before it until so long after.
BEFORE_S = 300.0
AFTER_S = 15.0


@frozen(kw_only=True)
class Case:
    """
    One death with the signs that are its own, or (without a death) what is left over.
    """

    end: End | None
    signs: tuple[Match, ...] = ()


@frozen(kw_only=True)
class Incident:
    """
    Everything seen, sorted by the death it belongs to.
    """

    #: In the order in which they died.
    cases: tuple[Case, ...]
    #: Signs that no death claims; they count for every one.
    loose: tuple[Match, ...]
    #: All landmarks, of whomever.
    marks: tuple[Match, ...]
    exceptions: tuple[ExceptionFacts, ...] = ()
    readings: tuple[MemoryReading, ...] = ()
    #: Places that were looked at, so that absence counts there.
    looked: frozenset[str] = field(default=frozenset())


def assemble(matches: Sequence[Match], evidence: Iterable[Evidence]) -> Incident:
    """
    Join *matches* and the evidence that is not text into one incident.
    """
    rest = [piece for piece in evidence if not isinstance(piece, LogChunk)]
    exceptions = tuple(piece for piece in rest if isinstance(piece, ExceptionFacts))
    marks = [each for each in matches if not each.sign]
    signs = [each for each in matches if each.sign]
    ends, strangers = _without_strangers(_joined(_ends(marks)))
    signs = [each for each in signs if each.whose.pid is None or each.whose.pid not in strangers]
    marks = [each for each in marks if each.role != "death" or each.whose.pid not in strangers]
    for exit_ in (piece for piece in rest if isinstance(piece, ProcessExit)):
        _learn_exit(ends, exit_)
    for mark in (each for each in marks if each.role == "blame"):
        _learn_blame(ends, mark.whose, mark)
    for facts in exceptions:
        if facts.whose.worker or facts.whose.pid:
            _learn_blame(ends, facts.whose, None)
    ends.sort(key=lambda end: (end.when is None, end.when or 0.0))
    owned, loose = _sorted_out(signs, ends)
    return Incident(
        cases=tuple(Case(end=end, signs=tuple(owned.get(id(end), ()))) for end in ends),
        loose=tuple(loose),
        marks=tuple(marks),
        exceptions=exceptions,
        readings=tuple(piece for piece in rest if isinstance(piece, MemoryReading)),
        looked=_looked(rest, matches),
    )


def _ends(marks: Iterable[Match]) -> list[list[End]]:
    """
    The ends of each log, of the closest observers first, and those of the events.
    """
    logs: dict[tuple[str, str], list[Match]] = {}
    events: list[Match] = []
    for mark in marks:
        if mark.line:
            logs.setdefault((mark.origin, _observer(mark)), []).append(mark)
        else:
            events.append(mark)
    in_order = sorted(logs, key=lambda log: _TRUSTED.index(log[1]))
    return [LogReader().read(logs[each]) for each in in_order] + [ends_of_events(events)]


def _observer(mark: Match) -> str:
    """
    Who tells it: one text may hold what scheduler, nannies, kernel and platform wrote.
    """
    if mark.stream in _PLATFORMS:
        return mark.stream or ""
    of_scheduler = mark.stream in ("scheduler", "client") or mark.role in ("goodbye", "vanished")
    return "scheduler" if of_scheduler else "worker"


def _joined(groups: Iterable[list[End]]) -> list[End]:
    """
    One end for each process: what different logs tell of the same one is absorbed.
    """
    joined: list[End] = []
    for group in groups:
        taken: set[int] = set()
        for end in group:
            same = _same_process(end, [each for each in joined if id(each) not in taken])
            if same is None:
                joined.append(end)
                taken.add(id(end))
            else:
                same.absorb(end)
                taken.add(id(same))
    return joined


def _without_strangers(ends: list[End]) -> tuple[list[End], frozenset[int]]:
    """
    Without processes that only the kernel speaks of, where Dask tells of other ones.

    A kernel log holds the kills of a whole machine; a fact that does not match the victim
    does not count.
    """
    ours = [end for end in ends if _KERNEL not in end.noticed or len(end.noticed) > 1]
    if not any(end.lost and (end.whose.pid or end.whose.worker) for end in ours):
        return ends, frozenset()
    strangers = [end for end in ends if end not in ours]
    return ours, frozenset(end.whose.pid for end in strangers if end.whose.pid is not None)


def _same_process(end: End, others: Sequence[End]) -> End | None:
    for other in others:
        if other.whose.shares(end.whose) and _apart_s(end, other) <= 600.0:
            return other
    timed = [
        (_apart_s(end, other), index, other)
        for index, other in enumerate(others)
        if end.when is not None and other.when is not None and _may_be_one(end, other)
    ]
    if timed and min(timed)[0] <= SAME_MOMENT_S:
        return min(timed)[2]
    if end.when is None or all(other.when is None for other in others):
        for other in others:  # no clocks to compare: the first that it can be
            if _complementary(end, other):
                return other
    return None


def _complementary(end: End, other: End) -> bool:
    """
    Whether one knows the exit and the other does not, or both tell of the same signal.
    """
    if other.whose.contradicts(end.whose):
        return False
    if end.exit_known and other.exit_known:
        return end.signal == other.signal and end.status == other.status
    return end.exit_known or other.exit_known


def _may_be_one(end: End, other: End) -> bool:
    """
    Nothing contradicts it; a container's pids are not the kernel's, so these may differ.
    """
    if not other.whose.contradicts(end.whose):
        return True
    kernel = (_KERNEL in end.noticed) != (_KERNEL in other.noticed)
    one, two = evolve(end.whose, pid=None), evolve(other.whose, pid=None)
    return kernel and end.signal == other.signal and not one.contradicts(two)


def _apart_s(one: End, two: End) -> float:
    if one.when is None or two.when is None:
        return 0.0
    return abs(one.when - two.when)


def _learn_exit(ends: list[End], exit_: ProcessExit) -> None:
    end = next((each for each in ends if each.shares(exit_.whose)), None)
    if end is None:
        end = End(whose=exit_.whose, when=exit_.when, lost=True)
        ends.append(end)
    if not end.exit_known:
        end.signal, end.status = exit_.signal, exit_.status
    end.noticed[exit_.said_by] = None


def _learn_blame(ends: list[End], whose: Identity, mark: Match | None) -> None:
    """
    Dask gave up on a task: the last worker that it names died, whoever else says so.
    """
    known = [end for end in ends if end.shares(whose)]
    fitting = [end for end in ends if end.lost and not end.asked and not end.whose.contradicts(whose)]
    nameless = [end for end in fitting if end.whose.worker is None]
    if known:
        end = known[-1]
    elif nameless:
        end = nameless[-1]
    elif whose.worker is None and ends:
        end = ends[-1]
    else:
        end = End(lost=True)
        ends.append(end)
    end.whose = end.whose.joined(whose)
    end.noticed["exception"] = None
    if mark is not None:
        end.file(mark)


def _sorted_out(signs: Iterable[Match], ends: Sequence[End]) -> tuple[dict[int, list[Match]], list[Match]]:
    """
    Each sign to the death it belongs to; those of none are loose.
    """
    owned: dict[int, list[Match]] = {}
    loose: list[Match] = []
    for sign in signs:
        end = _owner(sign, ends)
        if end is None:
            loose.append(sign)
        else:
            owned.setdefault(id(end), []).append(sign)
    return owned, loose


def _owner(sign: Match, ends: Sequence[End]) -> End | None:
    for end in ends:
        if end.shares(sign.whose):
            return end
    if sign.line:
        here = [end for end in ends if end.last_line(sign.origin)]
        if here:
            return _next_in_log(sign, here)
    if sign.when is None:
        return None
    timed = [
        (abs(end.when - sign.when), index, end)
        for index, end in enumerate(ends)
        if end.when is not None
        and -AFTER_S <= end.when - sign.when <= BEFORE_S
        and not end.contradicts(sign.whose)
    ]
    return min(timed)[2] if timed else None


def _next_in_log(sign: Match, ends: Sequence[End]) -> End | None:
    """
    The first end of this log that is told at or after the sign; close behind one, that one.
    """
    fitting = [end for end in ends if not end.contradicts(sign.whose)]
    behind = [end for end in fitting if end.last_line(sign.origin) < sign.line]
    ahead = [end for end in fitting if end.last_line(sign.origin) >= sign.line]
    after = min(ahead, key=lambda end: end.last_line(sign.origin), default=None)
    before = max(behind, key=lambda end: end.last_line(sign.origin), default=None)
    if after is not None and not _too_far(sign, after):
        return after
    return before if before is not None and not _too_far(sign, before) else None


def _too_far(sign: Match, end: End) -> bool:
    if sign.when is not None and end.when is not None:
        return abs(end.when - sign.when) > max(NEAR_S, BEFORE_S)
    return abs(end.last_line(sign.origin) - sign.line) > NEAR_LINES


def _looked(rest: Iterable[Evidence], matches: Iterable[Match]) -> frozenset[str]:
    said = {piece.place for piece in rest if isinstance(piece, Looked)}
    shown = {f"{each.stream} log" for each in matches if each.stream and each.line}
    return frozenset(said | shown)
