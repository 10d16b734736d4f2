"""Memory over time in one line of text: eight heights of blocks, for issues and chat."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from workerdiag.model.diagnosis import Findings
from workerdiag.model.timeline import ProcessHistory
from workerdiag.rendering.wording import identity_text
from workerdiag.units import format_bytes, format_duration

#: Heights of a column (Unicode's block elements), and what stands for a time without a sample.
_HEIGHTS, _NO_SAMPLE = "▁▂▃▄▅▆▇█", "·"
_COLUMNS = 32
#: Workers that are shown; more of them say the same.
_MAX_WORKERS = 3
#: The text instead of memory over time if there is none.
NOT_SAMPLED = "not sampled before the death; `workerdiag.install(client)` makes each worker sample it"


def sparkline(points: Sequence[tuple[float, int]], top: int) -> str:
    """The *points* (seconds, value; oldest first) in columns of equal time; *top* takes the full height."""
    begin, end = points[0][0], points[-1][0]
    width = min(_COLUMNS, max(len(points), 2))
    step = (end - begin) / width or 1.0
    columns: list[int | None] = [None] * width
    for at, value in points:
        index = min(int((at - begin) / step), width - 1)
        columns[index] = max(columns[index] or 0, value)
    return blocks(columns, top)


def blocks(columns: Iterable[int | None], top: int) -> str:
    """A block for each column, as high as its value; a dot for None."""
    most, step = len(_HEIGHTS), max(top, 1)
    return "".join(
        _NO_SAMPLE if value is None else _HEIGHTS[min(int(value / step * most), most - 1)] for value in columns
    )


def memory_lines(findings: Findings) -> list[tuple[str, str]]:
    """Return for each dead worker a sparkline with its description; without samples, that there are none."""
    shown = [line for each in findings.timeline.histories if (line := _history_line(each)) is not None]
    return shown[:_MAX_WORKERS] or ([("", NOT_SAMPLED)] if is_unsampled(findings) else [])


def is_unsampled(findings: Findings) -> bool:
    """Whether workers died, other than as asked, and the flight recorder sampled the memory of none of them."""
    if findings.outcome == "no-death" or not findings.deaths:
        return False
    return not any(each.recorded for each in findings.timeline.histories)


def _history_line(history: ProcessHistory) -> tuple[str, str] | None:
    points = [(each.at, each.process_bytes) for each in history.samples if each.process_bytes is not None]
    if len(points) < 2 or points[-1][0] <= points[0][0]:
        return None
    limits = [each for each in (history.limits.worker_bytes, history.limits.group_bytes) if each]
    limit, most = min(limits, default=None), max(value for _, value in points)
    words = f"{format_bytes(points[0][1])} to {format_bytes(most)}"
    of_limit = f" of {format_bytes(limit)} allowed" if limit else ""
    span_s = points[-1][0] - points[0][0]
    span = format_duration(span_s) if round(span_s) else "less than a second"
    line = sparkline(points, max(limit or 0, most))
    return line, f"{words}{of_limit}, in {span}: {identity_text(history.identity)}"
