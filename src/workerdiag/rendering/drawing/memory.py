"""
Memory of the first victim, by time or as it was last seen, against every limit that applied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from workerdiag.model.diagnosis import Findings
from workerdiag.model.timeline import MemoryLimits, MemorySample, ProcessHistory
from workerdiag.rendering.drawing.moments import who_text
from workerdiag.rendering.drawing.plot import PLOT_PX, Limit, Plot, grid, limit_lines, limits_of, limits_text
from workerdiag.rendering.drawing.scale import Scale, offset_text, thin, time_ticks
from workerdiag.rendering.drawing.svg import Figure, drawing, element, path, percent
from workerdiag.rendering.wording import clip
from workerdiag.units import format_bytes, format_time

if TYPE_CHECKING:
    from markupsafe import Markup

#: Width of a bar in pixels.
_BAR_PX = 48
#: What is less than this share of the plot cannot be seen.
_LEAST_SHARE = 0.003
#: Pixels of a wide screen: more points than two for each cannot be told apart.
_COLUMNS = 800
#: So few samples are also drawn as dots.
_MAX_DOTS = 16
_MAX_ROWS, _MAX_NAME_CHARS = 20, 80
#: What happened after the last sample is missing from this many seconds on.
_STALE_S = 0.3
#: What was seen within less time is no course, nor are readings that are further apart, in seconds.
_LEAST_S, _MAX_APART_S = 0.2, 30.0
#: Room for a label on a phone, as a share of the width; at the border a label is not centred.
_LABEL_SHARE, _BORDER_SHARE = 0.16, 0.08

#: Attribute of a sample, by the name that readers know it under; each is a class of the style sheet too.
_SERIES: Mapping[str, str] = {
    "process": "process_bytes",
    "managed": "managed_bytes",
    "spilled": "spilled_bytes",
    "control group": "group_bytes",
}


def memory_figure(findings: Findings) -> Figure | None:
    """
    The memory of the first process of which any is known; None where nobody told of memory.
    """
    known = _history_to_draw(findings)
    if known is None:
        return None
    samples = [each for each in known.samples if _values(each)]
    limits = list(limits_of(known.limits))
    times = {each.at for each in samples if each.process_bytes is not None or each.group_bytes is not None}
    is_course = _is_course(sorted(times), recorded=known.recorded)
    if not is_course and not limits:
        return None  # one number needs no drawing
    draw = _course if is_course else _last_seen
    plot = Plot.of(_most(known, samples, limits), limits)
    return Figure(
        title=f"Memory of {clip(who_text(known.identity), _MAX_NAME_CHARS)}",
        svg=draw(known, samples, plot),
        legend=tuple(_legend(samples, known.group_peak_bytes, plot.up)),
        notes=tuple(_notes(known, samples, is_course=is_course)),
        columns=("Time", *(name.capitalize() for name in _SERIES)),
        rows=tuple(_row(each, known.when) for each in samples[-_MAX_ROWS:]),
    )


def _is_course(times: Sequence[float], *, recorded: bool) -> bool:
    """
    Whether a line between these moments tells how memory changed, and is no guess.
    """
    if not times or times[-1] - times[0] < _LEAST_S:
        return False
    return recorded or all(after - before <= _MAX_APART_S for before, after in pairwise(times))


def _history_to_draw(findings: Findings) -> ProcessHistory | None:
    """
    The first with memory and a limit, else the first with memory, else what a death tells; no survivor's.
    """
    if findings.outcome == "no-death":
        return None
    told = [each for each in findings.timeline.histories if _has_memory(each)]
    told.sort(key=lambda each: not (each.limits.worker_bytes or each.limits.group_bytes))
    return told[0] if told else _history_of_a_death(findings)


def _has_memory(history: ProcessHistory) -> bool:
    return any(each.process_bytes or each.group_bytes for each in history.samples)


def _history_of_a_death(findings: Findings) -> ProcessHistory | None:
    """
    What is known of a death whose memory is told without a time.
    """
    death = next((each for each in findings.deaths if each.rss_bytes), None)
    if death is None:
        return None
    return ProcessHistory(
        identity=death.identity,
        samples=(MemorySample(at=death.when or 0.0, process_bytes=death.rss_bytes),),
        limits=MemoryLimits(worker_bytes=death.limit_bytes),
        when=death.when,
    )


def _values(sample: MemorySample) -> list[int]:
    known = (getattr(sample, attribute) for attribute in _SERIES.values())
    return [each for each in known if each is not None and each >= 0]


def _most(known: ProcessHistory, samples: Sequence[MemorySample], limits: Sequence[Limit]) -> int:
    values = [value for each in samples for value in _values(each)]
    return max([*values, *(each.size_bytes for each in limits), known.group_peak_bytes or 0, 1])


def _course(known: ProcessHistory, samples: Sequence[MemorySample], plot: Plot) -> Markup:
    """
    Memory as lines over time, up to the death.
    """
    end = known.when if known.when is not None else samples[-1].at
    across = Scale(samples[0].at, max(end, samples[-1].at))
    parts = [*grid(plot), *_time_axis(plot, across, end, is_death=known.when is not None)]
    for name in ("control group", "managed", "spilled", "process"):
        parts += _line(name, _points(samples, name, across, plot.up), plot)
    if known.group_peak_bytes:
        parts.append(_dot("control-group", across(end), plot.y(plot.up(known.group_peak_bytes))))
    parts += limit_lines(plot)
    span = offset_text(samples[-1].at - samples[0].at).lstrip("+")
    text = f"In {span} before the end: {_growth_text(samples)}. {limits_text(plot.limits)}"
    return drawing(
        f"Memory of {who_text(known.identity)} by time", text, plot.height_px, parts, class_="wd-plot"
    )


def _last_seen(known: ProcessHistory, samples: Sequence[MemorySample], plot: Plot) -> Markup:
    """
    Memory as it was last seen, as bars.
    """
    shown = {
        name: size
        for name, attribute in _SERIES.items()
        for each in samples
        if (size := getattr(each, attribute)) is not None and size >= 0
    }
    parts = grid(plot)
    for number, (name, size) in enumerate(shown.items(), 1):
        middle = (number - 0.5) / len(shown)
        y = min(plot.y(plot.up(size)), plot.y(0) - 1)
        bar = element("rect", x=-_BAR_PX / 2, width=_BAR_PX, height=plot.y(0) - y, rx=2)
        class_ = f"wd-bar wd-{name.replace(' ', '-')}"
        parts.append(element("svg", bar, x=percent(middle), y=y, overflow="visible", class_=class_))
        parts.append(_text(middle, plot.height_px - 8, name.split()[-1], "middle", "wd-muted"))
    parts += limit_lines(plot)
    said = ", ".join(f"{name} {format_bytes(size)}" for name, size in shown.items())
    title = f"Memory of {who_text(known.identity)} as it was last seen"
    return drawing(
        title, f"{said.capitalize()}. {limits_text(plot.limits)}", plot.height_px, parts, class_="wd-plot"
    )


def _time_axis(plot: Plot, across: Scale, end: float, *, is_death: bool) -> Iterator[Markup]:
    bottom, y_text, x_end = plot.y(0), plot.height_px - 8, across(end)
    for offset in time_ticks(across.first - end, across.last - end):
        x = across(end + offset)
        if abs(x - x_end) > _LABEL_SHARE:
            yield _text(x, y_text, offset_text(offset), _anchor(x), "wd-muted")
    if is_death:
        yield element(
            "line", x1=percent(x_end), x2=percent(x_end), y1=plot.y(1) - 8, y2=bottom, class_="wd-death-line"
        )
    yield _text(x_end, y_text, "death" if is_death else "last seen", _anchor(x_end), "wd-death-text")


def _points(
    samples: Sequence[MemorySample], name: str, across: Scale, up: Scale
) -> list[tuple[float, float]]:
    sizes = [(across(each.at), getattr(each, _SERIES[name])) for each in samples]
    points = [(x, up(size)) for x, size in sizes if size is not None and size >= 0]
    return thin(points, _COLUMNS, lambda point: point[0], lambda point: point[1])


def _line(name: str, points: Sequence[tuple[float, float]], plot: Plot) -> list[Markup]:
    """
    The line of one kind of memory; managed memory is an area, as it is part of the process.
    """
    if not points or max(y for _, y in points) < _LEAST_SHARE:
        return []
    class_ = f"wd-{name.replace(' ', '-')}"
    scaled = [(1000 * x, PLOT_PX * (1 - y)) for x, y in points]
    inside = []
    if name == "managed":
        area = [*scaled, (scaled[-1][0], float(PLOT_PX)), (scaled[0][0], float(PLOT_PX))]
        inside.append(element("path", d=path(area, closed=True), class_=f"wd-area {class_}"))
    inside.append(
        element("path", d=path(scaled), vector_effect="non-scaling-stroke", class_=f"wd-line {class_}")
    )
    lines = element(
        "svg",
        *inside,
        y=plot.top_px,
        width="100%",
        height=PLOT_PX,
        viewBox=f"0 0 1000 {PLOT_PX}",
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


def _text(x: float, y: float, text: str, anchor: str, class_: str) -> Markup:
    return element("text", text, x=percent(x), y=y, text_anchor=anchor, class_=class_)


def _legend(samples: Sequence[MemorySample], peak_bytes: int | None, up: Scale) -> Iterator[tuple[str, str]]:
    for name, attribute in _SERIES.items():
        sizes = [size for each in samples if (size := getattr(each, attribute)) is not None]
        peak = f", peak {format_bytes(peak_bytes)}" if name == "control group" and peak_bytes else ""
        if sizes and (name == "process" or peak or up(max(sizes)) >= _LEAST_SHARE):
            yield name.replace(" ", "-"), f"{name} {format_bytes(sizes[-1])}{peak}"


def _growth_text(samples: Sequence[MemorySample]) -> str:
    parts = []
    for name, attribute in _SERIES.items():
        sizes = [size for each in samples if (size := getattr(each, attribute)) is not None]
        if len(sizes) > 1 and any(sizes):
            parts.append(f"{name} {format_bytes(sizes[0])} to {format_bytes(sizes[-1])}")
    return ", ".join(parts) or "one value"


def _notes(known: ProcessHistory, samples: Sequence[MemorySample], *, is_course: bool) -> Iterator[str]:
    last, when = samples[-1], known.when
    if not known.recorded:
        yield (
            "These moments are from logs, events and heartbeats. The flight recorder samples each second: "
            "`workerdiag.install(client)`."
        )
    elif when is not None and when - last.at >= _STALE_S:
        ago = offset_text(when - last.at).lstrip("+")
        yield f"The last sample was taken {ago} before the end; what came after it is not drawn."
    if not is_course and when is not None and last.at < when - 1:
        yield f"Seen {offset_text(when - last.at).lstrip('+')} before the death."
    limits = known.limits
    if limits.worker_bytes and not (limits.pause_fraction or limits.spill_fraction):
        yield "At how much memory the worker spills and pauses is not known, or it never does."
    if not limits.worker_bytes and not limits.group_bytes:
        yield "No limit is known."


def _row(sample: MemorySample, when: float | None) -> tuple[str, ...]:
    at = offset_text(sample.at - when) if when is not None else format_time(sample.at)
    sizes = (getattr(sample, attribute) for attribute in _SERIES.values())
    return (at, *("" if size is None else format_bytes(size) for size in sizes))
