"""
Which death a sign belongs to: the one it names or whose mark it is, else the next in its log or in time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterable, Sequence

from workerdiag.correlation.end_index import NamedEnds
from workerdiag.correlation.log_reader import NEAR_LINES, NEAR_S
from workerdiag.correlation.process_end import End
from workerdiag.correlation.process_lifetimes import Lifetimes, addresses
from workerdiag.model.diagnosis import Match
from workerdiag.model.evidence import Identity

#: Signs count for a death from so long before it until so long after.
BEFORE_S = 300.0
AFTER_S = 15.0
#: A pid names the same process only so long before its end and after it: pids are used again.
PID_BEFORE_S = 86_400.0
PID_AFTER_S = 600.0
#: A kernel log goes back for weeks. What is further from every death is of none of them; less
#: than that may be a matter of time zones.
KERNEL_APART_S = 26 * 3600.0


def sorted_out(
    signs: Iterable[Match], ends: Sequence[End], lifetimes: Lifetimes
) -> tuple[dict[int, list[Match]], list[Match]]:
    """
    Each sign to the death it belongs to; those of none are loose, those of another day left out.
    """
    owned: dict[int, list[Match]] = {}
    loose: list[Match] = []
    index = _Index(ends)
    times = sorted(end.when for end in ends if end.when is not None)
    #: Signs of the kernel that a death has already: of the next of their kind another one is likelier.
    has: set[tuple[int, str, str]] = set()
    for sign in signs:
        if _of_another_day(sign, times, is_timed=len(times) == len(ends)):
            continue
        end = _owner(sign, ends, index, has, lifetimes)
        if end is None:
            loose.append(sign)
        else:
            owned.setdefault(id(end), []).append(sign)
            if sign.stream == "kernel":
                has.add((id(end), sign.owner, sign.sign))
    return owned, loose


def of_strangers(match: Match, strangers: NamedEnds, ends: NamedEnds) -> bool:
    """
    Whether *match* tells of a process that is none of Dask's, going by its pid and time.
    """
    return any(_of_process(match, each) for each in strangers.named(match.whose)) and not any(
        _of_process(match, each) for each in ends.named(match.whose)
    )


def _of_process(match: Match, end: End) -> bool:
    """
    Whether *match* names the process that ended here, and not an earlier or later one of its pid.
    """
    if not end.shares(match.whose):
        return False
    if match.whose.worker is not None or match.when is None or end.when is None:
        return True
    return -PID_AFTER_S <= end.when - match.when <= PID_BEFORE_S


def _of_another_day(sign: Match, times: Sequence[float], *, is_timed: bool) -> bool:
    """
    Whether a kernel wrote this so long before or after all deaths, at *times*, that it is of none of them.
    """
    when = sign.when
    if sign.stream != "kernel" or when is None or not times or not is_timed:
        return False
    place = bisect_left(times, when)
    return all(abs(each - when) > KERNEL_APART_S for each in times[max(0, place - 1) : place + 1])


class _Index:
    """
    Ends by what names them and by the logs that tell of them: a crash loop has thousands of each.
    """

    def __init__(self, ends: Sequence[End]) -> None:
        self._named: dict[str | int, dict[int, End]] = {}
        self._told: dict[tuple[str, bool], list[tuple[int, int, End]]] = {}
        self._ends = ends
        self._marked = {(mark.origin, mark.line): end for end in ends for mark in end.marks if mark.line}
        for number, end in enumerate(ends):
            for whose in (end.whose, *end.aliases):
                for name in (whose.worker, whose.pid):
                    if name is not None:
                        self._named.setdefault(name, {})[number] = end

    def named(self, whose: Identity) -> list[End]:
        """
        Those that may share a name with *whose*, in their order.
        """
        found = {**self._named.get(whose.worker or "", {}), **self._named.get(whose.pid or 0, {})}
        return [found[number] for number in sorted(found)]

    def marked(self, sign: Match) -> End | None:
        """
        The one of which the very message tells that shows *sign*.
        """
        return self._marked.get((sign.origin, sign.line))

    def told(self, origin: str, *, nameless: bool) -> list[tuple[int, int, End]]:
        """
        Those that a log tells of, by their last lines; *nameless*: that may be of any worker.
        """
        if (origin, nameless) not in self._told:
            self._told[origin, nameless] = sorted(
                (
                    (end.last_line(origin), number, end)
                    for number, end in enumerate(self._ends)
                    if end.last_line(origin) and not (nameless and _has_name(end))
                ),
                key=lambda each: each[:2],
            )
        return self._told[origin, nameless]


def _has_name(end: End) -> bool:
    return all(whose.worker is not None for whose in (end.whose, *end.aliases))


def may_be_of(sign: Match, end: End, lifetimes: Lifetimes) -> bool:
    """
    Whether a line of the kernel, which names another pid or none, may tell of this end.

    It tells of no orderly one, and of none whose process spoke afterwards.
    """
    if sign.stream != "kernel" or end.has_pid(sign.whose.pid):
        return True
    if end.polite or (end.asked and not end.crashed):
        return False
    return not lifetimes.outlived(addresses(end), sign, end.when)


def _owner(
    sign: Match,
    ends: Sequence[End],
    index: _Index,
    has: Container[tuple[int, str, str]],
    lifetimes: Lifetimes,
) -> End | None:
    for end in index.named(sign.whose):
        if _of_process(sign, end):
            return end
    marked = index.marked(sign)
    if marked is not None and not marked.contradicts(sign.whose):
        return marked
    if sign.line and index.told(sign.origin, nameless=False):
        # an end whose worker is known is of no other worker's sign
        return _next_in_log(sign, index.told(sign.origin, nameless=sign.whose.worker is not None))
    if sign.when is None:
        return None
    timed = [
        ((id(end), sign.owner, sign.sign) in has, abs(end.when - sign.when), number, end)
        for number, end in enumerate(ends)
        if end.when is not None
        and -AFTER_S <= end.when - sign.when <= BEFORE_S
        and not end.contradicts(sign.whose)
        and may_be_of(sign, end, lifetimes)
    ]
    return min(timed)[3] if timed else None


def _next_in_log(sign: Match, told: Sequence[tuple[int, int, End]]) -> End | None:
    """
    The first end of this log that is told at or after the sign; close behind one, that one.
    """
    place = bisect_left(told, sign.line, key=lambda each: each[0])
    ahead = (told[each][2] for each in range(place, len(told)))
    after = next((end for end in ahead if not end.contradicts(sign.whose)), None)
    if after is not None and not _too_far(sign, after):
        return after
    behind = (told[each][2] for each in range(place - 1, -1, -1))
    before = next((end for end in behind if not end.contradicts(sign.whose)), None)
    return before if before is not None and not _too_far(sign, before) else None


def _too_far(sign: Match, end: End) -> bool:
    if sign.when is not None and end.when is not None:
        return abs(end.when - sign.when) > max(NEAR_S, BEFORE_S)
    return abs(end.last_line(sign.origin) - sign.line) > NEAR_LINES
