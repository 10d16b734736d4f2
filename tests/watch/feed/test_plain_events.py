"""What the copy of a scheduler's events promises: all of them, and few large answers."""

from __future__ import annotations

import asyncio

import pytest

from support.death_records import NOW
from support.simulated_scheduler import SimulatedConnection, SimulatedScheduler
from workerdiag.watch.feed.plain_events import EventCopy

ADDRESS = "tcp://10.0.0.1:8786"
#: More than one answer may name.
MANY_TASKS = [f"load-{number}" for number in range(7000)]


def worker(number):
    """Address of a worker."""
    return f"tcp://10.0.0.4:{1000 + number}"


@pytest.fixture
def scheduler():
    """One with five workers, that has lost another one with many tasks."""
    found = SimulatedScheduler(has_recorder=False)
    for number in range(6):
        found.join(worker(number))
    found.remove(worker(0), keys=MANY_TASKS, when=NOW)
    return found


@pytest.fixture
def copy(scheduler):
    """A copy of its events."""
    return EventCopy(SimulatedConnection({ADDRESS: scheduler}, ADDRESS))


def refreshed(copy, scheduler, *, worker_count=None):
    """What the copy has now, and for which topics the scheduler was asked."""
    scheduler.asked_topics.clear()
    count = len(scheduler.workers) if worker_count is None else worker_count
    return list(asyncio.run(copy.refresh(count))), list(scheduler.asked_topics)


def test_large_events_come_once(copy, scheduler):
    """Later ones come by the log and the topics of the workers, and are the same."""
    first, asked = refreshed(copy, scheduler)
    assert (first, asked) == (list(scheduler._broker._topics["all"].events), ["all"])
    assert refreshed(copy, scheduler) == (first, [])
    scheduler.join(worker(7), when=NOW + 1)
    scheduler.remove(worker(7), keys=["load"], when=NOW + 2)
    scheduler.remove(worker(1), keys=["mean"], when=NOW + 3)
    later, asked = refreshed(copy, scheduler)
    assert later == list(scheduler._broker._topics["all"].events)
    assert asked == [worker(7), worker(1)]


def test_small_events_come_as_the_scheduler_has_them(scheduler, copy):
    """With those that its log does not tell of."""
    scheduler._broker._topics["all"].events.clear()
    refreshed(copy, scheduler)
    scheduler.log_event("all", {"action": "retire-workers"})
    found, asked = refreshed(copy, scheduler)
    assert (found[-1][1], asked) == ({"action": "retire-workers"}, ["all"])


def test_a_removal_that_the_log_does_not_have_is_found(scheduler, copy):
    """The number of workers gives it away."""
    refreshed(copy, scheduler)
    scheduler.is_logging = False
    scheduler.remove(worker(1), when=NOW + 1)
    found, asked = refreshed(copy, scheduler)
    assert (found[-1][1]["worker"], asked) == (worker(1), ["all"])


def test_a_log_that_never_told_of_workers_is_not_relied_on():
    """Its level may be above INFO: a worker that comes and goes between two questions is not in it."""
    scheduler = SimulatedScheduler(has_recorder=False)
    copy = EventCopy(SimulatedConnection({ADDRESS: scheduler}, ADDRESS))
    scheduler.is_logging = False
    scheduler.remove(worker(0), keys=MANY_TASKS)
    refreshed(copy, scheduler)
    scheduler.join(worker(1), when=NOW + 1)
    scheduler.remove(worker(1), when=NOW + 2)
    found, asked = refreshed(copy, scheduler)
    assert (found[-1][1]["worker"], asked) == (worker(1), ["all"])


def test_more_records_than_are_read_at_a_time_are_not_relied_on(scheduler, copy):
    """Earlier ones may be of removals."""
    refreshed(copy, scheduler)
    scheduler.join(worker(7), when=NOW + 1)
    scheduler.remove(worker(7), when=NOW + 2)
    for number in range(400):
        scheduler.note("something else", when=NOW + 3 + number)
    found, asked = refreshed(copy, scheduler)
    assert (found[-1][1]["worker"], asked) == (worker(7), ["all"])


def test_a_worker_that_goes_while_the_log_is_read_changes_nothing(scheduler, copy):
    """The number of workers is then asked for again."""
    refreshed(copy, scheduler)
    scheduler.remove(worker(1), when=NOW + 1)
    found, asked = refreshed(copy, scheduler, worker_count=5)
    assert (found[-1][1]["worker"], asked) == (worker(1), [worker(1)])


def test_a_log_that_may_not_be_read_is_not_asked_for_again(scheduler, copy, monkeypatch):
    """Each refusal is a traceback in it."""
    asked = []

    async def refuse(_self, **_):
        asked.append("logs")
        raise ValueError("The 'logs' handler has been explicitly disallowed in Scheduler")

    monkeypatch.setattr(SimulatedConnection, "logs", refuse)
    for _ in range(3):
        assert refreshed(copy, scheduler)[1] == ["all"]
    assert asked == ["logs"]


@pytest.mark.parametrize("problem", [OSError("gone"), ValueError("malformed")])
def test_a_scheduler_that_fails_is_seen_to_fail(scheduler, copy, monkeypatch, problem):
    """Whoever watches says so."""

    async def fail(_self, **_):
        raise problem

    monkeypatch.setattr(SimulatedConnection, "logs", fail)
    with pytest.raises(type(problem)):
        refreshed(copy, scheduler)
