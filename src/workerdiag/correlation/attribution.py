"""Which death a sign belongs to: the one in its name or message, else the next in its log or in time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence

from workerdiag.correlation.clock_sync import nearest_s
from workerdiag.correlation.process_ends import NEAR_LINES
from workerdiag.model.diagnosis import Match
from workerdiag.model.identity import NO_IDENTITY
from workerdiag.model.incident import Lifetimes, NameIndex
from workerdiag.model.process_end import ProcessEnd
from workerdiag.model.rules import RETIREMENT
from workerdiag.model.stop_reasons import is_restart_event

#: Seconds before and after a death in which a sign counts for it.
BEFORE_S = 300.0
AFTER_S = 15.0


def attribute_signs(
    signs: Iterable[Match], marks: Iterable[Match], ends: Sequence[ProcessEnd], lifetimes: Lifetimes
) -> tuple[list[tuple[Match, ...]], tuple[Match, ...]]:
    """The signs of each death, and those that belong to none; without the kernel's signs of another day.

    Of the signs that belong to no single death, those in requests to several workers come first.
    """
    orders = {
        (each.origin, each.line)
        for each in marks
        if each.owner in (RETIREMENT, "scheduler.restart", "scheduler.closing") and each.line
    }
    assigned: list[list[Match]] = [[] for _ in ends]
    ordered: list[Match] = []
    unassigned: list[Match] = []
    deaths = _Deaths(ends, lifetimes)
    times = sorted(end.when for end in ends if end.when is not None)
    for sign in signs:
        if (sign.origin, sign.line) in orders or is_restart_event(sign):
            ordered.append(sign)
        elif _is_from_another_day(sign, times, is_timed=len(times) == len(ends)):
            continue
        elif (number := deaths.of(sign)) is None:
            unassigned.append(sign)
        else:
            assigned[number].append(sign)
    return [*map(tuple, assigned)], (*ordered, *unassigned)


class ForeignProcesses:
    """Processes that are not Dask's, distinguished from those that are by pid and time."""

    def __init__(self, foreign: Collection[ProcessEnd], own: Collection[ProcessEnd]) -> None:
        self._foreign, self._own = NameIndex.by_identity(foreign), NameIndex.by_identity(own)
        self._kills: dict[str, list[Match]] = {}
        times = sorted(end.when for end in own if end.when is not None)
        for mark in (mark for end in foreign for mark in end.marks if mark.line):
            # A kill hours away may still be ours, by a clock in another time zone.
            if mark.when is None or not times or nearest_s(mark.when, times) <= BEFORE_S:
                self._kills.setdefault(mark.origin, []).append(mark)

    def include(self, match: Match) -> bool:
        """Whether *match* is about one of them, or is a line of a kernel's report that names one below."""
        if match.stream == "kernel" and match.identity == NO_IDENTITY:
            return any(_is_one_report(match, kill) for kill in self._kills.get(match.origin, ()))
        return _names_any(match, self._foreign) and not _names_any(match, self._own)


def _is_one_report(line: Match, kill: Match) -> bool:
    """Whether *line* is a part of the kernel's report of that kill, which names the process at its end."""
    if line.when is None or kill.when is None:
        return 0 <= kill.line - line.line <= 10
    return line.line <= kill.line and kill.when - line.when <= 0.5


def _names_any(match: Match, ends: NameIndex[ProcessEnd]) -> bool:
    return any(_names_process(match, each) for each in ends.find(match.identity))


def _names_process(match: Match, end: ProcessEnd) -> bool:
    """Whether *match* names the process that ended here, not an earlier or later one with its pid."""
    if not end.same_process(match.identity):
        return False
    if match.identity.worker is not None or match.when is None or end.when is None:
        return True
    return -600.0 <= end.when - match.when <= 86_400.0  # pids are used again


def _is_from_another_day(sign: Match, times: Sequence[float], *, is_timed: bool) -> bool:
    """Whether a kernel, whose log goes back for weeks, wrote *sign* more than all time zones from all *times*."""
    if sign.stream != "kernel" or sign.when is None or not times or not is_timed:
        return False
    return nearest_s(sign.when, times) > 26 * 3600.0


class _Deaths:
    """Ends, indexed by their names and by the logs that report them: a crash loop has thousands."""

    def __init__(self, ends: Sequence[ProcessEnd], lifetimes: Lifetimes) -> None:
        self._ends = ends
        self._lifetimes = lifetimes
        self._names: NameIndex[int] = NameIndex()
        self._by_log: dict[tuple[str, bool], list[tuple[int, int]]] = {}
        self._by_message: dict[tuple[str, int], int] = {}
        #: Signs of the kernel that a death has already: another death is likelier for the next of their kind.
        self._has: set[tuple[int, str, str]] = set()
        for number, end in enumerate(ends):
            self._names.add(number, number, *end.identities)
            self._by_message |= {(mark.origin, mark.line): number for mark in end.marks if mark.line}

    def of(self, sign: Match) -> int | None:
        """The number of the death that *sign* belongs to, or None."""
        number = self._find(sign)
        if number is not None and sign.stream == "kernel":
            self._has.add((number, sign.owner, sign.sign))
        return number

    def _find(self, sign: Match) -> int | None:
        for number in self._names.find(sign.identity):
            if _names_process(sign, self._ends[number]):
                return number
        marked = self._by_message.get((sign.origin, sign.line))
        if marked is not None and not self._ends[marked].conflicts_with(sign.identity):
            return marked
        if sign.line and self._in_log(sign.origin, nameless=False):
            return self._next_in_log(sign)
        if sign.when is None:
            return None
        timed = [
            ((number, sign.owner, sign.sign) in self._has, abs(end.when - sign.when), number)
            for number, end in enumerate(self._ends)
            if end.when is not None
            and -AFTER_S <= end.when - sign.when <= BEFORE_S
            and not end.conflicts_with(sign.identity)
            and self._lifetimes.may_describe(sign, end)
        ]
        return min(timed)[2] if timed else None

    def _in_log(self, origin: str, *, nameless: bool) -> list[tuple[int, int]]:
        """Last lines and numbers of the ends in a log; with *nameless*, of those that may be any worker's."""
        if (origin, nameless) not in self._by_log:
            self._by_log[origin, nameless] = sorted(
                (last, number)
                for number, end in enumerate(self._ends)
                if (last := end.last_line(origin))
                and not (nameless and all(each.worker for each in end.identities))
            )
        return self._by_log[origin, nameless]

    def _next_in_log(self, sign: Match) -> int | None:
        """The next end in this log, else the last one before, if near; no known worker's for another's sign."""
        ends = self._in_log(sign.origin, nameless=sign.identity.worker is not None)
        place = bisect_left(ends, (sign.line,))
        for side in (ends[place:], ends[:place][::-1]):
            fitting = (each for _, each in side if not self._ends[each].conflicts_with(sign.identity))
            nearest = next(fitting, None)
            if nearest is not None and not _is_too_far(sign, self._ends[nearest]):
                return nearest
        return None


def _is_too_far(sign: Match, end: ProcessEnd) -> bool:
    if sign.when is not None and end.when is not None:
        return abs(end.when - sign.when) > BEFORE_S
    return abs(end.last_line(sign.origin) - sign.line) > NEAR_LINES
