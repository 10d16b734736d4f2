"""Drawings in SVG, everything in them escaped: elements, axes, and the plane with every limit of memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from math import ceil, floor, isfinite, log2
from operator import itemgetter

from markupsafe import Markup, escape

from workerdiag.model.timeline import MemoryLimits
from workerdiag.units import format_bytes
from workerdiag.values import frozen

#: What an attribute may be given; None leaves it out.
Value = str | float | int | None


@frozen(kw_only=True)
class Figure:
    """One drawing, with what stands above and below it."""

    #: What it shows, in one short line.
    title: str
    #: The drawing, with title and description for screen readers.
    svg: Markup
    #: Colour class and text of what is drawn, for the legend.
    legend: tuple[tuple[str, str], ...] = ()
    #: What happened at the numbers in the drawing, in their order.
    moments: tuple[str, ...] = ()
    #: How many more there are, e.g. ``and 7 more``.
    more: str = ""
    #: What it does not show, and why; one sentence each.
    notes: tuple[str, ...] = ()
    #: The same as a table: names of the columns, and rows.
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    #: The same of others, small: what it is of, and the drawing.
    small: tuple[tuple[str, Markup], ...] = ()


def element(name: str, *children: object, **attributes: Value) -> Markup:
    """An element; a trailing underscore of an attribute's name falls away, others become hyphens."""
    given = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), _number_text(value))
        for key, value in attributes.items()
        if value is not None
    )
    if not children:
        return Markup("<{}{}/>").format(name, given)
    return Markup("<{}{}>{}</{}>").format(name, given, Markup("").join(map(escape, children)), name)


def drawing(
    title: str, description: str, height_px: float, children: Iterable[object], *, class_: str = ""
) -> Markup:
    """A drawing as wide as its place, with its name and its description first."""
    return element(
        "svg",
        element("title", title),
        element("desc", description),
        *children,
        role="img",
        class_=f"wd-drawing {class_}".rstrip(),
        height=height_px,
        width="100%",
    )


def percent(share: float) -> str:
    """A position or a width from 0 to 1, as a percentage."""
    return f"{_number_text(100 * share)}%"


def path(points: Iterable[tuple[float, float]], *, closed: bool = False) -> str:
    """Points as the data of a path: lines from each to the next."""
    text = "L".join(f"{_number_text(x)} {_number_text(y)}" for x, y in points)
    return f"M{text}{'Z' if closed else ''}" if text else ""


def _number_text(value: Value) -> str:
    """A number with at most two digits behind the point; SVG knows no infinity."""
    if isinstance(value, float):
        return f"{round(value, 2):g}" if isfinite(value) and abs(value) < 1e5 else "0"
    return str(value)


#: Distances of labels on an axis of time, in seconds.
_TIME_STEPS = (
    *(0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800),
    *(3600, 7200, 10_800, 21_600, 43_200, 86_400),
)
_LABEL_GAP_PX = 3
_DAY_S = 86_400
_UNITS = (("d", _DAY_S), ("h", 3600), ("min", 60), ("s", 1))


@frozen
class Scale:
    """Maps values from *first* to *last* to 0 to 1; what lies outside is put at the border."""

    first: float
    last: float

    def __call__(self, value: float) -> float:
        """The place of *value*."""
        width = self.last - self.first
        return min(1.0, max(0.0, (value - self.first) / width)) if width > 0 else 0.5


def byte_ticks(most: float) -> list[int]:
    """About four round numbers of bytes from 0 up to *most*: powers of two apart."""
    step = 2 ** max(0, ceil(log2(max(1.0, most) / 4)))
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


def thin(points: Sequence[tuple[float, float]], columns: int) -> list[tuple[float, float]]:
    """The points (place from 0 to 1, value) that a line shows: first, least, most and last in each column."""
    if len(points) <= 2 * columns:
        return list(points)
    kept = []
    value = itemgetter(1)
    for _, group in groupby(points, key=lambda point: min(columns - 1, int(point[0] * columns))):
        column = list(group)
        kept += sorted({column[0], min(column, key=value), max(column, key=value), column[-1]})
    return kept


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


