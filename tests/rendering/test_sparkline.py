"""Memory over time in one line, for issues and chat."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from support.findings import explained, no_death
from workerdiag.model.identity import Identity
from workerdiag.model.timeline import MemoryLimits, MemorySample, ProcessHistory, Timeline
from workerdiag.rendering.markdown import render_markdown
from workerdiag.rendering.sparkline import sparkline

MIB = 2**20


def grown(*sizes_mib, **changes):
    """A worker that held so many MiB, second by second."""
    samples = tuple(
        MemorySample(at=100.0 + second, process_bytes=size * MIB) for second, size in enumerate(sizes_mib)
    )
    limits = MemoryLimits(worker_bytes=400 * MIB)
    arguments = {"identity": Identity(worker="tcp://10.0.0.4:34937"), "samples": samples, "limits": limits}
    return explained(timeline=Timeline(histories=(ProcessHistory(**(arguments | changes)),)))


def test_growth_towards_the_limit_is_seen_in_one_line():
    """A reader of an issue sees how fast memory grew, up to which limit, and of whom."""
    text = render_markdown(grown(40, 120, 250, 398))
    assert "**Memory:** `▁▃▆█` 40 MiB to 398 MiB of 400 MiB allowed, in 3 seconds:" in text
    assert "10.0.0.4:34937" in text.partition("in 3 seconds:")[2].splitlines()[0]


def test_half_of_the_limit_is_half_as_high():
    """The limit is the full height, so that two workers can be compared."""
    assert "`▅▅`" in render_markdown(grown(200, 200))


def test_what_took_part_of_a_second_took_less_than_a_second():
    """Not no time at all, as a pause and a kill may follow at once."""
    samples = tuple(MemorySample(at=100.0 + at, process_bytes=200 * MIB) for at in (0.0, 0.3))
    assert "allowed, in less than a second:" in render_markdown(grown(samples=samples))


def test_without_samples_the_report_says_so_and_how_to_get_them():
    """Nothing is drawn from nothing, and nobody has to guess why it is missing."""
    text = render_markdown(explained())
    assert "**Memory:** not sampled before the death; `workerdiag" in text


def test_where_nothing_died_memory_is_no_topic():
    """A task that raised has no curve, and none is missing."""
    assert "Memory" not in render_markdown(no_death())


@given(st.lists(st.tuples(st.floats(0, 1e9), st.integers(0, 2**50)), min_size=2, max_size=300))
def test_any_samples_make_one_short_line_of_blocks(points):
    """Whatever was sampled, the line has at most 32 columns and nothing but blocks and gaps."""
    line = sparkline(sorted(points), 2**30)
    assert 2 <= len(line) <= 32
    assert set(line) <= set("▁▂▃▄▅▆▇█·")
