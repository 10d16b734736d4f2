"""Where values stand on an axis, and which of them are worth a label."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from math import ceil, floor, log2
from typing import TypeVar

from attrs import frozen

#: Distances of labels on an axis of time, in seconds.
_TIME_STEPS = (
    *(0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800),
    *(3600, 7200, 10_800, 21_600, 43_200, 86_400),
)
#: Between a line and the label above it.
_LABEL_GAP_PX = 3
_DAY_S = 86_400
#: Units of time, and their seconds.
_UNITS = (("d", _DAY_S), ("h", 3600), ("min", 60), ("s", 1))
T = TypeVar("T")


@frozen
class Scale:
    """Maps values from *first* to *last* to 0 to 1; what lies outside is put at the border."""

    first: float
    last: float

    def __call__(self, value: float) -> float:
        """The place of *value*."""
        width = self.last - self.first
        return min(1.0, max(0.0, (value - self.first) / width)) if width > 0 else 0.5


def byte_ticks(most: float, count: int = 4) -> list[int]:
    """About *count* round numbers of bytes from 0 up to *most*: powers of two apart."""
    step = 2 ** max(0, ceil(log2(max(1.0, most) / count)))
    return [step * number for number in range(int(most) // step + 1)]


def time_ticks(first: float, last: float, count: int = 4) -> list[float]:
    """At most *count* round distances from 0, in seconds, between *first* and *last*."""
    width = last - first
    step = next((each for each in _TIME_STEPS if width / each <= count), None)
    step = step or ceil(width / count / _DAY_S) * _DAY_S
    return [step * number for number in range(ceil(first / step), floor(last / step) + 1)]


def offset_text(seconds: float) -> str:
    """A distance from the death as an axis says it: ``-30 s``, ``+1 min 18 s``, ``0 s``."""
    size = abs(seconds)
    sign = "-" if seconds < 0 else "+"
    if size < 0.05:
        return "0 s"
    for (unit, unit_s), (part, part_s) in pairwise(_UNITS):
        if size >= unit_s:
            count, rest = divmod(round(size / part_s), unit_s // part_s)
            return f"{sign}{count} {unit}" + (f" {rest} {part}" if rest else "")
    return f"{sign}{round(size, 1):g} s"


def thin(
    points: Sequence[T], columns: int, place: Callable[[T], float], value: Callable[[T], float]
) -> list[T]:
    """The points that a line shows: the first, least, most and last in each column of pixels.

    *place* gives a point's place from 0 to 1, *value* what the line shows; points are in the order of places.
    """
    if len(points) <= 2 * columns:
        return list(points)
    kept: list[T] = []
    for column in _columns(points, columns, place):
        chosen = {0, len(column) - 1}
        chosen.add(min(range(len(column)), key=lambda number: value(column[number])))
        chosen.add(max(range(len(column)), key=lambda number: value(column[number])))
        kept += [column[number] for number in sorted(chosen)]
    return kept


def _columns(points: Iterable[T], columns: int, place: Callable[[T], float]) -> list[list[T]]:
    found: dict[int, list[T]] = {}
    for each in points:
        found.setdefault(min(columns - 1, int(place(each) * columns)), []).append(each)
    return [found[number] for number in sorted(found)]


def label_rows(lines: Sequence[float], height: float) -> list[tuple[float, tuple[int, ...]]]:
    """Rows of labels for horizontal *lines*: where the text stands, and the numbers of the lines.

    A row is above its line. Lines that leave no room for a row between them share rows of two, above the
    topmost of them. Lines are distances from the top in pixels, the lowest line first; it comes last.
    """
    groups: list[list[int]] = []
    for number, line in enumerate(lines):
        if groups and line > lines[groups[-1][-1]] - _LABEL_GAP_PX - height * ceil(len(groups[-1]) / 2):
            groups[-1].append(number)
        else:
            groups.append([number])
    rows = []
    for group in groups:
        for row, first in enumerate(range(0, len(group), 2)):
            y = lines[group[-1]] - _LABEL_GAP_PX - height * row
            rows.append((y, tuple(reversed(group[first : first + 2]))))
    return rows


def lanes(places: Sequence[float], least: float) -> list[int]:
    """For places in ascending order the lane of each, so that no two of one lane are closer than *least*."""
    ends: list[float] = []
    chosen = []
    for each in places:
        lane = next((number for number, end in enumerate(ends) if each - end >= least), len(ends))
        if lane == len(ends):
            ends.append(each)
        ends[lane] = each
        chosen.append(lane)
    return chosen
