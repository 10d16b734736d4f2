"""What the flight recorder kept of a death in the memory account, the reason and the cures."""

from __future__ import annotations

import pytest

from workerdiag import pipeline
from workerdiag.model.evidence import Event, Inspected, TaskFacts, TaskInput, TasksAtLoss
from workerdiag.model.identity import Identity
from workerdiag.model.timeline import (
    CodeLine,
    HeldObject,
    MemoryAtKill,
    MemoryCensus,
    MemoryLimits,
    MemorySample,
    ProcessHistory,
    TaskSpan,
)
from workerdiag.rulebook.load import load_rulebook

MIB = 2**20
LIMIT = 1000 * MIB
BOOK = load_rulebook()
WORKER = "tcp://10.0.0.9:3001"
WHO = Identity(worker=WORKER, pid=8100)
CALL = Event(topic="workload", fields={"place": "main (run.py:3)", "gathered": True, "futures": 6})
LINE = CodeLine(file="/home/me/run.py", line=31, function="load", task="load-7")


def course(*samples, asked=None, spans=(("load-7", 10.0, None),), censuses=()):
    """A history of samples (seconds, process, stored, asked; sizes in MiB) with the tasks that ran."""
    seen = tuple(
        MemorySample(at=at, process_bytes=rss * MIB, managed_bytes=stored * MIB, asked_bytes=data * MIB)
        for at, rss, stored, data in samples
    )
    last = seen[-1]
    return ProcessHistory(
        identity=WHO,
        samples=seen,
        limits=MemoryLimits(worker_bytes=LIMIT),
        tasks=tuple(TaskSpan(key=key, started_at=began, ended_at=ended) for key, began, ended in spans),
        censuses=censuses,
        at_kill=MemoryAtKill(at=last.at, rss_bytes=last.process_bytes, asked_bytes=last.asked_bytes),
        recorded=True,
        when=last.at,
    )


def diagnosed(history, *evidence, tasks=("load-7",), facts=()):
    """The diagnosis of a worker that its nanny ended with this history."""
    held = history.samples[-1].process_bytes
    fields = {"worker": WORKER, "pid": WHO.pid, "rss": held}
    removed = {"action": "remove-worker", "worker": WORKER, "processing": ", ".join(tasks), "expected": False}
    return pipeline.diagnose(
        [
            Inspected(place="scheduler events"),
            Event(topic="worker-restart-memory", fields=fields, when=history.when, identity=WHO),
            Event(topic="all", fields=removed, when=history.when, identity=WHO),
            Event(
                topic="cluster", fields={"type": "LocalCluster", "worker_limit_bytes": LIMIT, "worker_threads": 2}
            ),
            Event(topic="cluster-setup", fields={"deployment": "local"}),
            TasksAtLoss(identity=WHO, tasks=tasks, exact=True, facts=facts, when=history.when),
            history,
            *evidence,
        ],
        BOOK,
    )


def census(*objects, rss=940):
    return MemoryCensus(at=20.5, rss_bytes=rss * MIB, limit_bytes=LIMIT, objects=objects)


def bit_by_bit():
    return course((9, 90, 0, 120), *((10 + n, 90 + 90 * n, 0, 120 + 90 * n) for n in range(1, 11)))


def test_what_one_task_asked_for_is_a_number_that_is_enough():
    """It asked for all of it at once, and was ended while it filled it."""
    diagnosis = diagnosed(course((9, 90, 0, 120), (10.2, 200, 0, 2520), (11, 960, 0, 2520)), CALL)

    assert diagnosis.memory.reason == "one-task-too-large"
    assert diagnosis.memory.asked.bytes == 2400 * MIB
    (cure,) = diagnosis.cures
    assert cure.kind == "worker-memory"
    assert 90 * MIB + 2400 * MIB < 0.85 * cure.value < 3200 * MIB


def test_it_has_to_be_enough_for_as_many_as_a_worker_begins():
    """Where workers died of others like it too, each alone: with more room they run beside each other."""
    other = TasksAtLoss(identity=Identity(worker=WORKER, pid=8101), tasks=("load-8",), exact=True)
    diagnosis = diagnosed(course((9, 90, 0, 120), (10.2, 200, 0, 2520), (11, 960, 0, 2520)), CALL, other)

    (cure,) = diagnosis.cures
    assert "2 x 2.34 GiB asked for" in cure.why
    assert 0.85 * cure.value > 90 * MIB + 2 * 2400 * MIB


