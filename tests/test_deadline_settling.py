"""When deaths are judged."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from workerdiag.deadline import MOST_TIMES, SettleWindow

SETTLE_S = 10.0


def test_nothing_is_due_where_nothing_died():
    """A cluster without deaths costs no judgement."""
    settling = SettleWindow(SETTLE_S)
    assert settling.due_at is None
    assert not settling.is_due(1e9)


def test_one_death_is_judged_ten_seconds_later():
    """Neither before, as evidence still arrives, nor much later."""
    settling = SettleWindow(SETTLE_S)
    settling.arrived(100.0)
    assert not settling.is_due(109.9)
    assert settling.is_due(110.0)


@given(st.lists(st.floats(0, 60), min_size=1))
def test_deaths_that_go_on_arriving_hold_nothing_up_for_long(moments):
    """However many follow, the first is judged after at most three times the settling time."""
    settling = SettleWindow(SETTLE_S)
    for moment in sorted(moments):
        settling.arrived(moment)
    assert settling.due_at is not None
    assert min(moments) + SETTLE_S <= settling.due_at <= min(moments) + MOST_TIMES * SETTLE_S


def test_a_clock_that_is_set_back_holds_nothing_up():
    """Deaths that arrived in what is the future now are due."""
    settling = SettleWindow(SETTLE_S)
    settling.arrived(1000.0)
    assert settling.is_due(10.0)


def test_what_was_judged_waits_no_more():
    """The next death begins a new wait."""
    settling = SettleWindow(SETTLE_S)
    settling.arrived(100.0)
    settling.judged()
    assert not settling.is_due(1000.0)
