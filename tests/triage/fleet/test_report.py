"""Intervals and tests give the numbers of their sources."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workerdiag.triage.fleet.report import (
    binomial_tail,
    effective_size,
    halves_p_value,
    holm,
    wilson_interval,
)


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


@given(trials=st.integers(0, 60), count=st.integers(-1, 61), tenths=st.integers(0, 10))
def test_the_binomial_tail_is_exact(trials, count, tenths):
    """It is the sum of the chances of each number of successes."""
    chance = Fraction(tenths, 10)
    exact = sum(
        comb(trials, each) * chance**each * (1 - chance) ** (trials - each)
        for each in range(max(count, 0), trials + 1)
    )
    assert binomial_tail(count, trials, float(chance)) == pytest.approx(float(exact), abs=1e-12)


def test_a_million_trials_are_counted_at_once():
    """Large numbers neither overflow nor round to nothing."""
    assert 0 < binomial_tail(1200, 1_000_000, 0.001) < 1e-8
    assert binomial_tail(500_000, 1_000_000, 0.5) == pytest.approx(0.5004, abs=1e-4)


def test_equal_halves_say_nothing_and_unequal_ones_do():
    """The test is the exact one on both sides."""
    assert halves_p_value(6, 6) == 1
    assert halves_p_value(0, 10) == pytest.approx(2 / 2**10)
    assert halves_p_value(10, 0) == halves_p_value(0, 10)


def test_holm_corrects_for_all_comparisons():
    """The example of Holm's procedure: each p-value times the comparisons left, and never out of order."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.01], 20) == pytest.approx([0.2])
    assert holm([]) == []
