"""
Memory of the first victim, by time or as it was last seen, against every limit that applied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from workerdiag.model.diagnosis import Findings
from workerdiag.model.timeline import MemoryLimits, MemorySample, ProcessHistory
from workerdiag.rendering.drawing.memory_lines import LEAST_SHARE, SERIES, draw_course, draw_last_seen
from workerdiag.rendering.drawing.moments import who_text
from workerdiag.rendering.drawing.plot import Limit, Plot, limits_of
from workerdiag.rendering.drawing.scale import Scale, offset_text
from workerdiag.rendering.drawing.svg import Figure
from workerdiag.rendering.wording import clip
from workerdiag.units import format_bytes, format_time

_MAX_ROWS, _MAX_NAME_CHARS = 20, 80
#: What happened after the last sample is missing from this many seconds on.
_STALE_S = 0.3
#: What was seen within less time is no course, nor are readings that are further apart, in seconds.
_LEAST_S, _MAX_APART_S = 0.2, 30.0


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
    draw = draw_course if is_course else draw_last_seen
    plot = Plot.of(_most(known, samples, limits), limits)
    return Figure(
        title=f"Memory of {clip(who_text(known.identity), _MAX_NAME_CHARS)}",
        svg=draw(known, samples, plot),
        legend=tuple(_legend(samples, known.group_peak_bytes, plot.up)),
        notes=tuple(_notes(known, samples, is_course=is_course)),
        columns=("Time", *(name.capitalize() for name in SERIES)),
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
    known = (getattr(sample, attribute) for attribute in SERIES.values())
    return [each for each in known if each is not None and each >= 0]


def _most(known: ProcessHistory, samples: Sequence[MemorySample], limits: Sequence[Limit]) -> int:
    values = [value for each in samples for value in _values(each)]
    return max([*values, *(each.size_bytes for each in limits), known.group_peak_bytes or 0, 1])


def _legend(samples: Sequence[MemorySample], peak_bytes: int | None, up: Scale) -> Iterator[tuple[str, str]]:
    for name, attribute in SERIES.items():
        sizes = [size for each in samples if (size := getattr(each, attribute)) is not None]
        peak = f", peak {format_bytes(peak_bytes)}" if name == "control group" and peak_bytes else ""
        if sizes and (name == "process" or peak or up(max(sizes)) >= LEAST_SHARE):
            yield name.replace(" ", "-"), f"{name} {format_bytes(sizes[-1])}{peak}"


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
    sizes = (getattr(sample, attribute) for attribute in SERIES.values())
    return (at, *("" if size is None else format_bytes(size) for size in sizes))
