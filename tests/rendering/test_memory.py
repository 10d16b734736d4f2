"""Memory against the limits that applied."""

from __future__ import annotations

import itertools
import re

import pytest
from attrs import evolve

from support.findings import NOON_ISH, dead, drawn, explained, history, no_death, several_victims, unknown
from workerdiag.model.identity import Identity
from workerdiag.model.memory import MemoryAccount, MemoryTerm
from workerdiag.model.timeline import MemoryLimits, MemorySample, Moment, Timeline
from workerdiag.rendering.html import render_html
from workerdiag.rendering.memory import account_figure, memory_figure


def of(**changes):
    """The drawing of one history."""
    return memory_figure(drawn(timeline=Timeline(histories=(history(**changes),))))


def test_each_known_kind_of_memory_is_drawn_and_named():
    """Process, managed, spilled and control group, each with its last value."""
    figure = of()
    assert [kind for kind, _ in figure.legend] == ["process", "managed", "spilled", "control-group"]
    for kind in ("process", "managed", "spilled", "control-group"):
        assert f'class="wd-line wd-{kind}"' in figure.svg


def test_every_limit_is_a_line_with_its_name():
    """The limit of Dask and of the control group, and where Dask terminates, pauses and spills."""
    svg = of().svg
    labels = " ".join(re.findall('class="wd-limit-text">([^<]*)<', svg))
    for label in (
        "group limit 4.5 GiB",
        "limit 4 GiB",
        "terminate 95% 3.8 GiB",
        "pause 80%",
        "spill 70%",
    ):
        assert label in labels
    assert svg.count('class="wd-limit ') == 5


def test_labels_of_limits_never_touch():
    """Limits that are close to each other are still readable."""
    limits = MemoryLimits(
        worker_bytes=2**30,
        group_bytes=2**30 + 1,
        spill_fraction=0.94,
        pause_fraction=0.95,
        terminate_fraction=0.96,
    )
    svg = of(limits=limits).svg
    heights = sorted(float(y) for y in re.findall(r'y="([\d.]+)" class="wd-limit-text', svg))
    assert " \u00b7 " in svg
    assert all(after - before >= 14 for before, after in itertools.pairwise(heights))


def test_one_limit_for_both_is_one_line():
    """A worker that may have all of its control group has one limit."""
    limits = MemoryLimits(worker_bytes=2**30, group_bytes=2**30)
    svg = of(limits=limits).svg
    assert svg.count('class="wd-limit ') == 1
    assert "worker and group limit" in svg


def test_what_was_seen_once_is_a_bar():
    """One reading makes no line."""
    figure = of(samples=(MemorySample(at=NOON_ISH - 5, process_bytes=2**30),), group_peak_bytes=None)
    assert 'class="wd-bar wd-process"' in figure.svg
    assert "wd-line" not in figure.svg
    assert any("5 s before" in note for note in figure.notes)


def test_without_the_recorder_the_note_says_so():
    """Logs and heartbeats tell a few moments; what would tell more is named."""
    assert any("workerdiag.install(client)" in note for note in of(recorded=False).notes)
    assert not any("install" in note for note in of().notes)


def test_a_death_that_tells_its_memory_is_drawn_without_a_history():
    """A diagnosis of an earlier release has no timeline, but numbers."""
    assert "wd-bar" in memory_figure(explained()).svg


def test_without_memory_or_a_limit_to_compare_there_is_no_drawing():
    """No empty frame, and no bar that stands alone: the page says what is missing, and how to get it."""
    without = (
        unknown(),
        *(explained(deaths=(dead(**{name: None}),)) for name in ("rss_bytes", "limit_bytes")),
    )
    for findings in without:
        assert memory_figure(findings) is None
        assert "Not sampled before the death; <code>workerdiag.install(client)" in render_html(findings)


def test_where_nobody_died_or_memory_is_drawn_nothing_is_missing():
    """A page without a victim has no word on memory."""
    for findings in (no_death(), no_death(deaths=(dead(stop_requested=True),)), explained(), drawn()):
        assert "Not sampled" not in render_html(findings)


def test_what_is_not_known_is_left_out():
    """A worker without spilling and without a control group has neither line."""
    samples = tuple(MemorySample(at=NOON_ISH - n, process_bytes=2**30) for n in (9, 1))
    figure = of(samples=samples, limits=MemoryLimits(), group_peak_bytes=None)
    assert figure.legend == (("process", figure.legend[0][1]),)
    assert "wd-limit" not in figure.svg
    assert "No limit is known." in figure.notes


def test_readings_that_are_far_apart_make_no_line():
    """Between two pauses hours apart memory was anything: only the last is drawn. The recorder samples without gaps."""
    samples = tuple(MemorySample(at=NOON_ISH - s, process_bytes=2**30) for s in (4000, 1))
    assert "wd-line" not in of(samples=samples, recorded=False).svg
    assert "wd-line" in of(samples=samples).svg


