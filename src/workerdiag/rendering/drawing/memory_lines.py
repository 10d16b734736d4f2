"""The lines and bars of a process's memory, below or above the limits that applied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from workerdiag.model.timeline import MemorySample, ProcessHistory
from workerdiag.rendering.drawing.moments import who_text
from workerdiag.rendering.drawing.plot import Plot, grid, limit_lines, limits_text
from workerdiag.rendering.drawing.scale import Scale, offset_text, thin, time_ticks
from workerdiag.rendering.drawing.svg import drawing, element, path, percent
from workerdiag.units import format_bytes

if TYPE_CHECKING:
    from markupsafe import Markup

#: Width of a bar in pixels.
_BAR_PX = 48
#: What is less than this share of the plot cannot be seen.
_LEAST_SHARE = 0.003
#: Pixels of a wide screen: more than two points per pixel cannot be distinguished.
_COLUMNS = 800
#: So few samples are also drawn as dots.
_MAX_DOTS = 16
#: Room for a label on a phone, as a share of the width, and in a small plot; at the border none is centred.
_LABEL_SHARE, _SMALL_LABEL_SHARE, _BORDER_SHARE = 0.16, 0.26, 0.08

#: Attribute of a sample, by the name that readers know it under; each is a class of the style sheet too.
SERIES: Mapping[str, str] = {
    "process": "process_bytes",
    "managed": "managed_bytes",
    "spilled": "spilled_bytes",
    "control group": "group_bytes",
}


def draw_course(known: ProcessHistory, samples: Sequence[MemorySample], plot: Plot) -> Markup:
    """Memory as lines over time, up to the death."""
    end = known.when if known.when is not None else samples[-1].at
    across = Scale(samples[0].at, max(end, samples[-1].at))
    parts = [*grid(plot), *_time_axis(plot, across, end, is_death=known.when is not None)]
    for name in ("control group", "managed", "spilled", "process"):
        parts += _line(name, _points(samples, name, across, plot.up), plot)
    if known.group_peak_bytes:
        parts.append(_dot("control-group", across(end), plot.y(plot.up(known.group_peak_bytes))))
    parts += limit_lines(plot)
    span = offset_text(samples[-1].at - samples[0].at).lstrip("+")
    text = f"In {span} before the end: {_growth_text(samples, plot.up)}. {limits_text(plot.limits)}"
    return drawing(
        f"Memory of {who_text(known.identity)} by time", text, plot.height_px, parts, class_="wd-plot"
    )


def draw_last_seen(known: ProcessHistory, samples: Sequence[MemorySample], plot: Plot) -> Markup:
    """Memory as it was last seen, as bars."""
    last = {
        name: size
        for name, attribute in SERIES.items()
        for each in samples
        if (size := getattr(each, attribute)) is not None
    }
    shown = {name: size for name, size in last.items() if name == "process" or is_visible([size], plot.up)}
    parts = grid(plot)
    for number, (name, size) in enumerate(shown.items(), 1):
        middle = (number - 0.5) / len(shown)
        y = min(plot.y(plot.up(size)), plot.y(0) - 1)
        bar = element("rect", x=-_BAR_PX / 2, width=_BAR_PX, height=plot.y(0) - y, rx=2)
        class_ = f"wd-bar wd-{name.replace(' ', '-')}"
        parts.append(element("svg", bar, x=percent(middle), y=y, overflow="visible", class_=class_))
        parts.append(_label(middle, plot.height_px - 8, name.split()[-1], "middle", "wd-muted"))
    parts += limit_lines(plot)
    said = ", ".join(f"{name} {format_bytes(size)}" for name, size in shown.items())
    title = f"Memory of {who_text(known.identity)} as it was last seen"
    return drawing(
        title, f"{said.capitalize()}. {limits_text(plot.limits)}", plot.height_px, parts, class_="wd-plot"
    )


def is_visible(sizes: Sequence[int], up: Scale) -> bool:
    """Whether one of the sizes is large enough to be seen in the plot."""
    return up(max(sizes)) >= _LEAST_SHARE


def _time_axis(plot: Plot, across: Scale, end: float, *, is_death: bool) -> Iterator[Markup]:
    bottom, y_text, x_end = plot.y(0), plot.height_px - 8, across(end)
    count, room = (2, _SMALL_LABEL_SHARE) if plot.is_small else (4, _LABEL_SHARE)
    for offset in time_ticks(across.first - end, across.last - end, count):
        x = across(end + offset)
        if abs(x - x_end) > room:
            yield _label(x, y_text, offset_text(offset), _anchor(x), "wd-muted")
    if is_death:
        yield element(
            "line", x1=percent(x_end), x2=percent(x_end), y1=plot.y(1) - 8, y2=bottom, class_="wd-death-line"
        )
    yield _label(x_end, y_text, "death" if is_death else "last seen", _anchor(x_end), "wd-death-text")


def _points(
    samples: Sequence[MemorySample], name: str, across: Scale, up: Scale
) -> list[tuple[float, float]]:
    sizes = [(across(each.at), getattr(each, SERIES[name])) for each in samples]
    points = [(x, up(size)) for x, size in sizes if size is not None and size >= 0]
    return thin(points, _COLUMNS, lambda point: point[0], lambda point: point[1])


def _line(name: str, points: Sequence[tuple[float, float]], plot: Plot) -> list[Markup]:
    """The line of one kind of memory; managed memory is an area, as it is part of the process."""
    if not points or max(y for _, y in points) < _LEAST_SHARE:
        return []
    class_ = f"wd-{name.replace(' ', '-')}"
    scaled = [(1000 * x, plot.plot_px * (1 - y)) for x, y in points]
    inside = []
    if name == "managed":
        area = [*scaled, (scaled[-1][0], float(plot.plot_px)), (scaled[0][0], float(plot.plot_px))]
        inside.append(element("path", d=path(area, closed=True), class_=f"wd-area {class_}"))
    inside.append(
        element("path", d=path(scaled), vector_effect="non-scaling-stroke", class_=f"wd-line {class_}")
    )
    lines = element(
        "svg",
        *inside,
        y=plot.top_px,
        width="100%",
        height=plot.plot_px,
        viewBox=f"0 0 1000 {plot.plot_px}",
        preserveAspectRatio="none",
        overflow="visible",
    )
    few = points if len(points) <= _MAX_DOTS else []
    return [lines, *(_dot(name.replace(" ", "-"), x, plot.y(y)) for x, y in few)]


def _dot(class_: str, x: float, y: float) -> Markup:
    return element("circle", cx=percent(x), cy=y, r=2.5, class_=f"wd-dot wd-{class_}")


def _anchor(x: float) -> str:
    if x < _BORDER_SHARE:
        return "start"
    return "end" if x > 1 - _BORDER_SHARE else "middle"


def _label(x: float, y: float, text: str, anchor: str, class_: str) -> Markup:
    return element("text", text, x=percent(x), y=y, text_anchor=anchor, class_=class_)


def _growth_text(samples: Sequence[MemorySample], up: Scale) -> str:
    parts = []
    for name, attribute in SERIES.items():
        sizes = [size for each in samples if (size := getattr(each, attribute)) is not None]
        if len(sizes) > 1 and is_visible(sizes, up):
            parts.append(f"{name} {format_bytes(sizes[0])} to {format_bytes(sizes[-1])}")
    return ", ".join(parts) or "one value"
