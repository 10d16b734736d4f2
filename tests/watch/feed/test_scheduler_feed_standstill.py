"""When work counts as standing still."""

from __future__ import annotations

import asyncio

import pytest

from workerdiag.model.evidence import Event
from workerdiag.watch.feed import scheduler_feed
from workerdiag.watch.feed.scheduler_feed import StandstillWatch, stands_still
from workerdiag.wire.recorded_death import ClusterFigures

STUCK = ClusterFigures(worker_count=0, waiting_count=3)
BUSY = ClusterFigures(worker_count=2, running_worker_count=2, assigned_count=3, executing_count=2)
EVENT = Event(topic="scheduler-state", fields={"workers": 0, "waiting_tasks": 3})


@pytest.fixture
def asked(monkeypatch):
    """How often the cluster was asked for the evidence."""
    asked = []

    class Cluster:
        def __init__(self, client):
            asked.append(client)

        async def collect_async(self, *, budget_s):
            assert budget_s
            return [EVENT]

    monkeypatch.setattr(scheduler_feed, "ClusterSource", Cluster)
    return asked


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        (ClusterFigures(), False),
        (STUCK, True),
        (ClusterFigures(worker_count=2, running_worker_count=0, assigned_count=4), True),
        (ClusterFigures(worker_count=2, running_worker_count=0, assigned_count=4, executing_count=1), False),
        (ClusterFigures(worker_count=2, running_worker_count=2, waiting_count=1), True),
        (ClusterFigures(worker_count=2, running_worker_count=2, waiting_count=9, assigned_count=4), False),
        (BUSY, False),
    ],
    ids=[
        "nothing to do",
        "no workers",
        "all paused",
        "paused but one still runs",
        "none fits",
        "more work than workers",
        "busy",
    ],
)
def test_work_stands_still_if_tasks_wait_and_nothing_runs(figures, expected):
    """Whatever the reason: the evidence says which."""
    assert stands_still(figures) is expected


def test_a_standstill_must_last(asked):
    """Workers may be on their way; the cluster is asked, and what it said told, once a minute."""
    now = 0.0
    watch = StandstillWatch()

    def evidence(figures):
        return asyncio.run(watch.evidence(figures, "client", now=now))

    assert evidence(STUCK) == ()
    assert watch.due_in_s == 60
    now = 60.0
    assert evidence(STUCK) == (EVENT,)
    assert watch.due_in_s is None
    now = 80.0
    assert (evidence(STUCK), len(asked)) == ((), 1)
    now = 120.0
    assert (evidence(STUCK), len(asked)) == ((EVENT,), 2)
    assert evidence(BUSY) == ()
    assert evidence(STUCK) == ()