def test_where_nobody_died_and_nothing_stands_still_memory_is_not_drawn():
    """A worker that was paused for a while in a healthy run is no victim."""
    assert memory_figure(no_death(timeline=Timeline(histories=(history(recorded=False),)))) is None


def test_others_that_died_are_drawn_small_in_the_order_of_their_deaths():
    """The first victim is large; beside it at most five, each with when it died."""
    figure = memory_figure(several_victims(8))
    assert figure.title == "Memory of tcp://10.0.0.4:34937"
    assert [name for name, _ in figure.small] == [
        f"tcp://10.0.0.{4 + number}:34937, died {4 * number} s later" for number in range(1, 6)
    ]
    assert memory_figure(several_victims(1)).small == ()


def test_small_drawings_can_be_compared():
    """All have one scale, that of the largest, and one limit: the first that ends a process."""
    small = memory_figure(several_victims(4)).small
    assert len({re.search(r'y1="([\d.]+)" y2="[\d.]+" class="wd-limit', svg)[1] for _, svg in small}) == 1
    assert all(re.findall('wd-limit-text">([^<]*)<', svg) == ["terminate 95% 3.8 GiB"] for _, svg in small)


def test_a_victim_without_a_limit_stands_behind_one_with():
    """The large drawing can be compared with a limit; the one that died before it says so."""
    early = history(limits=MemoryLimits(), when=NOON_ISH - 3)
    late = several_victims(2).timeline.histories[1]
    figure = memory_figure(drawn(timeline=Timeline(histories=(early, late))))
    assert figure.title == "Memory of tcp://10.0.0.5:34937"
    assert [name for name, _ in figure.small] == ["tcp://10.0.0.4:34937, died 7 s earlier"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Worker is at 81% memory usage. Pausing worker.", "The worker paused at 81% of its limit."),
        ("paused", "The worker paused. Its thresholds for pausing and spilling are unknown."),
    ],
)
def test_a_worker_whose_log_says_that_it_paused_is_not_said_to_do_so_never(text, said):
    """The share at which it paused stands in the message; a pause of another worker says nothing of it."""
    known = history(limits=MemoryLimits(worker_bytes=2**32))
    pause = Moment(at=NOON_ISH - 8, kind="pause", identity=known.identity, text=text)
    other = Moment(at=NOON_ISH - 8, kind="pause", identity=Identity(worker="tcp://10.0.0.9:1"), text=text)

    def notes(moment):
        return " ".join(memory_figure(drawn(timeline=Timeline(histories=(known,), moments=(moment,)))).notes)

    assert said in notes(pause)
    assert "spilling and pausing are unknown or disabled." in notes(other)


def test_what_is_too_little_to_be_seen_is_not_named():
    """A worker without results has no ``managed 0 B``, in the drawing, its legend and its description."""
    course = history(recorded=False).samples
    for samples in (course[-30:], course[-1:]):
        bare = tuple(evolve(each, managed_bytes=0, spilled_bytes=119) for each in samples)
        figure = of(samples=bare)
        assert [kind for kind, _ in figure.legend] == ["process", "control-group"]
        assert not re.search("managed|spilled", figure.svg)


def test_a_size_below_zero_is_none():
    """A damaged black box has such numbers; what the death tells is drawn then."""
    assert MemorySample(at=0.0, process_bytes=-5) == MemorySample(at=0.0)
    figure = of(samples=(MemorySample(at=NOON_ISH - 5, process_bytes=-5),))
    assert figure.rows == (("0 s", "3.82 GiB", "", "", ""),)


def test_no_bar_of_the_account_covers_the_next_label_and_the_limit_can_be_seen():
    """A label stands above its bar, which ends before the next label; a line without a kind has no colour."""
    account = MemoryAccount(
        limit=MemoryTerm(bytes=600 * 2**20),
        floor=MemoryTerm(bytes=80 * 2**20),
        inputs=MemoryTerm(bytes=2**30),
        output=MemoryTerm(bytes=2**29),
    )
    svg = account_figure(account).svg
    labels = [float(y) for y in re.findall(r'<text[^>]* y="([\d.]+)"', svg)]
    bars = [
        (float(y), float(height)) for y, height in re.findall(r'<rect y="([\d.]+)"[^>]* height="([\d.]+)"', svg)
    ]
    assert len(labels) == 5
    assert svg.count("wd-limit wd-hard") == 1
    for at, height in bars:
        below = [label for label in labels if label > at]
        assert all(at + height < label - 12 for label in below)
    assert max(at + height for at, height in bars) <= float(re.search(r'height="([\d.]+)"', svg)[1])
