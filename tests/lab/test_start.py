"""Workers that never get to work: no scheduler, no module, an argument nobody can read."""

from __future__ import annotations

import pytest
from attrs import evolve

from .promises import claimed_causes, named_cause

pytestmark = pytest.mark.lab
common = pytest.mark.common


def test_a_worker_that_found_no_scheduler(provoke, explain):
    """It waited for its death timeout; "killed by signal 15" in its log is its own clean-up."""
    aftermath = provoke("death-timeout")
    assert aftermath.facts["status"] == 1
    assert named_cause(explain(aftermath)) == "exit.death-timeout"


def test_how_a_start_ended_comes_before_missing_workers(provoke, explain):
    """A client waits for workers, and the nanny's log says how the only one ended: that is one death, and the answer."""
    diagnosis = explain(provoke("killed-while-starting"))
    assert named_cause(diagnosis) in ("external.sigkill", "exception.preload-failed")
    assert len(diagnosis.deaths) == 1
    assert diagnosis.blame.task is None


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        pytest.param("missing-module", "exception.missing-module", marks=[common, pytest.mark.alone]),
        ("failing-unpickle", "exception.deserialization"),
    ],
)
def test_a_message_that_the_worker_cannot_read(provoke, explain, fault, cause):
    """Worker and nanny leave politely, with status 0; their log has the reason."""
    aftermath = provoke(fault)
    assert aftermath.facts["status"] == 0
    assert named_cause(explain(aftermath)) == cause


@pytest.mark.alone
def test_a_message_that_the_worker_cannot_read_leaves_no_word_on_the_cluster(provoke, explain):
    """Without that log nobody can tell: nothing but the loss is given as sure."""
    diagnosis = explain(evolve(provoke("missing-module"), logs=()))
    assert claimed_causes(diagnosis) <= {"exception.missing-module", "standstill.no-workers"}
