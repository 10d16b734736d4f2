"""Which workers went without an order, by what a scheduler tells."""

from __future__ import annotations

import pytest

from workerdiag.integrations.cluster_observer import Removals

WORKER = "tcp://10.0.0.1:4000"


def removal(worker=WORKER, when=100.0, **more):
    """The event of a removal."""
    stimulus = f"handle-worker-cleanup-{when}"
    return when, {"action": "remove-worker", "worker": worker, "stimulus_id": stimulus, **more}


def test_a_removal_is_told_once():
    """A scheduler tells of it each time that it is asked."""
    removals = Removals(since=0)
    assert removals.take_new([removal()]) == [WORKER]
    assert removals.take_new([removal(), removal(when=200.0)]) == [WORKER]
    assert removals.take_new([removal(), removal(when=200.0)]) == []


@pytest.mark.parametrize(
    "entries",
    [
        [removal(expected=True)],
        [removal(), (101.0, {"action": "restart-workers", "workers": [WORKER], "client": "c"})],
        [(99.0, {"action": "retire-workers", "retired": [WORKER], "could-not-retire": []}), removal()],
        [removal(when=9.0)],
        [(100.0, "text"), (100.0, {"action": "add-worker", "worker": WORKER}), (100.0, {"workers": None})],
    ],
    ids=["announced", "restarted", "retired", "before", "others"],
)
def test_what_was_ordered_or_is_old_is_no_news(entries):
    """Nor is what is no removal at all."""
    assert Removals(since=10.0).take_new(entries) == []


def test_one_that_could_not_be_retired_counts():
    """It may have died of something else."""
    order = (99.0, {"action": "retire-workers", "retired": [], "could-not-retire": [WORKER]})
    assert Removals(since=0).take_new([order, removal()]) == [WORKER]
