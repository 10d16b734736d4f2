"""
Memory of the first victim, by time or as it was last seen, against every limit that applied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import frozen

from workerdiag.model.diagnosis import Findings
from workerdiag.model.identity import Identity
from workerdiag.model.timeline import MemoryLimits, MemorySample, ProcessHistory
from workerdiag.rendering.drawing.scale import Scale, byte_ticks, offset_text, spread, thin, time_ticks
from workerdiag.rendering.drawing.svg import Figure, drawing, element, path, percent
from workerdiag.rendering.wording import identity_text
from workerdiag.units import format_bytes, format_time

if TYPE_CHECKING:
    from markupsafe import Markup

#: Height of the drawing in pixels, and of its parts above and below the plot.
HEIGHT_PX, TOP_PX, BOTTOM_PX = 264, 40, 28
_PLOT_PX = HEIGHT_PX - TOP_PX - BOTTOM_PX
#: Labels of limits keep this distance.
_LABEL_PX = 15
#: Pixels of a wide screen: more points than two for each cannot be told apart.
_COLUMNS = 800
#: So few samples are also drawn as dots.
_MAX_DOTS = 16
_MAX_ROWS = 20
#: What happened after the last sample is missing from this many seconds on.
_STALE_S = 0.3

#: Attribute of a sample, by the name that readers know it under; each is a class of the style sheet too.
_SERIES: Mapping[str, str] = {
    "process": "process_bytes",
    "managed": "managed_bytes",
    "spilled": "spilled_bytes",
    "control group": "group_bytes",
}


@frozen(kw_only=True)
class Limit:
    """
    A line that memory was not to cross.
    """

    label: str
    size_bytes: int
    #: Class of the style sheet: ``hard`` ends the process, ``soft`` slows it down.
    kind: str


def memory_figure(findings: Findings) -> Figure | None:
    """
    The memory of the first process of which any is known; None where nobody told of memory.
    """
    histories = findings.timeline.histories
    known = next((each for each in histories if _has_memory(each)), None) or _history_of_a_death(findings)
    if known is None:
        return None
    samples = [each for each in known.samples if _values(each)]
    limits = list(_limits(known.limits))
    times = {each.at for each in samples if each.process_bytes is not None or each.group_bytes is not None}
    is_course = len(times) > 1
    draw = _course if is_course else _last_seen
    return Figure(
        title=f"Memory of {_who(known.identity)}",
        svg=draw(known, samples, limits),
        legend=tuple(_legend(samples, known.group_peak_bytes)),
        notes=tuple(_notes(known, samples, is_course=is_course)),
        columns=("Time", *(name.capitalize() for name in _SERIES)),
        rows=tuple(_row(each, known.when) for each in samples[-_MAX_ROWS:]),
    )


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


def _who(identity: Identity) -> str:
    return identity.worker or identity_text(identity)


def _values(sample: MemorySample) -> list[int]:
    known = (getattr(sample, attribute) for attribute in _SERIES.values())
    return [each for each in known if each is not None and each >= 0]


def _limits(limits: MemoryLimits) -> Iterator[Limit]:
    """
    The lines, those that end a process first.
    """
    worker, group = limits.worker_bytes, limits.group_bytes
    if worker and worker == group:
        yield Limit(label="limit, also of the control group", size_bytes=worker, kind="hard")
    else:
        if group and group > 0:
            yield Limit(label="limit of the control group", size_bytes=group, kind="hard")
        if worker and worker > 0:
            yield Limit(label="limit", size_bytes=worker, kind="hard")
    shares = (
        ("terminate", limits.terminate_fraction, "hard"),
        ("pause", limits.pause_fraction, "soft"),
        ("spill", limits.spill_fraction, "soft"),
    )
    for name, share, kind in shares:
        if share and worker and worker > 0:
            yield Limit(label=f"{name} at {share:.0%}", size_bytes=int(worker * share), kind=kind)


def _most(known: ProcessHistory, samples: Sequence[MemorySample], limits: Sequence[Limit]) -> int:
    values = [value for each in samples for value in _values(each)]
    return max([*values, *(each.size_bytes for each in limits), known.group_peak_bytes or 0, 1])


def _course(known: ProcessHistory, samples: Sequence[MemorySample], limits: Sequence[Limit]) -> Markup:
    """
    Memory as lines over time, up to the death.
    """
    end = known.when if known.when is not None else samples[-1].at
    across = Scale(samples[0].at, max(end, samples[-1].at))
    up = Scale(0, _most(known, samples, limits))
    parts = [*_grid(up), *_time_axis(across, end, known.when is not None)]
    for name in ("control group", "managed", "spilled", "process"):
        points = _points(samples, name, across, up)
        parts += _line(name, points)
    if known.group_peak_bytes:
        parts.append(_dot("control-group", across(end), up(known.group_peak_bytes)))
    parts += _limit_lines(limits, up)
    first, last = samples[0], samples[-1]
    text = f"In {offset_text(last.at - first.at).lstrip('+')} before the end: {_growth_text(samples)}."
    return drawing(
        f"Memory of {_who(known.identity)} by time", f"{text} {_limits_text(limits)}", HEIGHT_PX, parts
    )


def _last_seen(known: ProcessHistory, samples: Sequence[MemorySample], limits: Sequence[Limit]) -> Markup:
    """
    Memory as it was last seen, as bars.
    """
    last = samples[-1]
    bars = {name: getattr(last, attribute) for name, attribute in _SERIES.items()}
    shown = {name: size for name, size in bars.items() if size is not None and size >= 0}
    up = Scale(0, _most(known, samples, limits))
    parts = _grid(up)
    # Labels of limits stand in the left half.
    width = 0.5 / len(shown)
    for number, (name, size) in enumerate(shown.items()):
        left, high = 0.5 + number * width, up(size) * _PLOT_PX
        parts.append(
            element(
                "rect",
                x=percent(left + width * 0.14),
                y=TOP_PX + _PLOT_PX - high,
                width=percent(width * 0.72),
                height=max(high, 1.0),
                class_=f"wd-bar wd-{name.replace(' ', '-')}",
            )
        )
        parts.append(_text(left + width / 2, HEIGHT_PX - 8, name, "middle", "wd-muted"))
    parts += _limit_lines(limits, up)
    said = ", ".join(f"{name} {format_bytes(size)}" for name, size in shown.items())
    title = f"Memory of {_who(known.identity)} as it was last seen"
    return drawing(title, f"{said.capitalize()}. {_limits_text(limits)}", HEIGHT_PX, parts)


def _grid(up: Scale) -> list[Markup]:
    """
    Thin lines at round sizes, each with its label in the margin.
    """
    parts = []
    for size in byte_ticks(up.last):
        y = _y(up(size))
        parts.append(element("line", x1="0", x2="100%", y1=y, y2=y, class_="wd-grid"))
        label = format_bytes(size) if size else "0"
        parts.append(element("text", label, x=-8, y=y + 4, text_anchor="end", class_="wd-muted"))
    return parts


def _time_axis(across: Scale, end: float, is_death: bool) -> list[Markup]:  # noqa: FBT001  its caller's own flag
    parts = []
    for offset in time_ticks(across.first - end, across.last - end):
        x = across(end + offset)
        if offset and abs(x - across(end)) > 0.12:
            parts.append(_text(x, HEIGHT_PX - 8, offset_text(offset), _anchor(x), "wd-muted"))
    x = across(end)
    if is_death:
        parts.append(
            element(
                "line",
                x1=percent(x),
                x2=percent(x),
                y1=TOP_PX - 8,
                y2=TOP_PX + _PLOT_PX,
                class_="wd-death-line",
            )
        )
    parts.append(_text(x, HEIGHT_PX - 8, "death" if is_death else "last seen", _anchor(x), "wd-death-text"))
    return parts


def _points(
    samples: Sequence[MemorySample], name: str, across: Scale, up: Scale
) -> list[tuple[float, float]]:
    sizes = [(across(each.at), getattr(each, _SERIES[name])) for each in samples]
    points = [(x, up(size)) for x, size in sizes if size is not None and size >= 0]
    return thin(points, _COLUMNS, lambda point: point[0], lambda point: point[1])


def _line(name: str, points: Sequence[tuple[float, float]]) -> list[Markup]:
    """
    The line of one kind of memory; managed memory is an area, as it is part of the process.
    """
    if not points or all(y == 0 for _, y in points):
        return []
    class_ = f"wd-{name.replace(' ', '-')}"
    scaled = [(1000 * x, _PLOT_PX * (1 - y)) for x, y in points]
    inside = []
    if name == "managed":
        area = [*scaled, (scaled[-1][0], float(_PLOT_PX)), (scaled[0][0], float(_PLOT_PX))]
        inside.append(element("path", d=path(area, closed=True), class_=f"wd-area {class_}"))
    inside.append(
        element("path", d=path(scaled), vector_effect="non-scaling-stroke", class_=f"wd-line {class_}")
    )
    plot = element(
        "svg",
        *inside,
        y=TOP_PX,
        width="100%",
        height=_PLOT_PX,
        viewBox=f"0 0 1000 {_PLOT_PX}",
        preserveAspectRatio="none",
        overflow="visible",
    )
    dots = [_dot(name.replace(" ", "-"), x, y) for x, y in points] if len(points) <= _MAX_DOTS else []
    return [plot, *dots]


def _dot(class_: str, x: float, y: float) -> Markup:
    return element("circle", cx=percent(x), cy=_y(y), r=2.5, class_=f"wd-dot wd-{class_}")


def _limit_lines(limits: Sequence[Limit], up: Scale) -> Iterator[Markup]:
    """
    A line for each limit, its label above it; labels that would touch move up.
    """
    lowest_first = sorted(limits, key=lambda each: each.size_bytes)
    heights = spread([_y(up(each.size_bytes)) - 4 for each in lowest_first], _LABEL_PX)
    for limit, y_text in zip(lowest_first, heights, strict=True):
        y = _y(up(limit.size_bytes))
        yield element("line", x1="0", x2="100%", y1=y, y2=y, class_=f"wd-limit wd-{limit.kind}")
        label = f"{limit.label}, {format_bytes(limit.size_bytes)}"
        yield element("text", label, x=4, y=y_text, class_=f"wd-limit-text wd-{limit.kind}")


def _y(share: float) -> float:
    return TOP_PX + _PLOT_PX * (1 - share)


def _anchor(x: float) -> str:
    if x < 0.08:
        return "start"
    return "end" if x > 0.92 else "middle"


def _text(x: float, y: float, text: str, anchor: str, class_: str) -> Markup:
    return element("text", text, x=percent(x), y=y, text_anchor=anchor, class_=class_)


def _legend(samples: Sequence[MemorySample], peak_bytes: int | None) -> Iterator[tuple[str, str]]:
    for name, attribute in _SERIES.items():
        sizes = [size for each in samples if (size := getattr(each, attribute)) is not None]
        if sizes and (name in ("process", "control group") or any(sizes)):
            yield name.replace(" ", "-"), f"{name} {format_bytes(sizes[-1])}"
    if peak_bytes:
        yield "control-group", f"peak of the control group {format_bytes(peak_bytes)}"


def _growth_text(samples: Sequence[MemorySample]) -> str:
    parts = []
    for name, attribute in _SERIES.items():
        sizes = [size for each in samples if (size := getattr(each, attribute)) is not None]
        if len(sizes) > 1 and any(sizes):
            parts.append(f"{name} {format_bytes(sizes[0])} to {format_bytes(sizes[-1])}")
    return ", ".join(parts) or "one value"


def _limits_text(limits: Sequence[Limit]) -> str:
    if not limits:
        return "No limit is known."
    return "Limits: " + ", ".join(f"{each.label}, {format_bytes(each.size_bytes)}" for each in limits) + "."


def _notes(known: ProcessHistory, samples: Sequence[MemorySample], *, is_course: bool) -> Iterator[str]:
    last, when = samples[-1], known.when
    if not known.recorded:
        yield (
            "Logs, events and heartbeats told this; the flight recorder, which samples each second, was off: "
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
