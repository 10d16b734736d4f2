"""Intervals give the numbers of their sources."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workerdiag.triage.fleet.report import effective_size, wilson_interval


@pytest.mark.parametrize(
    ("count", "size", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilsons_interval_is_that_of_newcombe(count, size, low, high):
    """The four examples of Newcombe 1998, table I, method 3."""
    interval = wilson_interval(count / size, size)
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=5e-5)


@given(share=st.floats(0, 1), size=st.floats(1, 1e6))
def test_an_interval_holds_its_share(share, size):
    """Whatever was seen, the interval is around it and within 0 and 1."""
    interval = wilson_interval(share, size)
    assert 0 <= interval.low <= share <= interval.high <= 1


def test_deaths_of_one_event_tell_as_much_as_one():
    """The effective size is the number of losses where all are alike, and 1 where there is one."""
    assert effective_size([1] * 40) == 40
    assert effective_size([5] * 8) == 8
    assert effective_size([10_000]) == 1
    assert 1 < effective_size([10_000, 1, 1]) < 1.01