#: Height of the plot in pixels, of the labels below it, and the least above it.
_PLOT_PX, _BOTTOM_PX, _LEAST_TOP_PX = 200, 28, 24
#: Height of a label, and of its letters.
_LABEL_PX, _LETTER_PX = 14, 12


@frozen(kw_only=True)
class Limit:
    """A line that memory was not to cross."""

    label: str
    size_bytes: int
    #: Class of the style sheet: ``hard`` ends the process, ``soft`` slows it down.
    kind: str


@frozen(kw_only=True)
class Plot:
    """Where the drawing has which size."""

    up: Scale
    limits: tuple[Limit, ...]
    #: Height of the plot itself, and of what is above it.
    plot_px: int
    top_px: float
    #: Labels of limits: where they stand, in pixels from the top of the plot, and which limits.
    rows: tuple[tuple[float, tuple[int, ...]], ...]

    @classmethod
    def of(cls, most_bytes: int, limits: Iterable[Limit], plot_px: int = _PLOT_PX) -> Plot:
        """A plot up to *most_bytes*, *plot_px* high, with room for the labels of all limits."""
        up = Scale(0, most_bytes)
        lowest_first = tuple(sorted(limits, key=lambda each: each.size_bytes))
        rows = label_rows([plot_px * (1 - up(each.size_bytes)) for each in lowest_first], _LABEL_PX)
        top_px = max(_LEAST_TOP_PX, _LETTER_PX - min((y for y, _ in rows), default=0.0))
        return cls(up=up, limits=lowest_first, plot_px=plot_px, top_px=top_px, rows=tuple(rows))

    def y(self, share: float) -> float:
        """The height of a share of the plot, in pixels from the top of the drawing."""
        return self.top_px + self.plot_px * (1 - share)

    @property
    def height_px(self) -> float:
        """Of the whole drawing."""
        return self.top_px + self.plot_px + _BOTTOM_PX


def limits_of(limits: MemoryLimits) -> Iterator[Limit]:
    """The lines, those that end a process first."""
    worker, group = limits.worker_bytes, limits.group_bytes
    is_one = worker == group
    sizes = [("worker and group limit", worker)] if is_one else [("group limit", group), ("limit", worker)]
    yield from (Limit(label=label, size_bytes=size, kind="hard") for label, size in sizes if size)
    shares = (
        ("terminate", limits.terminate_fraction, "hard"),
        ("pause", limits.pause_fraction, "soft"),
        ("spill", limits.spill_fraction, "soft"),
    )
    for name, share, kind in shares:
        if share and worker:
            yield Limit(label=f"{name} {share:.0%}", size_bytes=int(worker * share), kind=kind)


def grid(plot: Plot) -> list[Markup]:
    """Thin lines at round sizes, each with its label in the margin."""
    parts = []
    for size in byte_ticks(plot.up.last):
        y = plot.y(plot.up(size))
        parts.append(element("line", x1="0", x2="100%", y1=y, y2=y, class_="wd-grid"))
        label = format_bytes(size) if size else "0"
        parts.append(element("text", label, x=-8, y=y + 4, text_anchor="end", class_="wd-muted"))
    return parts


def limit_lines(plot: Plot) -> Iterator[Markup]:
    """A line for each limit, and above it what it is."""
    for limit in plot.limits:
        y = plot.y(plot.up(limit.size_bytes))
        yield element("line", x1="0", x2="100%", y1=y, y2=y, class_=f"wd-limit wd-{limit.kind}")
    for y, numbers in plot.rows:
        text = " \u00b7 ".join(_limit_text(plot.limits[number]) for number in numbers)
        yield element("text", text, x=4, y=y + plot.top_px, class_="wd-limit-text")


def _limit_text(limit: Limit) -> str:
    return f"{limit.label} {format_bytes(limit.size_bytes)}"


def limits_text(limits: Sequence[Limit]) -> str:
    """All limits in one sentence."""
    if not limits:
        return "No limit is known."
    return f"Limits: {', '.join(map(_limit_text, limits))}."
