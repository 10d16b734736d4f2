"""When a watcher is blind."""

from __future__ import annotations

from workerdiag.watch.loop import Blindness

PATIENCE_S = 120.0


def test_a_scheduler_that_restarts_is_no_blindness():
    """Only one that is gone for two minutes is."""
    blindness = Blindness(PATIENCE_S)
    blindness.lost("scheduler", 100.0, "connection refused")
    assert blindness.problem(219.0) is None
    assert blindness.problem(220.0) == "connection refused"


def test_time_counts_from_when_it_was_seen_last():
    """Each further failure changes the wording alone."""
    blindness = Blindness(PATIENCE_S)
    blindness.lost("scheduler", 100.0, "connection refused")
    blindness.lost("scheduler", 210.0, "no route to host")
    assert blindness.problem(221.0) == "no route to host"


def test_a_scheduler_that_answers_is_seen_at_once():
    """Blindness comes back with the first answer."""
    blindness = Blindness(PATIENCE_S)
    blindness.lost("scheduler", 100.0, "connection refused")
    blindness.regained("scheduler")
    assert blindness.problem(1000.0) is None


def test_lost_deaths_are_said_at_once():
    """They are not waited for; after a while that lost nothing, the watcher sees again."""
    blindness = Blindness(PATIENCE_S)
    blindness.missed(100.0, "37 deaths were overwritten")
    assert blindness.problem(100.0) == "37 deaths were overwritten"
    assert blindness.problem(100.0 + PATIENCE_S) is None


def test_deaths_lost_again_keep_it_blind():
    """As long as some are lost in each two minutes, it does not claim to see."""
    blindness = Blindness(PATIENCE_S)
    blindness.missed(100.0, "37 deaths were overwritten")
    blindness.missed(190.0, "1 death was overwritten")
    assert blindness.problem(250.0) == "37 deaths were overwritten; then 1 death was overwritten"


def test_deaths_that_cannot_be_judged_are_a_blindness():
    """A watcher that cannot judge says so, instead of nothing."""
    blindness = Blindness(PATIENCE_S)
    blindness.lost("judge", 100.0, "deaths could not be judged")
    assert blindness.problem(100.0) == "deaths could not be judged"
