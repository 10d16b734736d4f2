"""From the cause to the cure: the memory account, the reason that it shows, and the change with its sum."""

from __future__ import annotations

import pytest

from workerdiag import pipeline
from workerdiag.model.evidence import Event, ExceptionFacts, Inspected
from workerdiag.model.identity import Identity
from workerdiag.model.memory import Step
from workerdiag.rendering.html import render_html
from workerdiag.rendering.outline import outline
from workerdiag.rendering.text import render_note, render_text
from workerdiag.rulebook.load import load_rulebook
from workerdiag.scoring.cures import smaller_chunk

MIB = 2**20
LIMIT = 600 * MIB
BOOK = load_rulebook()
ME = "tcp://10.0.0.4:4002"


def event(topic, **fields):
    return Event(topic=topic, fields=fields)


def deaths(*held, tasks=("work-1", "work-2")):
    """Deaths by the nanny, each with the memory that it saw, and the tasks that were assigned."""
    found = [Inspected(place="scheduler events")]
    for number, size in enumerate(held):
        worker = f"tcp://10.0.0.4:{4002 + number}"
        who = Identity(worker=worker, pid=7000 + number)
        found.append(
            Event(
                topic="worker-restart-memory",
                fields={"worker": worker, "pid": 7000 + number, "rss": size},
                when=100.0 + number,
                identity=who,
            )
        )
        removed = {"action": "remove-worker", "worker": worker, "processing": ", ".join(tasks), "expected": False}
        found.append(Event(topic="all", fields=removed, when=100.1 + number, identity=who))
    return found


CLUSTER = event("cluster", type="LocalCluster", worker_limit_bytes=LIMIT, worker_threads=2)
LOCAL = event("cluster-setup", deployment="local")


def found(*evidence, held=(610 * MIB, 640 * MIB, 620 * MIB), tasks=("work-1", "work-2")):
    return pipeline.diagnose([*deaths(*held, tasks=tasks), CLUSTER, LOCAL, *evidence], BOOK)


def array_step(name="random_sample", piece=488 * MIB, inputs=0, count=0, **more):
    return event(
        "workload-step",
        name=name,
        piece_bytes=piece,
        pieces=4,
        inputs_bytes=inputs,
        inputs=count,
        shape="16000 x 8000",
        chunk="8000 x 8000",
        dtype="float64",
        argument="chunks",
        **more,
    )


CALL = event("workload", place="main (work.py:12)", code="x.compute()", gathered=True, kinds="array")
SOURCE = array_step(is_source=True, variable="x", made_by="x = da.random.random((16000, 8000), chunks=8000)")
PRODUCT = array_step("matmul", inputs=976 * MIB, count=2)


def test_pieces_that_do_not_fit_are_made_smaller_where_they_are_made():
    """The caller's own line comes back with chunks of which two tasks at once stay below the share for spilling."""
    diagnosis = found(CALL, SOURCE, PRODUCT)

    assert diagnosis.memory.reason == "pieces-too-large"
    first = diagnosis.cures[0]
    assert first.kind == "piece-size"
    assert first.change.startswith("x = da.random.random((16000, 8000), chunks=(2048, 2048))")
    assert 2 * 4 * first.value + diagnosis.memory.floor.bytes <= 0.6 * LIMIT


def test_more_memory_is_a_number_that_is_enough():
    """It holds what all tasks at once need, with the inputs, the output and the copies of each."""
    diagnosis = found(CALL, SOURCE, PRODUCT)

    (memory,) = [each for each in diagnosis.cures if each.kind == "worker-memory"]
    assert memory.value > diagnosis.memory.floor.bytes + 2 * (976 + 488 + 488) * MIB


def test_the_cures_come_first_and_what_is_decided_is_no_if():
    """A report begins with the change; what the account has decided is not left to the reader."""
    diagnosis = found(CALL, SOURCE, PRODUCT)
    text = render_text(diagnosis)

    assert dict(outline(diagnosis).lead)["Do now"].startswith("Make the pieces smaller: at most 32 MiB each.")
    assert dict(outline(diagnosis).lead)["Because"].startswith("The pieces are too large")
    assert "If: the work can be cut into smaller pieces" not in text
    assert "If: several threads of a worker run memory-hungry tasks at once" not in text
    assert "Do now: Make the pieces smaller" in render_note(diagnosis)


def test_a_page_draws_what_filled_the_limit():
    """A bar for each part of the sum, and the same as a table."""
    page = render_html(found(CALL, SOURCE, PRODUCT), page=True)

    assert "What filled the limit" in page
    assert "2 x inputs: 1.91 GiB" in page


def test_small_pieces_are_not_made_smaller():
    """Pieces of which many fit are not the reason."""
    diagnosis = found(CALL, array_step(piece=2 * MIB, is_source=True))

    assert diagnosis.memory.reason != "pieces-too-large"
    assert not [each for each in diagnosis.cures if each.kind == "piece-size"]


