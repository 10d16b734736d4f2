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


def sorted_out(signs: Iterable[Match], ends: Sequence[End]) -> tuple[dict[int, list[Match]], list[Match]]:
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
