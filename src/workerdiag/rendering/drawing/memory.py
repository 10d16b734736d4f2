"""Memory of the first victim, by time or as it was last seen, against every limit that applied; others small."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from attrs import field, frozen

from workerdiag.model.diagnosis import Findings
from workerdiag.model.timeline import MemoryLimits, MemorySample, Moment, ProcessHistory
from workerdiag.rendering.drawing.memory_lines import SERIES, draw_course, draw_last_seen, is_visible
from workerdiag.rendering.drawing.moments import who_text
from workerdiag.rendering.drawing.plot import Limit, Plot, limits_of
from workerdiag.rendering.drawing.scale import Scale, offset_text
from workerdiag.rendering.drawing.svg import Figure
from workerdiag.rendering.wording import clip
from workerdiag.units import format_bytes, format_time

if TYPE_CHECKING:
    from markupsafe import Markup

#: Victims whose memory is drawn, at most, and the height of the plots of all but the first, in pixels.
MAX_VICTIMS, _SMALL_PX = 6, 96
_MAX_ROWS, _MAX_NAME_CHARS = 20, 80
#: Seconds after the last sample from which memory counts as missing.
_STALE_S = 0.3
#: Minimum time span of a curve, and maximum distance of readings, in seconds.
_LEAST_S, _MAX_APART_S = 0.2, 30.0
#: How Dask says at which share of its limit a worker paused.
_PAUSED_AT = re.compile(r"\bat (\d+%) memory usage")


def memory_figure(findings: Findings) -> Figure | None:
    """Return the drawing of the memory of the first process with samples, and small ones of others; or None."""
    drawable = [each for known in _histories_to_draw(findings) if (each := _Memory(known)).is_worth_drawing]
    if not drawable:
        return None
    first, others = drawable[0], drawable[1:MAX_VICTIMS]
    plot = first.plot()
    most = max(each.most_bytes for each in drawable[:MAX_VICTIMS])
    return Figure(
        title=f"Memory of {_name_text(first.known)}",
        svg=first.draw(plot),
        legend=tuple(_legend(first.samples, first.known.group_peak_bytes, plot.up)),
        notes=(
            *_notes(first.known, first.samples, is_course=first.is_course),
            *_limit_notes(first.known, findings.timeline.moments),
        ),
        columns=("Time", *(name.capitalize() for name in SERIES)),
        rows=tuple(_sample_cells(each, first.known.when) for each in first.samples[-_MAX_ROWS:]),
        small=tuple((_caption(each.known, first.known), each.draw(each.small_plot(most))) for each in others),
    )


@frozen
class _Memory:
    """What can be drawn of one process."""

    known: ProcessHistory
    #: Those with memory in them.
    samples: tuple[MemorySample, ...] = field(init=False)
    limits: tuple[Limit, ...] = field(init=False)

    @samples.default
    def _tell_memory(self) -> tuple[MemorySample, ...]:
        return tuple(each for each in self.known.samples if _values(each))

    @limits.default
    def _find_limits(self) -> tuple[Limit, ...]:
        return tuple(limits_of(self.known.limits))

    @property
    def is_course(self) -> bool:
        """Whether it can be a line."""
        told = [
            each for each in self.samples if each.process_bytes is not None or each.group_bytes is not None
        ]
        return _is_course(sorted({each.at for each in told}), recorded=self.known.recorded)

    @property
    def is_worth_drawing(self) -> bool:
        """Whether there is more to show than one number."""
        return self.is_course or bool(self.limits)

    @property
    def most_bytes(self) -> int:
        """The largest size to draw."""
        values = [value for each in self.samples for value in _values(each)]
        sizes = [each.size_bytes for each in self.limits]
        return max([*values, *sizes, self.known.group_peak_bytes or 0, 1])

    def plot(self) -> Plot:
        """A large plot with all limits."""
        return Plot.of(self.most_bytes, self.limits)

    def small_plot(self, most_bytes: int) -> Plot:
        """A small one, up to *most_bytes*, with the first limit that ends a process."""
        hard = [each for each in self.limits if each.kind == "hard"]
        return Plot.of(most_bytes, sorted(hard, key=lambda each: each.size_bytes)[:1], _SMALL_PX)

    def draw(self, plot: Plot) -> Markup:
        """The drawing."""
        return (draw_course if self.is_course else draw_last_seen)(self.known, self.samples, plot)


def _name_text(known: ProcessHistory) -> str:
    return clip(who_text(known.identity), _MAX_NAME_CHARS)


def _caption(known: ProcessHistory, first: ProcessHistory) -> str:
    if known.when is None or first.when is None:
        return _name_text(known)
    later_s = known.when - first.when
    distance = offset_text(abs(later_s)).lstrip("+")
    return f"{_name_text(known)}, died {distance} {'earlier' if later_s < 0 else 'later'}"


def _is_course(times: Sequence[float], *, recorded: bool) -> bool:
    """Whether a line between these moments shows how memory changed, rather than a guess."""
    if not times or times[-1] - times[0] < _LEAST_S:
        return False
    return recorded or all(after - before <= _MAX_APART_S for before, after in pairwise(times))


def _histories_to_draw(findings: Findings) -> list[ProcessHistory]:
    """Histories with memory, in the order of the deaths but first one with a limit; else what a death tells."""
    if findings.outcome == "no-death":
        return []
    told = [each for each in findings.timeline.histories if _has_memory(each)]
    if not told:
        return list(_history_of_a_death(findings))
    first = next((each for each in told if each.limits.worker_bytes or each.limits.group_bytes), told[0])
    return [first, *(each for each in told if each is not first)]


def _has_memory(history: ProcessHistory) -> bool:
    return any(each.process_bytes or each.group_bytes for each in history.samples)


def _history_of_a_death(findings: Findings) -> Iterator[ProcessHistory]:
    """The first death whose memory is known without a time."""
    for death in [each for each in findings.deaths if each.rss_bytes][:1]:
        yield ProcessHistory(
            identity=death.identity,
            samples=(MemorySample(at=death.when or 0.0, process_bytes=death.rss_bytes),),
            limits=MemoryLimits(worker_bytes=death.limit_bytes),
            when=death.when,
        )


def _values(sample: MemorySample) -> list[int]:
    known = (getattr(sample, attribute) for attribute in SERIES.values())
    return [each for each in known if each is not None]


def _legend(samples: Sequence[MemorySample], peak_bytes: int | None, up: Scale) -> Iterator[tuple[str, str]]:
    for name, attribute in SERIES.items():
        sizes = [size for each in samples if (size := getattr(each, attribute)) is not None]
        peak = f", peak {format_bytes(peak_bytes)}" if name == "control group" and peak_bytes else ""
        if sizes and (name == "process" or peak or is_visible(sizes, up)):
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


def _limit_notes(known: ProcessHistory, moments: Iterable[Moment]) -> Iterator[str]:
    limits = known.limits
    paused = [each for each in moments if each.kind == "pause" and each.identity.same_process(known.identity)]
    if limits.worker_bytes and not (limits.pause_fraction or limits.spill_fraction):
        yield _thresholds_note(paused)
    if not limits.worker_bytes and not limits.group_bytes:
        yield "No limit is known."


def _thresholds_note(paused: Sequence[Moment]) -> str:
    """Return what is not known about spilling and pausing, besides what the log says about a pause."""
    if not paused:
        return "At how much memory the worker spills and pauses is not known, or it never does."
    if share := _PAUSED_AT.search(paused[-1].text):
        paused_at = f"The worker paused at {share[1]} of its limit."
        return f"{paused_at} At how much memory it spills is not known, or it never does."
    return "The worker paused. At how much memory it pauses and spills is not known."


def _sample_cells(sample: MemorySample, when: float | None) -> tuple[str, ...]:
    at = offset_text(sample.at - when) if when is not None else format_time(sample.at)
    sizes = (getattr(sample, attribute) for attribute in SERIES.values())
    return (at, *("" if size is None else format_bytes(size) for size in sizes))
