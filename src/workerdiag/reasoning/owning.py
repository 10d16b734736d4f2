"""
Which death a sign belongs to: the one it names, else the next in its log, else the nearest in time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from workerdiag.model.diagnosis import Match
from workerdiag.reasoning.ends import End
from workerdiag.reasoning.telling import NEAR_LINES, NEAR_S

#: Signs count for a death from so long before it until so long after.
BEFORE_S = 300.0
AFTER_S = 15.0
#: A pid names the same process only so long before its end and after it: pids are used again.
PID_BEFORE_S = 86_400.0
PID_AFTER_S = 600.0
#: A kernel log goes back for weeks. What is further from every death is of none of them; less
#: than that may be a matter of time zones.
KERNEL_APART_S = 26 * 3600.0


def sorted_out(signs: Iterable[Match], ends: Sequence[End]) -> tuple[dict[int, list[Match]], list[Match]]:
    """
    Each sign to the death it belongs to; those of none are loose, those of another day left out.
    """
    owned: dict[int, list[Match]] = {}
    loose: list[Match] = []
    for sign in signs:
        if _of_another_day(sign, ends):
            continue
        end = _owner(sign, ends)
        if end is None:
            loose.append(sign)
        else:
            owned.setdefault(id(end), []).append(sign)
    return owned, loose


def of_strangers(match: Match, strangers: Sequence[End], ends: Sequence[End]) -> bool:
    """
    Whether *match* tells of a process that is none of Dask's, going by its pid and time.
    """
    return any(_of_process(match, each) for each in strangers) and not any(
        _of_process(match, each) for each in ends
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


def _of_another_day(sign: Match, ends: Sequence[End]) -> bool:
    """
    Whether a kernel wrote this so long before or after all deaths that it is of none of them.
    """
    when = sign.when
    if sign.stream != "kernel" or when is None or not ends:
        return False
    return all(end.when is not None and abs(end.when - when) > KERNEL_APART_S for end in ends)


def _owner(sign: Match, ends: Sequence[End]) -> End | None:
    for end in ends:
        if _of_process(sign, end):
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
