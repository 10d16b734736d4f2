"""
What stands in messages about the end of a program that is no worker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from workerdiag.model.diagnosis import Match
from workerdiag.model.vocabulary import MatchRole

#: What says that a process ended, how, or why.
_OF_ENDS: tuple[MatchRole, ...] = ("sign", "exit-report", "death", "trouble")


def without_other_programs(found: Sequence[Match]) -> list[Match]:
    """
    The matches without those that tell how another program than a worker ended.
    """
    theirs = {line for each in found if each.role == "other-program" for line in _line_places(each)}
    if not theirs:
        return list(found)
    return [each for each in found if each.role not in _OF_ENDS or theirs.isdisjoint(_line_places(each))]


def _line_places(mark: Match) -> Iterator[tuple[str, int]]:
    for line in range(mark.line, max(mark.line, mark.last_line) + 1):
        yield mark.origin, line
