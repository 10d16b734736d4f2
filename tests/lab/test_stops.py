"""Stops that somebody asked for, and the loss of the scheduler."""

from __future__ import annotations

import pytest

from .promises import named_cause

pytestmark = pytest.mark.lab
common = pytest.mark.common

#: Reasons of gaps where nobody answers; which of them depends on how far the client came.
SILENT = {"unreachable", "timed-out"}


@pytest.mark.parametrize(
    "fault", [pytest.param("retire-workers", marks=common), "scale-down", "adaptive-scale-down"]
)
def test_a_smaller_cluster_is_no_crash(provoke, explain, fault):
    """Retired by hand, by ``scale`` or by an adaptive cluster: the worker was no longer wanted."""
    aftermath = provoke(fault)
    diagnosis = explain(aftermath)
    assert named_cause(diagnosis) == "exit.scheduler-retired"
    assert aftermath.facts["worker"] in {death.identity.worker for death in diagnosis.deaths}
    assert diagnosis.blame.verdict in ("nobody", "operator")
    assert diagnosis.decision.retry_safe is not False
    advice = " ".join(each.do for each in diagnosis.top.mitigations)
    assert ("daptive" in advice) == (fault == "adaptive-scale-down")


@pytest.mark.parametrize("fault", ["close-by-code-locally", "nanny-kill-by-code"])
def test_a_worker_that_code_closed(provoke, explain, fault):
    """By a call on the worker, or to its nanny: the kill of the busy worker is the call's doing."""
    diagnosis = explain(provoke(fault))
    assert named_cause(diagnosis) == "exit.closed-by-code"
    assert diagnosis.blame.verdict == "operator"


def test_a_close_whose_process_has_not_ended_leaves_two_candidates(provoke, explain):
    """A call of Worker.close() and SIGINT to the worker process give one reason; only its exit status differs."""
    diagnosis = explain(provoke("close-by-code"))
    assert {each.id for each in diagnosis.causes[:2]} == {"exit.keyboard-interrupt", "exit.closed-by-code"}
    assert diagnosis.top.probability < 0.8
    assert diagnosis.blame.verdict == "operator"


@common
def test_a_restart_by_a_client(provoke, explain):
    """Cancelled by ``client.restart``: the SIGKILL of the busy worker is the restart's doing."""
    diagnosis = explain(provoke("client-restart"))
    assert named_cause(diagnosis) == "exit.client-restart"
    assert diagnosis.blame.verdict == "operator"
    assert diagnosis.decision.retry_safe is True


def test_a_lifetime_that_ran_out(provoke, explain):
    """The worker left when its lifetime was over; work that waits since is told why."""
    assert named_cause(explain(provoke("lifetime"))) == "exit.lifetime"


@common
def test_a_scheduler_that_was_killed(provoke, explain):
    """Nobody is left to ask, so the logs decide, and what could not be asked is a gap."""
    diagnosis = explain(provoke("scheduler-killed"), timeout="10s")
    assert named_cause(diagnosis) == "exit.scheduler-lost"
    assert {gap.reason for gap in diagnosis.gaps} & SILENT


def test_a_scheduler_that_hangs_cannot_hold_us(provoke, explain):
    """It is stopped until the end of the test, and what it did not say is a gap."""
    diagnosis = explain(provoke("scheduler-stopped"), timeout="5s")
    assert {gap.reason for gap in diagnosis.gaps} & SILENT
