"""Memory of the first victim, by time or as it was last seen, against every limit that applied; others small."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from workerdiag.model.diagnosis import Findings
from workerdiag.model.memory import MemoryAccount
from workerdiag.model.timeline import MemoryLimits, MemorySample, Moment, ProcessHistory
from workerdiag.rendering.drawing import (
    Figure,
    Limit,
    Plot,
    Scale,
    drawing,
    element,
    grid,
    limit_lines,
    limits_of,
    limits_text,
    offset_text,
    path,
    percent,
    thin,
    time_ticks,
)
from workerdiag.rendering.task_timeline import who_text
from workerdiag.rendering.wording import clip, one_line
from workerdiag.units import format_bytes, format_time
from workerdiag.values import frozen

if TYPE_CHECKING:
    from markupsafe import Markup

#: Victims whose memory is drawn, at most, and the height of the plots of all but the first, in pixels.
MAX_VICTIMS, _SMALL_PX = 6, 96
#: Minimum time span of a curve, and maximum distance of readings, in seconds.
_LEAST_S, _MAX_APART_S = 0.2, 30.0
#: How Dask says at which share of its limit a worker paused.
_PAUSED_AT = re.compile(r"\bat (\d+%) memory usage")


def memory_figure(findings: Findings) -> Figure | None:
    """Return the drawing of the memory of the first process with samples, and small ones of others; or None."""
    memories = [_Memory(each) for each in _histories_to_draw(findings)]
    drawable = [each for each in memories if each.is_course or each.limits][:MAX_VICTIMS]  # else it is one number
    if not drawable:
        return None
    first, *others = drawable
    plot = Plot.of(first.most_bytes, first.limits)
    most = max(each.most_bytes for each in drawable)
    return Figure(
        title=f"Memory of {_name_text(first.known)}",
        svg=first.draw(plot),
        legend=tuple(_legend(first.samples, first.known.group_peak_bytes, plot.up)),
        notes=(
            *_notes(first.known, first.samples, is_course=first.is_course),
            *_limit_notes(first.known, findings.timeline.moments),
        ),
        columns=("Time", *(name.capitalize() for name in SERIES)),
        rows=tuple(_sample_cells(each, first.known.when) for each in first.samples[-20:]),
        small=tuple((_caption(each.known, first.known), each.draw(each.small_plot(most))) for each in others),
    )


#: Height of a row of the account, of its bar, and of the line of text above the bar.
_ROW_PX, _PART_PX, _TEXT_PX = 36, 10, 14


def account_figure(account: MemoryAccount | None) -> Figure | None:
    """Return the drawing of what filled the limit: a bar for each part of what tasks need; or None."""
    if account is None or account.task_bytes is None or not account.limit.bytes:
        return None
    tasks = account.tasks_at_once or 1
    times = f"{tasks} x " if tasks > 1 else ""
    parts = [
        ("before any task", account.floor.bytes or 0),
        (f"{times}inputs", tasks * (account.inputs.bytes or 0)),
        (f"{times}output", tasks * (account.output.bytes or 0)),
        (f"{times}copies", tasks * (account.copies.bytes or 0)),
    ]
    rows = [*parts, ("in all", sum(size for _, size in parts))]
    limit = account.limit.bytes
    most = max(limit, rows[-1][1])
    text = f"{format_bytes(rows[-1][1])} needed, the limit is {format_bytes(limit)}"
    height = _ROW_PX * len(rows)
    at_limit = percent(limit / most)
    drawn: list[Markup] = []
    for number, (name, size) in enumerate(rows):
        y, class_ = number * _ROW_PX + 20, f"wd-chance wd-{'top' if name == 'in all' else 'other'}"
        drawn += (
            element("text", f"{name}: {format_bytes(size)}", x=0, y=number * _ROW_PX + _TEXT_PX),
            element("rect", y=y, width="100%", height=_PART_PX, rx=2, class_="wd-track"),
            element("rect", y=y, width=percent(size / most), height=_PART_PX, rx=2, class_=class_),
        )
    drawn.append(element("line", x1=at_limit, x2=at_limit, y1=0, y2=height, class_="wd-limit wd-hard"))
    return Figure(
        title="What filled the limit",
        svg=drawing(text, "A bar for each part, and a line at the limit", height, drawn),
        notes=(
            f"The line is the limit of {format_bytes(limit)}.",
            *((one_line(account.step),) if account.step else ()),
        ),
        columns=("Part", "Bytes"),
        rows=tuple((name, format_bytes(size)) for name, size in rows),
    )


@frozen
class _Memory:
    known: ProcessHistory

    @cached_property
    def samples(self) -> tuple[MemorySample, ...]:
        """Those with memory in them."""
        return tuple(each for each in self.known.samples if _values(each))

    @cached_property
    def limits(self) -> tuple[Limit, ...]:
        return tuple(limits_of(self.known.limits))

    @property
    def is_course(self) -> bool:
        """Whether a line between the samples shows how memory changed, rather than a guess."""
        told = [each for each in self.samples if each.process_bytes is not None or each.group_bytes is not None]
        times = sorted({each.at for each in told})
        if not times or times[-1] - times[0] < _LEAST_S:
            return False
        return self.known.recorded or all(after - before <= _MAX_APART_S for before, after in pairwise(times))

    @property
    def most_bytes(self) -> int:
        """The largest size to draw."""
        values = [value for each in self.samples for value in _values(each)]
        sizes = [each.size_bytes for each in self.limits]
        return max([*values, *sizes, self.known.group_peak_bytes or 0, 1])

    def small_plot(self, most_bytes: int) -> Plot:
        """A small one, up to *most_bytes*, with the first limit that ends a process."""
        hard = [each for each in self.limits if each.kind == "hard"]
        return Plot.of(most_bytes, sorted(hard, key=lambda each: each.size_bytes)[:1], _SMALL_PX)

    def draw(self, plot: Plot) -> Markup:
        """The drawing."""
        return (draw_course if self.is_course else draw_last_seen)(self.known, self.samples, plot)


def _name_text(known: ProcessHistory) -> str:
    return clip(who_text(known.identity), 80)


def _caption(known: ProcessHistory, first: ProcessHistory) -> str:
    if known.when is None or first.when is None:
        return _name_text(known)
    later_s = known.when - first.when
    distance = offset_text(abs(later_s)).lstrip("+")
    return f"{_name_text(known)}, died {distance} {'earlier' if later_s < 0 else 'later'}"


def _histories_to_draw(findings: Findings) -> list[ProcessHistory]:
    """Histories with memory, in the order of the deaths but first one with a limit; else what a death tells."""
    if findings.outcome == "no-death":
        return []
    told = [
        history
        for history in findings.timeline.histories
        if any(each.process_bytes or each.group_bytes for each in history.samples)
    ]
    if not told:
        return list(_history_of_a_death(findings))
    first = next((each for each in told if each.limits.worker_bytes or each.limits.group_bytes), told[0])
    return [first, *(each for each in told if each is not first)]


def _history_of_a_death(findings: Findings) -> Iterator[ProcessHistory]:
    """The first death whose memory is known without a time."""
    for death in [each for each in findings.deaths if each.rss_bytes][:1]:
        samples = (MemorySample(at=death.when or 0.0, process_bytes=death.rss_bytes),)
        limits = MemoryLimits(worker_bytes=death.limit_bytes)
        yield ProcessHistory(identity=death.identity, samples=samples, limits=limits, when=death.when)


def _values(sample: MemorySample) -> list[int]:
    known = (getattr(sample, attribute) for attribute in SERIES.values())
    return [each for each in known if each is not None]


def _sizes(samples: Iterable[MemorySample], name: str) -> list[int]:
    return [size for each in samples if (size := getattr(each, SERIES[name])) is not None]


def _legend(samples: Sequence[MemorySample], peak_bytes: int | None, up: Scale) -> Iterator[tuple[str, str]]:
    for name in SERIES:
        sizes = _sizes(samples, name)
        peak = f", peak {format_bytes(peak_bytes)}" if name == "control group" and peak_bytes else ""
        if sizes and (name == "process" or peak or is_visible(sizes, up)):
            yield name.replace(" ", "-"), f"{name} {format_bytes(sizes[-1])}{peak}"


def _notes(known: ProcessHistory, samples: Sequence[MemorySample], *, is_course: bool) -> Iterator[str]:
    last, when = samples[-1], known.when
    if not known.recorded:
        sampled = "The flight recorder samples each second: `workerdiag.install(client)`."
        yield f"The values are from logs, events and heartbeats. {sampled}"
    elif when is not None and when - last.at >= 0.3:  # a sample is missing
        ago = offset_text(when - last.at).lstrip("+")
        yield f"The last sample was taken {ago} before the end; what came after it is not drawn."
    if not is_course and when is not None and last.at < when - 1:
        yield f"Seen {offset_text(when - last.at).lstrip('+')} before the death."


def _limit_notes(known: ProcessHistory, moments: Iterable[Moment]) -> Iterator[str]:
    """What is not known about limits, besides what the log says about a pause."""
    limits = known.limits
    if not limits.worker_bytes and not limits.group_bytes:
        yield "No limit is known."
    if not limits.worker_bytes or limits.pause_fraction or limits.spill_fraction:
        return
    paused = [each for each in moments if each.kind == "pause" and each.identity.same_process(known.identity)]
    if not paused:
        yield "The thresholds for spilling and pausing are unknown or disabled."
    elif share := _PAUSED_AT.search(paused[-1].text):
        yield f"The worker paused at {share[1]} of its limit. Its threshold for spilling is unknown or disabled."
    else:
        yield "The worker paused. Its thresholds for pausing and spilling are unknown."


def _sample_cells(sample: MemorySample, when: float | None) -> tuple[str, ...]:
    at = offset_text(sample.at - when) if when is not None else format_time(sample.at)
    sizes = (getattr(sample, attribute) for attribute in SERIES.values())
    return (at, *("" if size is None else format_bytes(size) for size in sizes))


_BAR_PX = 48
#: What is less than this share of the plot cannot be seen.
_LEAST_SHARE = 0.003
#: Pixels of a wide screen: more than two points per pixel cannot be distinguished.
_COLUMNS = 800
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
        parts += _line(name, samples, across, plot)
    if known.group_peak_bytes:
        parts.append(_dot("control-group", across(end), plot.y(plot.up(known.group_peak_bytes))))
    parts += limit_lines(plot)
    span = offset_text(samples[-1].at - samples[0].at).lstrip("+")
    text = f"In {span} before the end: {_growth_text(samples, plot.up)}. {limits_text(plot.limits)}"
    return drawing(f"Memory of {who_text(known.identity)} by time", text, plot.height_px, parts, class_="wd-plot")


def draw_last_seen(known: ProcessHistory, samples: Sequence[MemorySample], plot: Plot) -> Markup:
    """Memory as it was last seen, as bars."""
    last = {name: sizes[-1] for name in SERIES if (sizes := _sizes(samples, name))}
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
    count, room = (2, _SMALL_LABEL_SHARE) if plot.plot_px == _SMALL_PX else (4, _LABEL_SHARE)
    for offset in time_ticks(across.first - end, across.last - end, count):
        x = across(end + offset)
        if abs(x - x_end) > room:
            yield _label(x, y_text, offset_text(offset), _anchor(x), "wd-muted")
    if is_death:
        yield element(
            "line", x1=percent(x_end), x2=percent(x_end), y1=plot.y(1) - 8, y2=bottom, class_="wd-death-line"
        )
    yield _label(x_end, y_text, "death" if is_death else "last seen", _anchor(x_end), "wd-death-text")


def _line(name: str, samples: Sequence[MemorySample], across: Scale, plot: Plot) -> list[Markup]:
    """The line of one kind of memory; managed memory is an area, as it is part of the process."""
    sizes = [(across(each.at), getattr(each, SERIES[name])) for each in samples]
    points = thin([(x, plot.up(size)) for x, size in sizes if size is not None], _COLUMNS)
    if not points or max(y for _, y in points) < _LEAST_SHARE:
        return []
    class_ = f"wd-{name.replace(' ', '-')}"
    scaled = [(1000 * x, plot.plot_px * (1 - y)) for x, y in points]
    inside = []
    if name == "managed":
        area = [*scaled, (scaled[-1][0], float(plot.plot_px)), (scaled[0][0], float(plot.plot_px))]
        inside.append(element("path", d=path(area, closed=True), class_=f"wd-area {class_}"))
    inside.append(element("path", d=path(scaled), vector_effect="non-scaling-stroke", class_=f"wd-line {class_}"))
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
    dots = points if len(points) <= 16 else []
    return [lines, *(_dot(name.replace(" ", "-"), x, plot.y(y)) for x, y in dots)]


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
    for name in SERIES:
        sizes = _sizes(samples, name)
        if len(sizes) > 1 and is_visible(sizes, up):
            parts.append(f"{name} {format_bytes(sizes[0])} to {format_bytes(sizes[-1])}")
    return ", ".join(parts) or "one value"
