"""What running tasks wait for, by their stacks and the scheduler's extensions."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import pytest

from workerdiag import load_rulebook
from workerdiag.pipeline import diagnose
from workerdiag.sources.cluster.scheduler_functions import contention
from workerdiag.sources.cluster.state import ClusterState, state_events
from workerdiag.sources.cluster.synchronization import Wait, graph_waits_at, wait_fields, wait_in

BOOK = load_rulebook()
WORKER = "tcp://10.0.0.4:1001"


def frame(file, function, line=33):
    """One frame, as a worker shows it."""
    return f'  File "{file}", line {line}, in {function}\n\tsome code\n'


BEGIN = (
    frame("/usr/lib/python3.12/threading.py", "_bootstrap"),
    frame("/venv/distributed/worker.py", "apply_function_simple"),
    frame("/home/me/jobs.py", "update", 12),
)


@pytest.mark.parametrize(
    ("frames", "kind"),
    [
        ([("lock.py", "acquire"), ("semaphore.py", "acquire"), ("utils.py", "sync")], "lock"),
        ([("semaphore.py", "__enter__"), ("lock.py", "acquire"), ("semaphore.py", "acquire")], "lock"),
        ([("semaphore.py", "__enter__"), ("utils.py", "sync")], "semaphore"),
        ([("queues.py", "get"), ("client.py", "sync")], "queue"),
        ([("variable.py", "get")], "variable"),
        ([("event.py", "wait")], "event"),
        ([("client.py", "result"), ("client.py", "sync")], "task"),
    ],
)
def test_a_stack_tells_what_a_task_waits_for_and_where(frames, kind):
    """The line of the task's own code is named, not one of Dask."""
    stack = [*BEGIN, *(frame(f"/venv/distributed/{file}", function) for file, function in frames)]
    assert wait_in(stack) == Wait(kind=kind, at="update (jobs.py:12)")


@pytest.mark.parametrize(
    "stack",
    [
        (),
        BEGIN,
        (*BEGIN, frame("/home/me/lock.py", "acquire"), "no frame"),
        (*BEGIN, frame("/usr/lib/python3.12/threading.py", "wait")),
    ],
)
def test_other_code_waits_for_nothing_of_dask(stack):
    """A file of the same name elsewhere is none of Dask's."""
    assert wait_in(stack) is None


def test_what_is_waited_for_is_read_from_the_extensions():
    """A queue, a lock and an event that nobody waits for are left out."""

    class Getters:
        _getters, _putters = (1, 2), ()

    extensions = {
        "semaphores": SimpleNamespace(
            metrics={"pending": {"database": 1, "free": 0}},
            leases={"database": {"a": 5.0}},
            lease_timeouts={"database": 30},
            max_leases={"database": 1, "free": 1},
        ),
        "queues": SimpleNamespace(queues={"orders": Getters()}),
        "events": SimpleNamespace(_waiter_count={"start": 2, "set": 0}),
    }
    found = asyncio.run(contention(SimpleNamespace(extensions=extensions)))
    assert [(each["kind"], each["name"], each["waiting"]) for each in found] == [
        ("lock", "database", 1),
        ("queue", "orders", 2),
        ("event", "start", 2),
    ]
    assert found[0]["held"] == 1
    assert asyncio.run(contention(SimpleNamespace())) == []


def test_reading_a_graph_that_waits_for_another_thread_is_told_with_its_call():
    """The scheduler of a LocalCluster reads graphs in a thread of this process; one that computes does not wait."""
    is_there, waits, go_on = threading.Event(), threading.Event(), threading.Event()

    def npartitions():
        waits.wait(20)

    def _materialize_graph():
        is_there.set()
        while not go_on.is_set():
            pass
        npartitions()

    thread = threading.Thread(target=_materialize_graph)
    thread.start()
    try:
        assert is_there.wait(20)
        assert graph_waits_at() is None
        go_on.set()
        while not (found := graph_waits_at()):
            assert thread.is_alive()
        assert found.startswith("npartitions (test_synchronization.py:")
    finally:
        go_on.set()
        waits.set()
        thread.join()
    assert graph_waits_at() is None


def test_only_the_one_that_is_waited_for_is_named():
    """Two locks, and nobody knows which of them a task waits for."""
    one = {"kind": "lock", "name": "database", "waiting": 1}
    wait = Wait(kind="lock", at="update (jobs.py:12)")
    assert wait_fields(wait, [one])["lock_name"] == "database"
    assert wait_fields(wait, [one, one | {"name": "other"}]) == {"waits_for": "lock", "waits_at": wait.at}


@pytest.mark.parametrize(
    ("running_s", "other", "cause"),
    [
        (9.0, Wait(kind="lock", at="update (jobs.py:12)"), "standstill.coordination"),
        (0.5, Wait(kind="lock", at="update (jobs.py:12)"), None),
        (9.0, None, None),
    ],
    ids=["all wait", "for a moment", "another computes"],
)
def test_a_task_that_waits_for_long_is_told_with_its_line_and_the_locks_name(running_s, other, cause):
    """A lock that is merely busy for a moment is no standstill, nor is one whose holder computes."""
    task = {"key": "update-1", "state": "processing", "worker": WORKER, "running_s": running_s, "awaited": True}
    lock = {"kind": "lock", "name": "database", "waiting": 1, "held": 1, "silent_s": 2.0, "freed_after_s": 30.0}
    state = ClusterState(
        workers={WORKER: {"status": "running", "last_seen": 100.0}},
        counts={"tasks": [task], "contention": [lock]},
        now=100.0,
    )
    waits = {"update-1": Wait(kind="lock", at="update (jobs.py:12)"), "update-2": other}
    found = diagnose(state_events(state, silent=(), known={}, waits=waits), BOOK)
    assert (found.causes[0].id if found.causes else None) == cause
    if cause:
        (clue,) = found.causes[0].evidence
        assert "waits_at=update (jobs.py:12)" in clue.text
        assert "lock_name=database" in clue.text
