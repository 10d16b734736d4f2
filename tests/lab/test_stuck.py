"""Alive but silent, and work that waits for something that never comes."""

from __future__ import annotations

import dask
import pytest
from distributed import Future

import workerdiag

from . import tasks
from .catalogue import Aftermath
from .processes import wait_until
from .promises import named_cause

pytestmark = pytest.mark.lab
common = pytest.mark.common


@pytest.mark.parametrize("fault", [pytest.param("loop-blocked", marks=common), "gil-held", "worker-stopped"])
def test_a_worker_that_fell_silent_was_not_killed_by_chance(provoke, explain, fault):
    """The scheduler gave it up after its time to live; the nanny's SIGKILL only followed."""
    aftermath = provoke(fault)
    diagnosis = explain(aftermath)
    assert named_cause(diagnosis) == "network.unresponsive"
    assert aftermath.pid in {death.identity.pid for death in diagnosis.deaths}


def test_a_frozen_node_is_named_while_the_scheduler_still_hopes(provoke, explain):
    """Worker and nanny answer nobody, and asking them does not hold us up for ever."""
    assert named_cause(explain(provoke("node-stopped"))) == "network.unresponsive"


def test_work_that_no_worker_may_take(provoke, explain):
    """A hang that kills nobody: the tasks wait for a worker that would fit."""
    diagnosis = explain(provoke("unschedulable"))
    assert named_cause(diagnosis) == "standstill.unschedulable"
    assert diagnosis.deaths == ()


def test_a_task_that_nobody_has_submitted_is_no_all_clear(lab):
    """A future that was made from a key waits for a task that the scheduler does not know."""
    lab.scheduler()
    lab.worker()
    client = lab.client()
    waits = Future("never-submitted", client)
    diagnosis = workerdiag.explain(client=client)
    assert named_cause(diagnosis) == "standstill.unknown-tasks"
    assert diagnosis.deaths == ()
    assert waits.status == "pending"


def test_an_error_that_never_reaches_the_client_is_read_from_the_scheduler(lab):
    """A function that calls itself without end: its error cannot be pickled, and some releases wait for ever."""
    lab.scheduler()
    lab.worker()
    client = lab.client()

    def countdown(number):
        return countdown(number - 1)

    future = client.submit(countdown, 1, key="countdown")
    with pytest.raises((TimeoutError, RecursionError)) as caught:
        future.result(timeout=8)
    if isinstance(caught.value, TimeoutError):
        with dask.config.set({"workerdiag.note.timeout": "2s"}):  # for so long an error may be held back
            diagnosis = workerdiag.explain(caught.value, client, timeout="20s")
        assert named_cause(diagnosis) == "exception.deserialization"
        assert "RecursionError" in diagnosis.top.mitigations[0].do


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("no-workers", "standstill.no-workers"),
        ("no-workers-local", "standstill.none-wanted"),  # a LocalCluster of none
        ("all-workers-retired", "standstill.no-workers"),
    ],
)
def test_work_without_workers_is_told_at_once(provoke, explain, fault, cause):
    """The scheduler has tasks and nobody to run them: that is sure, and says what to do about it."""
    diagnosis = explain(provoke(fault))
    assert named_cause(diagnosis) == cause
    assert diagnosis.top.probability > 0.9


def test_a_slow_task_kills_nobody(provoke, explain):
    """Who gave up waiting is told what runs where and since when, and is not sent to a kernel log."""
    diagnosis = explain(provoke("slow-task"))
    assert named_cause(diagnosis) == "standstill.still-running"
    assert diagnosis.deaths == ()
    (clue,) = diagnosis.top.evidence
    assert "key=slow" in clue.text
    assert "running_s=" in clue.text
    assert not any("kernel" in step.inspect for step in diagnosis.next_steps)


@pytest.mark.parametrize("fault", ["gil-held-now", "worker-stopped-now"])
def test_a_worker_that_lives_is_not_said_to_have_ended(provoke, explain, fault):
    """Its heartbeat is compared with that of the other worker, and nobody died."""
    diagnosis = explain(provoke(fault))
    assert named_cause(diagnosis) == "standstill.unresponsive"
    assert diagnosis.deaths == ()
    assert "others_heard_s=" in diagnosis.top.evidence[0].text
    assert "hang" in diagnosis.top.evidence[0].text


@pytest.mark.alone
def test_all_workers_lost_with_nobody_to_ask_is_said_and_not_guessed(provoke, explain):
    """That they are gone is sure; how they ended is not made up, and the same is said again."""
    aftermath = provoke("all-workers-lost")
    first, second = explain(aftermath), explain(aftermath)
    assert named_cause(first) == named_cause(second) == "standstill.no-workers"
    assert len(first.deaths) == 2
    assert sum(cause.probability for cause in first.causes[1:]) < 0.1
    assert first.decision.platform_fault is None
    assert first.decision.retry_safe is None


def test_all_workers_lost_is_a_crash_where_the_kernel_tells_so(provoke, explain):
    """The kernel's log of this machine has a line for each crash, and the standstill is what follows from it."""
    diagnosis = explain(provoke("all-workers-crashed"))
    assert named_cause(diagnosis) == "signal.segfault"
    chances = {each.id: each.probability for each in diagnosis.causes}
    assert chances.get("standstill.no-workers", 0.0) < 0.1


def begin_a_minute_ago(dask_worker):
    """Make a worker's running tasks a minute older, by its own book."""
    for task in dask_worker.state.executing:
        task.start_time -= 61


def idles_for_a_minute(dask_scheduler):
    """Whether the scheduler has heard of a task that has run for a minute on a worker that does next to nothing."""
    (worker,) = dask_scheduler.workers.values()
    return worker.metrics["cpu"] < 10 and any(ran_s > 60 for ran_s in worker.executing.values())


def test_there_is_no_all_clear_over_a_task_that_idles_for_a_minute(lab, explain):
    """It may wait for a lock that nobody opens, or for a slow disk: from outside these look alike."""
    lab.scheduler()
    lab.worker(name="worker")
    client = lab.client(workers=1)
    future = client.submit(tasks.nap, 100, lab.mark(), key="quiet")
    lab.running()
    client.run(begin_a_minute_ago)
    wait_until(lambda: client.run_on_scheduler(idles_for_a_minute), "the next heartbeat")
    diagnosis = explain(Aftermath(client=client, facts={"futures": [future]}))
    assert diagnosis.outcome == "unknown"
    assert diagnosis.summary.startswith("1 task has run for more than a minute on workers that use hardly any")
    assert "client.call_stack()" in diagnosis.next_steps[0].command
