"""Where values stand on an axis."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workerdiag.rendering.drawing import Scale, byte_ticks, label_rows, lanes, offset_text, thin, time_ticks


def test_a_scale_maps_its_ends_to_0_and_1_and_keeps_what_is_outside_at_the_border():
    """Nothing is drawn outside of its plot."""
    scale = Scale(10, 20)
    assert [scale(value) for value in (10, 15, 20, 5, 99)] == [0, 0.5, 1, 0, 1]
    assert Scale(3, 3)(3) == 0.5


@given(st.integers(1, 2**60))
def test_labels_of_bytes_are_round_and_few(most):
    """From 2 to 5 labels from 0 on, each a power of two apart."""
    ticks = byte_ticks(most)
    assert ticks[0] == 0
    assert 2 <= len(ticks) <= 5
    assert ticks[-1] <= most
    assert (ticks[1] & (ticks[1] - 1)) == 0


@given(st.floats(0.05, 1e8), st.floats(0, 1e8))
def test_labels_of_time_are_few_and_within(before, after):
    """At most five labels, none outside of the axis; 0 is one of them."""
    ticks = time_ticks(-before, after)
    assert len(ticks) <= 5
    assert 0 in ticks
    assert all(-before <= each <= after for each in ticks)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (-0.04, "0 s"),
        (-0.5, "-0.5 s"),
        (-30, "-30 s"),
        (90, "+1 min 30 s"),
        (119.6, "+2 min"),
        (-4500, "-1 h 15 min"),
        (129_600, "+1 d 12 h"),
        (7200, "+2 h"),
        (-86400, "-1 d"),
    ],
)
def test_distances_are_said_in_the_largest_units(seconds, text):
    """As a person says how long before or after it was."""
    assert offset_text(seconds) == text


def test_of_many_points_the_extremes_of_each_column_stay():
    """A peak of one sample among thousands is drawn."""
    points = [(n / 9999, 1.0) for n in range(10_000)]
    points[5000] = (points[5000][0], 9.0)
    points[7000] = (points[7000][0], 0.0)
    kept = thin(points, 100)
    assert len(kept) <= 400
    assert {points[0], points[5000], points[7000], points[-1]} <= set(kept)
    assert kept == sorted(kept)


def test_few_points_are_all_kept():
    """Nothing is thinned that can be told apart."""
    points = [(0.0, 1.0), (0.1, 2.0)]
    assert thin(points, 100) == points


def test_labels_of_lines_that_are_close_share_a_row_above_them():
    """No line runs through a label; where there is room, a label is right above its line."""
    assert label_rows([200, 120], 15) == [(197, (0,)), (117, (1,))]
    assert label_rows([200, 195, 120], 15) == [(192, (1, 0)), (117, (2,))]
    assert label_rows([100, 98, 96], 15) == [(93, (1, 0)), (78, (2,))]


@given(st.lists(st.floats(0, 200), max_size=6).map(lambda lines: sorted(lines, reverse=True)))
def test_labels_never_touch_and_no_line_runs_through_one(lines):
    """Whatever limits there are, each has its label."""
    rows = label_rows(lines, 15)
    texts = [y for y, _ in rows]
    assert sorted(number for _, numbers in rows for number in numbers) == list(range(len(lines)))
    assert all(below - above >= 14.99 for below, above in itertools.pairwise(texts))
    assert all(not text - 11 < line <= text for text in texts for line in lines)


@given(st.lists(st.floats(0, 1), max_size=20))
def test_marks_of_one_lane_do_not_touch(places):
    """Numbers that are close in time stand below each other."""
    places = sorted(places)
    rows = lanes(places, 0.1)
    for row in set(rows):
        own = [place for place, each in zip(places, rows, strict=True) if each == row]
        assert all(after - before >= 0.1 for before, after in itertools.pairwise(own))
