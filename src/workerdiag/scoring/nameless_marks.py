"""
Whose a line of a log is that names nobody: of the process whose end comes next in that log.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from attrs import evolve

from workerdiag.model.diagnosis import Match
from workerdiag.model.identity import NO_IDENTITY
from workerdiag.model.process_end import ProcessEnd

#: Roles of messages that a worker or its nanny writes of that worker, often without its name.
_OF_WORKERS = ("pause", "resume", "trouble", "self-closed", "stop-request")


def name_marks(marks: Sequence[Match], ends: Sequence[ProcessEnd]) -> list[Match]:
    """
    The marks, those of a log that name nobody with the process whose end comes next in that log.

    A log in which several workers start before that end tells of nobody.
    """
    last_lines: dict[str, list[tuple[int, int]]] = {}
    for number, end in enumerate(ends):
        for origin in {mark.origin for mark in end.marks if mark.line}:
            last_lines.setdefault(origin, []).append((end.last_line(origin), number))
    of_origin = {origin: sorted(found) for origin, found in last_lines.items()}
    started: dict[tuple[str, int], set[str]] = {}
    places = [_next_place(mark, of_origin) for mark in marks]
    for mark, place in zip(marks, places, strict=True):
        if place is not None and mark.role == "start" and mark.identity.worker:
            started.setdefault((mark.origin, place), set()).add(mark.identity.worker)
    return [
        evolve(mark, identity=ends[place].identity)
        if place is not None
        and mark.role in _OF_WORKERS
        and mark.identity == NO_IDENTITY
        and len(started.get((mark.origin, place), ())) <= 1
        else mark
        for mark, place in zip(marks, places, strict=True)
    ]


def _next_place(mark: Match, of_origin: Mapping[str, list[tuple[int, int]]]) -> int | None:
    """
    The number of the end that is reported next in the same log.
    """
    ends = of_origin.get(mark.origin, []) if mark.line else []
    place = bisect_left(ends, (mark.line, -1))
    return ends[place][1] if place < len(ends) else None
