"""The plane on which memory is drawn: round sizes, and every limit that applied with its label."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from attrs import frozen

from workerdiag.model.timeline import MemoryLimits
from workerdiag.rendering.drawing.scale import Scale, byte_ticks, label_rows
from workerdiag.rendering.drawing.svg import element
from workerdiag.units import format_bytes

if TYPE_CHECKING:
    from markupsafe import Markup

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
    def is_small(self) -> bool:
        """Whether there are others beside it."""
        return self.plot_px < _PLOT_PX

    @property
    def height_px(self) -> float:
        """Of the whole drawing."""
        return self.top_px + self.plot_px + _BOTTOM_PX


def limits_of(limits: MemoryLimits) -> Iterator[Limit]:
    """The lines, those that end a process first."""
    worker, group = limits.worker_bytes, limits.group_bytes
    if worker and worker == group:
        yield Limit(label="worker and group limit", size_bytes=worker, kind="hard")
    else:
        if group and group > 0:
            yield Limit(label="group limit", size_bytes=group, kind="hard")
        if worker and worker > 0:
            yield Limit(label="limit", size_bytes=worker, kind="hard")
    shares = (
        ("terminate", limits.terminate_fraction, "hard"),
        ("pause", limits.pause_fraction, "soft"),
        ("spill", limits.spill_fraction, "soft"),
    )
    for name, share, kind in shares:
        if share and worker and worker > 0:
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