def test_who_has_the_recorder_is_not_told_to_install_it():
    """What it did not see it will not see the next time either."""
    diagnosis = diagnosed(bit_by_bit(), CALL)

    assert diagnosis.memory.would_tell == ""
    assert diagnosis.memory.output.missing == ""


def test_what_others_gave_back_is_not_counted_as_asked_for():
    """Where another task ran when the last one began, nothing tells what that asked for."""
    history = course(
        (9, 90, 0, 120),
        (9.5, 700, 0, 900),
        (11, 960, 0, 2520),
        spans=(("load-6", 9.2, 10.5), ("load-7", 10.0, None)),
    )

    assert diagnosed(history, CALL).memory.asked.bytes is None


def test_a_task_that_grows_bit_by_bit_is_given_no_number():
    """Each look finds a little more, and all of it filled: nothing says that it would have ended."""
    diagnosis = diagnosed(bit_by_bit(), CALL)

    assert diagnosis.memory.reason == "runaway"
    assert diagnosis.memory.reasons[0].probability < 0.75
    assert diagnosis.cures == ()


def test_tasks_that_asked_for_much_together_run_one_by_one():
    """Each of them has room alone; together they need what they asked for."""
    history = course(
        (9, 90, 0, 120),
        (10.2, 200, 0, 1320),
        (11, 960, 0, 1320),
        spans=(("load-7", 10.0, None), ("load-8", 10.0, None)),
    )
    diagnosis = diagnosed(history, CALL, tasks=("load-7", "load-8"))

    assert diagnosis.memory.reason == "too-many-at-once"
    assert [(each.kind, each.value) for each in diagnosis.cures[:1]] == [("threads", 1)]
    assert diagnosis.cures[1].value * 0.85 > 1290 * MIB


@pytest.mark.parametrize(
    ("scattered", "kinds"), [("ndarray", {"worker-memory"}), ("", {"worker-memory", "do-not-collect"})]
)
def test_what_is_stored_takes_room_beside_what_is_asked_for(scattered, kinds):
    """A table that was scattered is there whatever tasks ask for: one at a time has no room beside it either."""
    history = course(
        (9, 90, 0, 120),
        (10.2, 700, 400, 1120),
        (11, 960, 400, 1120),
        spans=(("load-7", 10.0, None), ("load-8", 10.0, None)),
    )
    made = Event(
        topic="tasks-made", fields={"kind": scattered or "read", "finished": 1, "tasks": 1, "made_bytes": 400 * MIB}
    )
    cures = diagnosed(history, CALL, made, tasks=("load-7", "load-8")).cures

    assert {each.kind for each in cures} == kinds
    assert all(0.85 * each.value > (90 + 400 + 1000) * MIB for each in cures if each.value)


@pytest.mark.parametrize("sizes", [(500, 800), (800, 800)])
def test_a_growing_variable_of_a_module_is_a_leak_with_its_name(sizes):
    """One that keeps its size may be a table that was loaded once."""
    seen = [
        census(HeldObject(name="SEEN", type="list", size_bytes=each * MIB, count=each, module="steps"))
        for each in sizes
    ]
    diagnosis = diagnosed(course((9, 700, 0, 750), (11, 960, 0, 990), censuses=tuple(seen)), CALL)

    assert (diagnosis.memory.reason == "leak") is (sizes[0] < sizes[1])
    if sizes[0] < sizes[1]:
        assert "SEEN of 800" in diagnosis.memory.reasons[0].why
        assert "SEEN" in diagnosis.cures[0].change
        assert "module steps" in diagnosis.cures[0].change
        assert not [each for each in diagnosis.cures if each.kind == "worker-memory"]


@pytest.mark.parametrize("stored", [0, 800])
def test_what_a_task_holds_that_is_older_than_it_is_kept(stored):
    """Its process did not grow by so much since it began; what Dask stores is an input."""
    seen = [
        HeldObject(name="cache", type="list", size_bytes=17 * each * MIB, count=17, line=LINE) for each in (40, 50)
    ]
    history = course((9.8, 900, stored, 950), (11, 960, stored, 1000), censuses=tuple(map(census, seen)))
    diagnosis = diagnosed(history, CALL)

    is_leak = diagnosis.memory.reason == "leak"
    assert is_leak is (stored == 0)
    assert not is_leak or "/home/me/run.py:31, in load" in diagnosis.cures[0].change