def test_tasks_that_held_the_same_each_time_had_all_they_wanted():
    """Then half as many need half as much, and the size for all of them is known."""
    futures = event("workload", place="main (work.py:12)", gathered=True, futures=8)
    diagnosis = found(futures, held=(658 * MIB, 659 * MIB, 658 * MIB))

    assert diagnosis.memory.reason == "too-many-at-once"
    assert [(each.kind, each.value) for each in diagnosis.cures[:1]] == [("threads", 1)]
    assert diagnosis.cures[1].kind == "worker-memory"
    assert diagnosis.cures[1].value > 659 * MIB


@pytest.mark.parametrize("kinds", ["delayed", "bag", "array"])
def test_functions_of_ones_own_that_fill_the_memory_run_one_by_one(kinds):
    """Their pieces are small, or have no size: what they need besides is not known."""
    call = event("workload", gathered=True, kinds=kinds)
    step = array_step("hungry", piece=MIB, inputs=MIB, count=1, is_opaque=True)
    running = ("work-1", "work-2", "work-3", "work-4")
    wide = event("cluster", type="LocalCluster", worker_limit_bytes=LIMIT, worker_threads=4)
    evidence = [*deaths(610 * MIB, 640 * MIB, tasks=running), wide, LOCAL, call]
    diagnosis = pipeline.diagnose([*evidence, *([step] if kinds == "array" else [])], BOOK)

    assert diagnosis.memory.reason == "too-many-at-once"
    assert [(each.kind, each.value) for each in diagnosis.cures[:1]] == [("threads", 1)]


def test_one_task_whose_need_is_not_known_gets_no_number():
    """Who was ended while it still grew wanted more: 960 MiB would be a guess. A program may try it, once."""
    futures = event("workload", place="main (work.py:12)", gathered=True, futures=1)
    caught = ExceptionFacts(type="distributed.scheduler.KilledWorker", text="", threads=2, limit_bytes=LIMIT)
    diagnosis = found(futures, caught, tasks=("work-1",))

    assert diagnosis.memory.reason == "one-task-too-large"
    assert diagnosis.cures == ()
    assert diagnosis.decision.needs_memory_bytes is None
    assert diagnosis.decision.policy.max_tries == 1
    assert "960" not in dict(outline(diagnosis).lead)["Do now"]


def test_a_task_that_may_grow_for_ever_gets_no_number():
    """It was ended just above the limit each time, so it grew bit by bit: maybe no amount is enough."""
    futures = event("workload", place="main (work.py:12)", gathered=True, futures=1)
    diagnosis = found(futures, held=(574 * MIB, 573 * MIB, 575 * MIB), tasks=("work-1",))

    assert {each.reason for each in diagnosis.memory.reasons} >= {"runaway", "one-task-too-large"}
    assert diagnosis.cures == ()
    assert diagnosis.decision.needs_memory_bytes is None


@pytest.mark.parametrize("status", ["paused", "running"])
def test_memory_that_stays_while_nothing_runs_and_nothing_is_stored_is_a_leak(status):
    """Of a paused worker only: one that runs may have begun again."""
    state = event(
        "worker-state",
        status=status,
        memory_bytes=530 * MIB,
        limit_bytes=LIMIT,
        stored_bytes=100,
        executing_count=0,
        nthreads=2,
    )
    needs = event("task-needs", kind="remember", finished=6, began=8)
    diagnosis = found(state, needs)

    assert (diagnosis.memory.reason == "leak") is (status == "paused")
    assert not [each for each in diagnosis.cures if each.kind == "worker-memory" and status == "paused"]


def test_a_worker_that_is_full_of_rows_on_their_way_does_not_leak():
    """A shuffle holds them outside the stored results, while no task runs."""
    state = event("worker-state", status="paused", memory_bytes=530 * MIB, limit_bytes=LIMIT, stored_bytes=100)
    step = event("workload-step", name="groupbyapply", by_key=True, key="user", pieces=10, is_opaque=True)
    diagnosis = found(event("workload", gathered=True, kinds="dataframe"), step, state)

    assert diagnosis.memory.reason == "skew"


def test_many_finished_tasks_for_each_death_are_a_leak():
    """Each worker did many of the same kind before it was full."""
    needs = event("task-needs", key="remember-9", kind="remember", finished=90, began=100)
    diagnosis = found(event("workload", gathered=True, futures=20), needs)

    assert diagnosis.memory.reason == "leak"
    assert diagnosis.cures[0].kind == "fix-leak"


