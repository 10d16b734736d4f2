"""
Which death a sign belongs to: the one it names or whose mark it is, else the next in its log or in time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterable, Sequence

from attrs import frozen

from workerdiag.correlation.end_builder import EndBuilder
from workerdiag.correlation.end_index import EndsByTime
from workerdiag.correlation.log_reader import NEAR_LINES, NEAR_S
from workerdiag.model.diagnosis import Match
from workerdiag.model.identity import Identity
from workerdiag.model.lifetimes import Lifetimes
from workerdiag.model.name_index import NameIndex
from workerdiag.model.process_end import ProcessEnd

#: Signs count for a death from so long before it until so long after.
BEFORE_S = 300.0
AFTER_S = 15.0
#: A pid names the same process only so long before its end and after it: pids are used again.
PID_BEFORE_S = 86_400.0
PID_AFTER_S = 600.0
#: A kernel log goes back for weeks. What is further from every death is of none of them; less
#: than that may be a matter of time zones.
KERNEL_APART_S = 26 * 3600.0


@frozen(kw_only=True)
class Attribution:
    """
    The death of each sign.
    """

    #: The signs of each death, in the order of the deaths.
    assigned: tuple[tuple[Match, ...], ...]
    #: Signs that belong to no death.
    unassigned: tuple[Match, ...]


def attribute_signs(signs: Iterable[Match], ends: Sequence[ProcessEnd], lifetimes: Lifetimes) -> Attribution:
    """
    Assign each sign to a death; leave out the kernel's signs of another day.
    """
    assigned: list[list[Match]] = [[] for _ in ends]
    unassigned: list[Match] = []
    index = _EndIndex(ends)
    times = sorted(end.when for end in ends if end.when is not None)
    #: Signs of the kernel that a death has already: of the next of their kind another one is likelier.
    has: set[tuple[int, str, str]] = set()
    for sign in signs:
        if _is_from_another_day(sign, times, is_timed=len(times) == len(ends)):
            continue
        number = _death_of(sign, ends, index, has, lifetimes)
        if number is None:
            unassigned.append(sign)
            continue
        assigned[number].append(sign)
        if sign.stream == "kernel":
            has.add((number, sign.owner, sign.sign))
    return Attribution(assigned=tuple(map(tuple, assigned)), unassigned=tuple(unassigned))


def is_foreign_process(match: Match, strangers: EndsByTime, ends: EndsByTime) -> bool:
    """
    Whether *match* tells of a process that is none of Dask's, going by its pid and time.
    """
    return any(
        _names_process(match, each) for each in strangers.near(match.identity, match.when)
    ) and not any(_names_process(match, each) for each in ends.near(match.identity, match.when))


def _names_process(match: Match, end: ProcessEnd | EndBuilder) -> bool:
    """
    Whether *match* names the process that ended here, and not an earlier or later one of its pid.
    """
    if not any(each.same_process(match.identity) for each in end.identities):
        return False
    if match.identity.worker is not None or match.when is None or end.when is None:
        return True
    return -PID_AFTER_S <= end.when - match.when <= PID_BEFORE_S


def _is_from_another_day(sign: Match, times: Sequence[float], *, is_timed: bool) -> bool:
    """
    Whether a kernel wrote this so long before or after all deaths, at *times*, that it is of none of them.
    """
    when = sign.when
    if sign.stream != "kernel" or when is None or not times or not is_timed:
        return False
    place = bisect_left(times, when)
    return all(abs(each - when) > KERNEL_APART_S for each in times[max(0, place - 1) : place + 1])


class _EndIndex:
    """
    Ends by what names them and by the logs that tell of them: a crash loop has thousands of each.
    """

    def __init__(self, ends: Sequence[ProcessEnd]) -> None:
        self._names: NameIndex[int] = NameIndex()
        self._by_log: dict[tuple[str, bool], list[tuple[int, int]]] = {}
        self._ends = ends
        self._by_message: dict[tuple[str, int], int] = {}
        for number, end in enumerate(ends):
            self._names.add(number, number, *end.identities)
            self._by_message |= {(mark.origin, mark.line): number for mark in end.marks if mark.line}

    def with_name(self, identity: Identity) -> list[int]:
        """
        The numbers of those that may share a name with *identity*, in order.
        """
        return self._names.find(identity)

    def with_message(self, sign: Match) -> int | None:
        """
        The number of the one that is reported by the very message that shows *sign*.
        """
        return self._by_message.get((sign.origin, sign.line))

    def in_log(self, origin: str, *, nameless: bool) -> list[tuple[int, int]]:
        """
        Last lines and numbers of those that a log tells of; *nameless*: that may be of any worker.
        """
        if (origin, nameless) not in self._by_log:
            self._by_log[origin, nameless] = sorted(
                (end.last_line(origin), number)
                for number, end in enumerate(self._ends)
                if end.last_line(origin) and not (nameless and _has_name(end))
            )
        return self._by_log[origin, nameless]


def _has_name(end: ProcessEnd) -> bool:
    return all(identity.worker is not None for identity in end.identities)


def _death_of(
    sign: Match,
    ends: Sequence[ProcessEnd],
    index: _EndIndex,
    has: Container[tuple[int, str, str]],
    lifetimes: Lifetimes,
) -> int | None:
    for number in index.with_name(sign.identity):
        if _names_process(sign, ends[number]):
            return number
    marked = index.with_message(sign)
    if marked is not None and not ends[marked].conflicts_with(sign.identity):
        return marked
    if sign.line and index.in_log(sign.origin, nameless=False):
        # an end whose worker is known is of no other worker's sign
        in_log = index.in_log(sign.origin, nameless=sign.identity.worker is not None)
        return _next_in_log(sign, in_log, ends)
    if sign.when is None:
        return None
    timed = [
        ((number, sign.owner, sign.sign) in has, abs(end.when - sign.when), number)
        for number, end in enumerate(ends)
        if end.when is not None
        and -AFTER_S <= end.when - sign.when <= BEFORE_S
        and not end.conflicts_with(sign.identity)
        and lifetimes.may_describe(sign, end)
    ]
    return min(timed)[2] if timed else None


def _next_in_log(
    sign: Match, ends_in_log: Sequence[tuple[int, int]], ends: Sequence[ProcessEnd]
) -> int | None:
    """
    The first end of this log that is told at or after the sign; close behind one, that one.
    """
    place = bisect_left(ends_in_log, (sign.line,))
    ahead, behind = range(place, len(ends_in_log)), range(place - 1, -1, -1)
    for side in (ahead, behind):
        fitting = (number for _, number in map(ends_in_log.__getitem__, side))
        nearest = next((each for each in fitting if not ends[each].conflicts_with(sign.identity)), None)
        if nearest is not None and not _is_too_far(sign, ends[nearest]):
            return nearest
    return None


def _is_too_far(sign: Match, end: ProcessEnd) -> bool:
    if sign.when is not None and end.when is not None:
        return abs(end.when - sign.when) > max(NEAR_S, BEFORE_S)
    return abs(end.last_line(sign.origin) - sign.line) > NEAR_LINES