def test_a_variable_of_a_module_that_its_task_fills_is_no_leak():
    """It grows from look to look, but the process was empty when the task began."""
    seen = [HeldObject(name="ROWS", type="list", size_bytes=each * MIB, module="steps") for each in (500, 800)]
    diagnosis = diagnosed(course((9, 90, 0, 120), (11, 960, 0, 990), censuses=tuple(map(census, seen))), CALL)

    assert "leak" not in {each.reason for each in diagnosis.memory.reasons}


def test_what_a_task_fills_itself_is_no_leak():
    """It began with an empty process."""
    held = census(HeldObject(name="rows", type="list", size_bytes=850 * MIB, count=17, line=LINE))
    diagnosis = diagnosed(course((9.8, 90, 0, 120), (11, 960, 0, 1000), censuses=(held,)), CALL)

    assert "leak" not in {each.reason for each in diagnosis.memory.reasons}


@pytest.mark.parametrize("first", [450, 800])
def test_memory_that_was_left_while_no_task_ran_and_rose_is_a_leak(first):
    """What stays the same from task to task may have been loaded once."""
    spans = (("load-1", 1.0, 3.0), ("load-2", 4.0, 6.0), ("load-7", 10.0, None))
    samples = ((0.5, 90, 0, 120), (3.5, first, 0, first + 50), (7, 800, 0, 850), (11, 960, 0, 1000))
    diagnosis = diagnosed(course(*samples, spans=spans), CALL)

    assert (diagnosis.memory.reason == "leak") is (first == 450)
    assert diagnosis.memory.left.bytes == 800 * MIB
    assert diagnosis.memory.floor.bytes == 90 * MIB


def test_results_that_were_stored_at_the_end_are_results_stored():
    """The process itself sampled them; a task's own inputs are taken off."""
    samples = ((0.5, 90, 0, 120), (9, 800, 700, 850), (11, 960, 700, 1000))
    few = TaskFacts(key="load-7", ran=True, input_count=1, input_bytes=10 * MIB)
    most = TaskFacts(key="load-7", ran=True, input_count=2, input_bytes=690 * MIB)

    assert diagnosed(course(*samples), CALL, facts=(few,)).memory.reason == "results-stored"
    assert diagnosed(course(*samples), CALL, facts=(most,)).memory.reason != "results-stored"


def test_inputs_that_the_recorder_kept_count_where_the_scheduler_has_forgotten_them():
    """The scheduler forgets a task soon after it gave up on it."""
    inputs = tuple(TaskInput(key=f"part-{number}", size_bytes=60 * MIB) for number in range(10))
    facts = TaskFacts(
        key="concat-1",
        ran=True,
        input_count=10,
        input_bytes=600 * MIB,
        inputs=inputs,
        finished_siblings=0,
    )
    forgotten = Event(topic="task-needs", fields={"key": "concat-1", "kind": "concat", "inputs": 0})
    history = course((9, 90, 0, 120), (11, 960, 600, 1000), spans=(("concat-1", 10.0, None),))
    diagnosis = diagnosed(history, CALL, forgotten, tasks=("concat-1",), facts=(facts,))

    assert diagnosis.memory.reason == "brought-together"
    assert diagnosis.memory.inputs.bytes == 600 * MIB


def test_data_that_a_task_brought_with_it_are_data_in_the_graph():
    """The recorder kept the size of its specification."""
    facts = TaskFacts(key="load-7", ran=True, spec_bytes=400 * MIB)
    diagnosis = diagnosed(course((9, 90, 0, 120), (11, 960, 0, 1000)), CALL, facts=(facts,))

    assert diagnosis.memory.reason == "data-in-graph"
    assert "scatter np.asarray(" in diagnosis.cures[0].change  # a long list is sent item by item


def test_data_that_wait_with_their_tasks_do_not_leak():
    """They are in the worker while no task runs, and are no stored results."""
    facts = TaskFacts(key="load-7", ran=True, spec_bytes=400 * MIB)
    spans = (("load-1", 1.0, 3.0), ("load-2", 4.0, 6.0), ("load-7", 10.0, None))
    samples = ((0.5, 90, 0, 120), (3.5, 450, 0, 500), (7, 850, 0, 900), (11, 960, 0, 1000))
    diagnosis = diagnosed(course(*samples, spans=spans), CALL, facts=(facts,))

    assert {each.reason for each in diagnosis.memory.reasons}.isdisjoint({"leak", "not-returned"})
