"""
Alive but silent, and work that waits for something that never comes.
"""

from __future__ import annotations

import pytest

from .promises import named

pytestmark = pytest.mark.lab
common = pytest.mark.common


@pytest.mark.parametrize("fault", [pytest.param("loop-blocked", marks=common), "gil-held", "worker-stopped"])
def test_a_worker_that_fell_silent_was_not_killed_by_chance(provoke, explain, fault):
    """
    The scheduler gave it up after its time to live; the nanny's SIGKILL only followed.
    """
    aftermath = provoke(fault)
    diagnosis = explain(aftermath)
    assert named(diagnosis) == "network.unresponsive"
    assert aftermath.pid in {death.whose.pid for death in diagnosis.deaths}


def test_a_frozen_node_is_named_while_the_scheduler_still_hopes(provoke, explain):
    """
    Worker and nanny answer nobody, and asking them does not hold us up for ever.
    """
    assert named(explain(provoke("node-stopped"))) == "network.unresponsive"


def test_work_that_no_worker_may_take(provoke, explain):
    """
    A hang that kills nobody: the tasks wait for a worker that would fit.
    """
    diagnosis = explain(provoke("unschedulable"))
    assert named(diagnosis) == "standstill.unschedulable"
    assert diagnosis.deaths == ()