def test_data_in_the_graph_are_kept_out_of_it():
    """The name is the caller's."""
    call = event(
        "workload",
        gathered=True,
        kinds="array",
        embedded_bytes=900 * MIB,
        embedded_largest_bytes=458 * MIB,
        embedded_count=2,
        embedded_type="ndarray",
        embedded_name="table",
    )
    diagnosis = found(call)

    assert diagnosis.memory.reason == "data-in-graph"
    assert diagnosis.cures[0].kind == "data-in-tasks"
    assert "table" in diagnosis.cures[0].change


def test_large_partitions_of_a_frame_of_ones_own_are_first_made_smaller():
    """Each of them travels to one task; smaller ones need no other way of reading."""
    call = event(
        "workload",
        gathered=True,
        kinds="dataframe",
        embedded_bytes=1200 * MIB,
        embedded_largest_bytes=300 * MIB,
        embedded_count=4,
        embedded_type="DataFrame",
        embedded_name="frame",
    )
    step = event(
        "workload-step",
        name="frompandas",
        variable="frame",
        made_by="frame = dd.from_pandas(rows, npartitions=4)",
        piece_bytes=300 * MIB,
        pieces=4,
        rows=10_000_000,
        row_bytes=31,
        is_source=True,
        argument="npartitions",
    )
    diagnosis = found(call, step)

    assert diagnosis.memory.reason == "pieces-too-large"
    assert diagnosis.cures[0].kind == "piece-size"
    assert diagnosis.cures[0].change.startswith("frame = dd.from_pandas(rows, npartitions=")


def test_results_that_fill_a_paused_worker_are_stored_results():
    """What is stored is what the worker said at its last heartbeat."""
    state = event(
        "worker-state",
        status="paused",
        memory_bytes=520 * MIB,
        limit_bytes=LIMIT,
        stored_bytes=430 * MIB,
        spilled_bytes=0,
        nthreads=2,
    )
    diagnosis = found(state)

    assert diagnosis.memory.reason == "results-stored"
    assert diagnosis.memory.stored.bytes == 430 * MIB
    assert diagnosis.cures[0].kind == "keep-less"


def test_a_task_that_takes_very_many_inputs_brings_them_together():
    """The inputs are the scheduler's own numbers."""
    needs = event("task-needs", key="sum-1", kind="sum", inputs=40, inputs_bytes=900 * MIB)
    diagnosis = found(event("workload", gathered=True, futures=1), needs)

    assert diagnosis.memory.reason == "brought-together"
    assert diagnosis.memory.inputs.bytes == 900 * MIB
    assert diagnosis.cures[0].kind == "do-not-collect"


def test_a_key_with_most_of_the_rows_is_skew():
    """The share is of a sample in the caller's process."""
    step = event(
        "workload-step", name="groupbyapply", by_key=True, key="user", key_share=0.97, pieces=10, is_opaque=True
    )
    diagnosis = found(event("workload", gathered=True, kinds="dataframe"), step)

    assert diagnosis.memory.reason == "skew"
    assert diagnosis.cures[0].kind == "spread-key"
    assert "'user'" in diagnosis.cures[0].change


def test_without_the_work_no_reason_is_named_and_advice_stays_general():
    """Log text alone does not show it; what would tell is said."""
    diagnosis = pipeline.diagnose(deaths(610 * MIB), BOOK)

    assert diagnosis.memory.reason is None
    assert diagnosis.cures == ()
    assert "explain(exc, client)" in diagnosis.memory.would_tell
    assert diagnosis.top.mitigations[1].when


def test_inputs_that_no_worker_may_hold_are_an_account_without_a_death():
    """The scheduler refused the task and named both numbers."""
    text = "Task 'concat-1' has 763 MiB worth of input dependencies, but worker tcp://10.0.0.4:1 has memory_limit set to 600 MiB."
    refused = ExceptionFacts(type="MemoryError", text=text, from_task=True)
    chunk = Event(topic="task-needs", fields={"key": "concat-1", "kind": "concat", "inputs": 20})
    diagnosis = pipeline.diagnose([refused, chunk, CLUSTER], BOOK)

    assert diagnosis.outcome == "no-death"
    assert diagnosis.memory is not None


def test_every_axis_of_a_chunk_is_shortened_alike():
    """But not the axis that a rechunk has made whole on purpose."""
    plain = Step(name="ones", piece_bytes=512 * 10**6, shape=(8000, 8000), chunk=(8000, 8000))
    in_time = Step(name="rechunk-merge", piece_bytes=480 * 10**6, shape=(60, 1000, 1000), chunk=(60, 1000, 1000))
    one_day = Step(name="ones", piece_bytes=8 * 10**6, shape=(60, 1000, 1000), chunk=(1, 1000, 1000))

    assert smaller_chunk(plain, 32 * MIB) == (2048, 2048)
    assert smaller_chunk(in_time, 32 * MIB, one_day) == (60, 264, 264)
