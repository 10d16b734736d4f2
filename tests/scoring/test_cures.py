"""From the cause to the cure: the memory account, the reason that it shows, and the change with its sum."""

from __future__ import annotations

import pytest
from attrs import evolve

from workerdiag import pipeline
from workerdiag.model.evidence import Event, ExceptionFacts, Inspected
from workerdiag.model.identity import Identity
from workerdiag.model.memory import Step
from workerdiag.rendering.html import render_html
from workerdiag.rendering.outline import outline
from workerdiag.rendering.text import render_note, render_text
from workerdiag.rulebook.load import load_rulebook
from workerdiag.scoring.cures import smaller_chunk
from workerdiag.scoring.memory_account import TaskNeeds

MIB = 2**20
GIB = 2**30
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
        shape="16000 x 16000",
        chunk="8000 x 8000",
        dtype="float64",
        argument="chunks",
        **more,
    )


CALL = event("workload", place="main (work.py:12)", code="x.compute()", gathered=True, kinds="array")
SOURCE = array_step(is_source=True, variable="x", made_by="x = da.random.random((16000, 16000), chunks=8000)")
PRODUCT = array_step("matmul", inputs=976 * MIB, count=2)


def test_pieces_that_do_not_fit_are_made_smaller_where_they_are_made():
    """The caller's own line comes back with chunks of which two tasks at once stay below the share for spilling."""
    diagnosis = found(CALL, SOURCE, PRODUCT)

    assert diagnosis.memory.reason == "pieces-too-large"
    first = diagnosis.cures[0]
    assert first.kind == "piece-size"
    assert first.change.startswith("x = da.random.random((16000, 16000), chunks=(2048, 2048))")
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


def test_pieces_that_become_far_larger_are_made_as_small_as_it_takes():
    """A function that makes sixty columns of one: the sum of the change is below the limit."""
    rows = 750_000
    source = event(
        "workload-step",
        name="frompandas",
        is_source=True,
        piece_bytes=rows * 8,
        rows=rows,
        row_bytes=8,
        pieces=4,
        argument="npartitions",
    )
    wide = event(
        "workload-step",
        name="spread",
        is_opaque=True,
        inputs=1,
        inputs_bytes=rows * 8,
        piece_bytes=rows * 480,
        rows=rows,
        row_bytes=480,
        pieces=4,
    )
    diagnosis = found(event("workload", kinds="dataframe", gathered=True), source, wide)

    cure = diagnosis.cures[0]
    assert cure.kind == "piece-size"
    assert cure.value < MIB
    assert 100 * MIB + 2 * cure.value * (1 + 60 + 2 * 180) <= 0.6 * LIMIT


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


@pytest.mark.parametrize(("size", "reason"), [(32 * MIB, "results-stored"), (MIB, "leak")])
def test_results_that_a_call_gathers_all_are_kept_until_it_has_them(size, reason):
    """Many tasks finished for each death: what their results take in all decides what fills the workers."""
    call = event("workload", place="main (work.py:12)", gathered=True, futures=100, awaited="work")
    made = {"kind": "work", "finished": 400, "tasks": 100, "made_bytes": 100 * size}
    diagnosis = found(call, event("task-needs", key="work-1", **made), event("task-needs", **made))

    assert diagnosis.memory.reason == reason
    assert ("as_completed" in diagnosis.cures[0].change) is (reason == "results-stored")


def test_a_table_that_was_scattered_fills_the_workers_for_all_tasks():
    """The scheduler names it by its type; tasks need it, so it is not to be dropped, and they need more beside it."""
    call = event("workload", place="main (work.py:12)", gathered=True, futures=60, awaited="work")
    table = event("tasks-made", kind="ndarray", finished=1, tasks=1, made_bytes=340 * MIB)
    evidence = [on_machine(16 * GIB), LOCAL, call, table]
    diagnosis = pipeline.diagnose([*deaths(610 * MIB, 640 * MIB), *evidence], BOOK)
    small = pipeline.diagnose(
        [*deaths(610 * MIB, 640 * MIB), *evidence[:3], evolve(table, fields={**table.fields, "made_bytes": MIB})],
        BOOK,
    )

    assert diagnosis.memory.reason == "results-stored"
    assert (diagnosis.cures[0].kind, diagnosis.cures[0].value) == ("worker-memory", 6 * GIB)
    assert small.memory.reason == "too-many-at-once"


ONE_FUTURE = event("workload", place="main (work.py:12)", gathered=True, futures=1)


def on_machine(size):
    return event("cluster", type="LocalCluster", worker_limit_bytes=LIMIT, workers_wanted=2, machine_bytes=size)


def test_one_task_whose_need_is_not_known_gets_all_that_its_machine_has():
    """No number is known to be enough; but there is a largest one, and what it leaves to others."""
    (first,) = pipeline.diagnose(
        [*deaths(610 * MIB, 640 * MIB, tasks=("work-1",)), on_machine(16 * GIB), LOCAL, ONE_FUTURE], BOOK
    ).cures

    assert (first.kind, first.value) == ("worker-memory", 6 * GIB)
    assert first.change == 'LocalCluster(memory_limit="6 GiB")'
    assert "how much tasks need is not known" in first.why
    assert "how much is enough is not known" in first.do
    assert first.probability < 0.5


def test_a_machine_that_has_hardly_more_is_no_cure():
    """Twice as much is worth a try, a little more is not."""
    small = pipeline.diagnose(
        [*deaths(610 * MIB, 640 * MIB, tasks=("work-1",)), on_machine(2 * GIB), LOCAL, ONE_FUTURE], BOOK
    )

    assert small.memory.reason == "one-task-too-large"
    assert small.cures == ()


def test_a_task_with_an_open_loop_gets_no_memory():
    """Its function goes on until something happens: that is likelier to be what fills the memory."""
    looping = event("workload", place="main (work.py:12)", gathered=True, futures=1, loops="work")
    killed = event("task-needs", key="work-1", kind="work")
    diagnosis = pipeline.diagnose(
        [*deaths(610 * MIB, 640 * MIB, tasks=("work-1",)), on_machine(16 * GIB), LOCAL, looping, killed], BOOK
    )

    assert diagnosis.memory.reason == "runaway"
    assert "work has a loop" in diagnosis.memory.reasons[0].why
    assert diagnosis.cures == ()


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


def test_workers_that_held_the_same_after_many_tasks_are_full_of_what_these_left():
    """So they are if each task leaves the same; tasks that are too many at once die before any of them is done."""
    held = (630 * MIB, 631 * MIB, 632 * MIB)
    call = event("workload", place="main (work.py:12)", gathered=True, futures=20)
    leaves = found(call, event("task-needs", key="work-1", kind="work", finished=60), held=held)
    fills = found(call, event("task-needs", key="work-1", kind="work", finished=1), held=held)

    assert leaves.memory.reason == "leak"
    assert fills.memory.reason == "too-many-at-once"


def test_data_in_the_graph_are_kept_out_of_it():
    """The name is the caller's."""
    call = event(
        "workload",
        gathered=True,
        kinds="array",
        embedded_bytes=900 * MIB,
        embedded_task_bytes=458 * MIB,
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
        embedded_task_bytes=300 * MIB,
        embedded_count=4,
        embedded_type="DataFrame",
        embedded_partitioned=True,
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


def test_a_frame_among_the_arguments_goes_to_every_task():
    """It has no parts that could be smaller; what helps is that the tasks read it."""
    call = event(
        "workload",
        gathered=True,
        kinds="dataframe",
        embedded_bytes=96 * MIB,
        embedded_task_bytes=96 * MIB,
        embedded_count=1,
        embedded_type="DataFrame",
    )
    diagnosis = found(call)
    small = evolve(call, fields={**call.fields, "embedded_bytes": 40 * MIB, "embedded_task_bytes": 40 * MIB})

    assert found(small).memory.reason != "data-in-graph"
    assert diagnosis.memory.reason == "data-in-graph"
    assert diagnosis.cures[0].kind == "data-in-tasks"
    assert "path" in diagnosis.cures[0].change


def given_up(kind, *, finished, of=None):
    """What the scheduler knows of a task that workers died of, maybe how many of its kind there are."""
    return event("task-needs", key=f"{kind}-17", kind=kind, finished=finished, tasks=of)


def test_one_task_of_which_all_workers_died_while_its_siblings_finished_is_the_large_one():
    """Others of its kind are hardly ever on a worker that dies; where each fills up, its neighbours are."""
    call = event("workload", gathered=True, kinds="dataframe")
    one = found(call, given_up("loads", finished=116), tasks=("loads-17", "other-2"))
    each = found(call, given_up("loads", finished=116), tasks=("loads-17", "loads-3"))
    again = found(call, given_up("loads", finished=116, of=4), tasks=("loads-17", "other-2"))  # three, many times

    assert one.memory.reason == "skew"
    assert one.cures[0].kind == "spread-key"
    assert "loads-17" in one.cures[0].change
    assert each.memory.reason == "leak"
    assert again.memory.reason != "skew"
    assert {each.reason for each in one.memory.reasons} >= {
        "skew",
        "runaway",
    }  # for want of a look at what it holds


def test_a_task_whose_siblings_died_on_other_workers_is_not_one_of_its_kind():
    """The scheduler counts how often any of them was on a worker that died."""
    call = event("workload", gathered=True, kinds="dataframe")
    known = given_up("loads", finished=116)
    others = evolve(known, fields={**known.fields, "suspicious": 45})

    assert found(call, known, tasks=("loads-17",)).memory.reason == "skew"
    assert found(call, others, tasks=("loads-17",)).memory.reason != "skew"


def test_a_task_is_told_by_the_number_of_its_piece():
    """Its key is long and says nothing more."""
    assert TaskNeeds(key="('loads-5168aae6dec94b79', 17)", kind="loads").which == "task 17 of the kind loads"
    assert TaskNeeds(key="fit-3", kind="fit").which == "fit-3"


def test_objects_whose_size_dask_does_not_know_are_stored_results():
    """They look like a leak; floats that tasks return do not hold what a worker is full of."""
    call = event("workload", gathered=True, kinds="", futures=60)
    needs = event(
        "task-needs", kind="Index", finished=30, kept=30, kept_bytes=1440, types="shop.Index", expected=60
    )
    floats = event("task-needs", kind="slope", finished=30, kept=30, kept_bytes=720, types="float", expected=60)
    full = {"memory_bytes": 560 * MIB, "limit_bytes": 600 * MIB, "stored_bytes": 700, "spilled_bytes": 0}
    workers = [event("worker-state", status="paused", nthreads=2, executing_count=0, **full) for _ in range(2)]
    diagnosis = found(call, needs, *workers)

    assert diagnosis.memory.reason == "results-stored"
    assert found(call, floats, *workers).memory.reason == "leak"
    moments = evolve(needs, fields={**needs.fields, "types": "datetime.datetime"})
    assert found(call, moments, *workers).memory.reason == "leak"
    enough = next(each.value for each in diagnosis.cures if each.kind == "worker-memory")
    assert 1000 * MIB < enough < 2200 * MIB


def test_results_of_unknown_size_that_are_lost_again_and_again_were_stored():
    """The caller waits for them, so they stay on the workers until those die; what is gathered does not."""
    needs = {"kind": "Index", "finished": 35, "tasks": 16, "made_bytes": 800, "suspicious": 30}
    lost = event("task-needs", key="Index-3", types="shop.Index", **needs)
    floats = event("task-needs", key="Index-3", types="float", **needs)
    waits, gathers, asks = (
        event("workload", gathered=gathered, kinds="", futures=16, awaited=kind)
        for gathered, kind in ((False, "Index"), (True, "Index"), (True, "best"))
    )

    assert found(waits, lost).memory.reason == found(asks, lost).memory.reason == "results-stored"
    assert found(waits, floats).memory.reason != "results-stored"
    assert found(gathers, lost).memory.reason != "results-stored"


def test_collections_that_are_persisted_and_lost_again_and_again_were_stored():
    """Dask measures a dictionary by a few of its items; small ones, or such as are gathered, fill no worker."""
    needs = {"key": "series-3", "kind": "series", "finished": 35, "tasks": 35, "types": "dict", "suspicious": 30}
    persisted = event("workload", gathered=False, kinds="delayed")
    large, small = (event("task-needs", made_bytes=35 * each, **needs) for each in (4 * MIB, 1000))

    assert found(persisted, large).memory.reason == "results-stored"
    assert found(persisted, small).memory.reason == "leak"
    assert found(event("workload", gathered=True, kinds="delayed"), large).memory.reason == "leak"


def test_of_two_reasons_between_which_nothing_decides_both_changes_are_told():
    """None is named, but there is something to try, with its small probability."""
    call = event("workload", gathered=True, kinds="delayed", embedded_bytes=100 * MIB, embedded_task_bytes=MIB)
    diagnosis = found(call)

    assert diagnosis.memory.reason is None
    assert [each.kind for each in diagnosis.cures] == ["data-in-tasks", "threads"]
    assert all(each.probability < 0.5 for each in diagnosis.cures)


def test_the_partition_that_dask_makes_for_the_types_of_a_frame_is_a_piece():
    """``from_map`` without ``meta=`` runs one task, alone: it is not the one task that nobody can cut."""
    call = event("workload", gathered=True, kinds="delayed", widest_kind="make_meta", widest_inputs=1)
    task = event("task-needs", key="read_hits-1", kind="read_hits", suspicious=4)
    diagnosis = found(call, task, tasks=("read_hits-1",))

    assert diagnosis.memory.reason == "pieces-too-large"
    assert diagnosis.cures[0].kind == "piece-size"


def test_workers_that_die_of_the_last_task_of_compute_bring_everything_together():
    """However large the pieces are, which nobody knows where a function makes them."""

    def call(pieces):
        return event("workload", gathered=True, kinds="dataframe", result_pieces=pieces)

    task = given_up("repartitiontofewer", finished=0)
    many, one = found(call(40), task), found(call(1), task)
    small = evolve(call(40), fields={**call(40).fields, "result_bytes": 20 * MIB})

    assert many.memory.reason == "brought-together"
    assert many.cures[0].kind == "do-not-collect"
    assert one.memory.reason != "brought-together"
    assert found(small, task).memory.reason != "brought-together"


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
    assert diagnosis.cures[0].kind == "do-not-collect"


def test_a_task_that_takes_very_many_inputs_brings_them_together():
    """The inputs are the scheduler's own numbers."""
    needs = event("task-needs", key="sum-1", kind="sum", inputs=40, inputs_bytes=900 * MIB)
    diagnosis = found(event("workload", gathered=True, futures=1), needs)

    assert diagnosis.memory.reason == "brought-together"
    assert diagnosis.memory.inputs.bytes == 900 * MIB
    assert diagnosis.cures[0].kind == "do-not-collect"


def test_partitions_that_a_repartition_puts_into_one_come_together():
    """Smaller ones where the frame is read would change nothing."""
    call = event("workload", gathered=True, kinds="dataframe")
    rows, row_bytes = 11_000_000, 60
    size = rows * row_bytes
    read = event(
        "workload-step",
        name="readparquet",
        is_source=True,
        piece_bytes=size // 88,
        pieces=88,
        rows=rows // 88,
        row_bytes=row_bytes,
    )
    joined = {"pieces": 1, "piece_bytes": size, "inputs_bytes": size, "rows": rows, "row_bytes": row_bytes}
    repartition = event("workload-step", name="repartition", inputs=88, **joined)
    own = event("workload-step", name="lambda", inputs=1, is_opaque=True, **joined)
    diagnosis = found(call, read, repartition, own)

    assert diagnosis.memory.reason == "brought-together"
    assert [each.kind for each in diagnosis.cures] == ["do-not-collect"]
    assert diagnosis.cures[0].change.startswith("# no repartition(npartitions=1): keep the 88 partitions; and if ")

    large = event("workload-step", **{**read.fields, "piece_bytes": 400 * MIB, "pieces": 2})
    assert found(call, large, repartition, own).memory.reason == "pieces-too-large"  # reading them may be it


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


def test_every_axis_of_a_chunk_that_is_cut_is_shortened_alike():
    """But not an axis that is whole, as what comes next may need it whole, or that a rechunk has made whole."""
    plain = Step(name="ones", piece_bytes=512 * 10**6, shape=(16000, 16000), chunk=(8000, 8000))
    tall = Step(name="ones", piece_bytes=320 * 10**6, shape=(1_000_000, 400), chunk=(100_000, 400))
    in_time = Step(name="rechunk-merge", piece_bytes=480 * 10**6, shape=(60, 1000, 1000), chunk=(60, 1000, 1000))
    one_day = Step(name="ones", piece_bytes=8 * 10**6, shape=(60, 1000, 1000), chunk=(1, 1000, 1000))

    assert smaller_chunk(plain, 32 * MIB) == (2048, 2048)
    assert smaller_chunk(tall, 32 * MIB) == (10485, 400)
    assert smaller_chunk(in_time, 32 * MIB, one_day) == (60, 264, 264)


def test_a_whole_axis_is_shortened_where_the_others_do_not_suffice():
    """An array in a single chunk, and one whose other axis cannot become short enough."""
    single = Step(name="ones", piece_bytes=512 * 10**6, shape=(8000, 8000), chunk=(8000, 8000))
    pages = Step(name="ones", piece_bytes=2 * 8 * 10**8, shape=(40, 10_000, 10_000), chunk=(2, 10_000, 10_000))

    assert smaller_chunk(single, 32 * MIB) == (2048, 2048)
    assert smaller_chunk(pages, 32 * MIB) == (1, 2048, 2048)


def test_an_outer_operation_is_cut_where_its_inputs_are_made():
    """Each piece of one array meets each of another: a quarter of the result is half of each of both."""
    line = "a = da.random.random(60_000, chunks=6_000)"
    made = event(
        "workload-step", name="random_sample", variable="a", made_by=line, piece_bytes=48_000, pieces=10,
        shape="60000", chunk="6000", dtype="float64", is_source=True,
    )  # fmt: skip
    outer = event(
        "workload-step", name="sub", piece_bytes=288_000_000, pieces=100, inputs_bytes=96_000, inputs=2,
        shape="60000 x 60000", chunk="6000 x 6000", dtype="float64",
    )  # fmt: skip
    first = found(CALL, made, outer).cures[0]

    assert first.kind == "piece-size"
    chunk = int(first.change.removeprefix("a = da.random.random(60_000, chunks=(").partition(",")[0])
    assert chunk**2 * 8 <= first.value < 288_000_000 / 4


def test_a_rechunk_is_changed_in_the_callers_own_line():
    """A second rechunk behind it would not make its pieces smaller; the step that takes them has no other place."""
    merged = event(
        "workload-step", name="rechunk-merge", variable="pixels", made_by="pixels = x.rechunk((1500, side, side))",
        piece_bytes=240_000_000, pieces=9, inputs_bytes=240_000_000, inputs=9, shape="1500 x 400 x 400",
        chunk="1500 x 141 x 141", dtype="float64",
    )  # fmt: skip
    taken = array_step("lambda", piece=159_000, inputs=240_000_000, count=1, is_opaque=True)
    source = array_step(is_source=True, variable="x", piece=64_000_000, made_by="x = da.zeros(shape, chunks=50)")
    first = found(CALL, source, merged, taken).cures[0]

    assert first.kind == "piece-size"
    assert first.change.startswith("pixels = x.rechunk((1500, ")


def test_a_rechunk_to_other_axes_has_smaller_chunks_on_its_way_too():
    """Dask makes chunks of 128 MiB between rows and columns, whatever is asked for."""
    rows, columns = (
        {"piece_bytes": 256_000_000, "pieces": 4, "shape": "16000 x 8000", "chunk": chunk, "dtype": "float64"}
        for chunk in ("4000 x 8000", "16000 x 2000")
    )
    source = event("workload-step", name="random-sample", is_source=True, **rows)
    turned = event("workload-step", name="rechunk-merge", inputs=4, inputs_bytes=256_000_000, **columns)
    first = found(CALL, source, turned).cures[0]

    assert first.change.startswith('dask.config.set({"array.chunk-size": "32MiB"}); rechunk((16000, ')


@pytest.mark.parametrize(
    ("line", "start"),
    [
        ("s = xr.DataArray(da.zeros((730, 90, 360), chunks=(730, 45, 90)), dims=d)", "s = xr.DataArray(da.zeros((730, 90, 360), chunks=("),
        ("s = xr.open_zarr(path, chunks='auto').sst", "s = xr.open_zarr(path, chunks={'time': "),
        ("s = load(path)", "chunks={'time': "),
    ],
)  # fmt: skip
def test_chunks_are_written_as_the_function_of_the_line_takes_them(line, start):
    """Only functions of xarray take them by the names of dimensions."""
    step = event(
        "workload-step", name="zeros", variable="s", made_by=line, piece_bytes=480_000_000, pieces=9,
        shape="730 x 900 x 3600", chunk="730 x 90 x 900", dims="time, lat, lon", dtype="float64", is_source=True,
    )  # fmt: skip

    assert found(CALL, step).cures[0].change.startswith(start)


def test_the_copies_of_a_function_of_ones_own_are_known_only_at_least():
    """The worker was ended while it made them: pieces leave room for twice as many, and no limit is called enough."""
    step = array_step("features", piece=60 * MIB, inputs=60 * MIB, count=1, is_opaque=True)
    diagnosis = found(CALL, array_step(piece=60 * MIB, is_source=True), step)
    first = diagnosis.cures[0]

    assert diagnosis.memory.reason == "pieces-too-large"
    assert first.kind == "piece-size"
    assert diagnosis.memory.floor.bytes + 2 * 8 * first.value <= 0.6 * LIMIT
    assert first.probability < 0.7
    assert "worker-memory" not in {each.kind for each in diagnosis.cures}


def test_small_pieces_of_which_a_function_of_ones_own_makes_many_are_still_its_pieces():
    """Workers held 11 times a piece for each task; that many tasks had finished before is then no sure leak."""
    step = array_step("features", piece=24 * MIB, inputs=24 * MIB, count=1, is_opaque=True)
    needs = event("task-needs", key="features-9", kind="features", finished=30, began=34)
    diagnosis = found(CALL, array_step(piece=24 * MIB, is_source=True), step, needs)

    assert diagnosis.memory.reason == "pieces-too-large"
    assert diagnosis.memory.copies.bytes == (640 - 100) // 2 * MIB - 2 * 24 * MIB
    assert diagnosis.cures[0].value <= 8 * MIB
    assert diagnosis.cures[0].probability < 0.6


def test_few_rows_of_which_a_merge_makes_many_are_no_buffers():
    """What is exchanged is known, and little: the keys are there many times on both sides."""
    step = event(
        "workload-step", name="merge", by_key=True, key="station", key_share=0.02, pieces=8, inputs_bytes=200_000
    )
    needs = event("task-needs", key="hashjoinp2p-1", kind="hashjoinp2p")
    diagnosis = found(event("workload", gathered=True, kinds="dataframe"), step, needs)

    assert diagnosis.memory.reason == "skew"
    assert "drop_duplicates('station')" in diagnosis.cures[0].change


@pytest.mark.parametrize(
    ("made_bytes", "reason"), [(4 * MIB, "skew"), (100 * MIB, "shuffle-buffers"), (None, "shuffle-buffers")]
)
def test_the_scheduler_knows_whether_sources_made_little(made_bytes, reason):
    """The rows that a function makes are not known from its types."""
    sources = [
        event("workload-step", name=name, is_source=True, row_bytes=16, pieces=4)
        for name in ("orders", "customers")
    ]
    made = [
        event("tasks-made", kind=name, finished=4, tasks=4, made_bytes=made_bytes)
        for name in ("orders", "customers")
        if made_bytes
    ]
    step = event("workload-step", name="merge", by_key=True, key="country", pieces=4, row_bytes=24)
    needs = event("task-needs", key="hashjoinp2p-1", kind="hashjoinp2p")
    call = event("workload", gathered=True, kinds="dataframe", sources=2)
    diagnosis = found(call, *sources, step, needs, *made)

    assert diagnosis.memory.reason == reason


@pytest.mark.parametrize(("rows_bytes", "reason"), [(12 * MIB, "skew"), (30 * MIB, "shuffle-buffers")])
def test_small_pieces_need_no_large_buffers(rows_bytes, reason):
    """Workers that die while they exchange them have one group that is too large; of larger ones, the buffers are."""
    call = event("workload", gathered=True, kinds="dataframe", sources=1)
    day = event("workload-step", name="day", is_source=True, row_bytes=24, pieces=24)
    step = event("workload-step", name="groupbyapply", by_key=True, key="symbol", pieces=24)
    made = event("tasks-made", kind="day", finished=24, tasks=24, made_bytes=24 * rows_bytes)
    needs = event("task-needs", key="shuffle-transfer-1", kind="shuffle-transfer")

    diagnosis = found(call, day, step, needs, made)

    assert diagnosis.memory.reason == reason
    assert ("piece-size" in [each.kind for each in diagnosis.cures]) is (reason == "shuffle-buffers")


def test_a_function_that_blows_its_piece_up_gets_smaller_ones():
    """It ran alone and its first task ended the worker: nobody else is left to hold the memory."""
    call = event("workload", gathered=True, kinds="array")
    step = event(
        "workload-step",
        name="disparity",
        piece_bytes=2 * MIB,
        inputs=2,
        inputs_bytes=16 * MIB,
        chunk="1024 x 1024",
        shape="6144 x 6144",
        dtype="int16",
        is_opaque=True,
    )
    needs = event("task-needs", key="disparity-mean-1", kind="disparity-mean", suspicious=4)
    diagnosis = found(call, step, needs, tasks=("disparity-mean-1",))

    assert diagnosis.memory.reason == "pieces-too-large"
    assert diagnosis.cures[0].kind == "piece-size"


def test_a_block_of_text_is_the_matter_of_tasks_that_read_it():
    """Workers that die of what comes long after it are no sign of what its function makes."""
    call = event("workload", gathered=True, kinds="bag")
    size = {"piece_bytes": 30 * MIB, "inputs_bytes": 30 * MIB, "pieces": 20}
    step = event("workload-step", name="read-block", is_source=True, is_opaque=True, argument="blocksize", **size)
    reads, folds = given_up("loads-read-block", finished=1), given_up("foldby-aggregate", finished=1)

    assert found(call, step, reads).memory.reason == "pieces-too-large"
    assert found(call, step, folds).memory.reason != "pieces-too-large"


def test_what_is_written_out_already_is_left_in_parts():
    """A refusal of a repartition into one, before ``to_parquet``: to write it out is no news."""
    call = event("workload", gathered=True, kinds="dataframe", code="df.to_parquet(folder)", result_pieces=1)
    needs = event(
        "task-needs", key="repartitiontofewer-1", kind="repartitiontofewer", inputs=36, inputs_bytes=900 * MIB
    )

    assert "no repartition" in found(call, needs).cures[0].change


def test_a_task_that_has_others_run_and_takes_their_results_brings_them_together():
    """The scheduler knows how large they were; a few, or small ones, say nothing."""
    call = event("workload", gathered=True, futures=1)
    needs = event("task-needs", key="ensemble-1", kind="ensemble", clients=1)
    made = event("tasks-made", kind="member", finished=40, tasks=40, made_bytes=40 * 30 * MIB)
    small = event("tasks-made", kind="member", finished=40, tasks=40, made_bytes=40 * MIB)

    assert found(call, needs, made, tasks=("ensemble-1",)).memory.reason == "brought-together"
    assert found(call, needs, small, tasks=("ensemble-1",)).memory.reason != "brought-together"


def test_what_waits_for_all_that_workers_died_of_brings_it_together():
    """Workers kept the results for it: that many were finished before is no leak."""
    call = event("workload", gathered=True, kinds="", futures=1)
    killed = event("task-needs", key="load-7", kind="load", finished=30, suspicious=6)
    waits = event("task-needs", key="finalize-1", kind="finalize", inputs=20, inputs_bytes=900 * MIB)
    diagnosis = found(call, killed, waits)

    assert diagnosis.memory.reason == "brought-together"
    assert diagnosis.cures[0].kind == "do-not-collect"
    assert found(call, killed).memory.reason == "leak"


def test_of_a_standstill_the_kind_that_lost_workers_had_is_what_they_died_of():
    """Nothing was raised: the task that is waited for never ran, and those that exchange rows did."""
    step = event("workload-step", name="setindex", by_key=True, key="day", pieces=90)
    awaited = event("task-needs", key="total-1", kind="total", inputs=3, suspicious=0)
    kinds = [
        event("task-needs", kind="load", suspicious=1),
        event("task-needs", kind="shuffle-transfer", suspicious=9),
    ]
    diagnosis = found(event("workload", gathered=True, kinds="dataframe"), step, awaited, *kinds)

    assert diagnosis.memory.reason == "shuffle-buffers"
    assert [each.kind for each in diagnosis.cures] == ["piece-size", "threads"]


@pytest.mark.parametrize("each_bytes", [400 * MIB, 20 * MIB])
def test_persisted_results_that_no_cluster_holds_are_stored_results(each_bytes):
    """Smaller ones are not."""
    call = event("workload", gathered=False, kinds="array", persisted_bytes=2 * each_bytes)
    two = event("cluster", type="LocalCluster", worker_limit_bytes=LIMIT, worker_threads=2, workers_wanted=2)
    diagnosis = pipeline.diagnose([*deaths(610 * MIB), two, LOCAL, call], BOOK)

    named = [each.reason for each in diagnosis.memory.reasons[:1]]
    assert (named == ["results-stored"]) is (each_bytes == 400 * MIB)


def test_memory_of_data_that_wait_with_their_tasks_is_no_leak():
    """A paused worker that runs nothing holds the arguments of what it is to run."""
    call = event("workload", gathered=True, kinds="delayed", embedded_bytes=160 * MIB, embedded_type="ndarray")
    state = event("worker-state", status="paused", memory_bytes=530 * MIB, limit_bytes=LIMIT, stored_bytes=100)
    diagnosis = found(call, state, event("task-needs", kind="backtest", finished=6))

    assert "leak" not in {each.reason for each in diagnosis.memory.reasons}


def test_chunks_that_dask_makes_on_the_way_to_those_of_a_rechunk_follow_its_configuration():
    """No line of the caller says how large they are."""
    between = array_step("rechunk-merge", piece=200 * MIB, inputs=200 * MIB, count=5, is_between=True)
    final = array_step("rechunk-merge", piece=16 * MIB, inputs=16 * MIB, count=30, variable="pixels")
    first = found(CALL, between, final, array_step(piece=60 * MIB, is_source=True)).cures[0]

    assert first.kind == "piece-size"
    assert first.change.startswith('dask.config.set({"array.chunk-size": "')


def test_a_task_that_takes_many_inputs_by_the_graph_brings_them_together():
    """The scheduler has forgotten it, so nobody knows how large they are."""
    needs = event("task-needs", key="concat-1", kind="concat")
    calls = [event("workload", gathered=True, kinds="delayed", widest_kind=kind, widest_inputs=18) for kind in ("concat", "load")]  # fmt: skip

    assert found(calls[0], needs, tasks=("concat-1",)).memory.reason == "brought-together"
    assert found(calls[1], needs, tasks=("concat-1",)).memory.reason != "brought-together"


def test_results_are_kept_on_all_workers_that_there_are_to_be():
    """One of two was just lost."""
    one = event("worker-state", status="running", memory_bytes=400 * MIB, limit_bytes=LIMIT, nthreads=2)
    two = event("cluster", type="LocalCluster", worker_limit_bytes=LIMIT, worker_threads=2, workers_wanted=2)
    kept = event("task-needs", kind="random_sample", kept=12, kept_bytes=700 * MIB)
    diagnosis = pipeline.diagnose([*deaths(610 * MIB), two, LOCAL, one, kept], BOOK)

    assert "results-stored" not in {each.reason for each in diagnosis.memory.reasons}


def test_the_source_of_pieces_is_the_large_one_and_what_shapes_them():
    """A table that is merged, or an array that meets them, is cut for itself; a piece is measured where it is large."""
    read = event("workload-step", name="read", is_source=True, row_bytes=24, pieces=3, argument="blocksize")
    table = event("workload-step", name="frompandas", is_source=True, piece_bytes=2 * MIB, pieces=1)
    made = event("tasks-made", kind="read", finished=1, tasks=3, made_bytes=190 * MIB)
    frame = event("workload", gathered=True, kinds="dataframe")
    in_graph = {"embedded_bytes": 2 * MIB, "embedded_task_bytes": 2 * MIB, "embedded_partitioned": True}
    merged = found(evolve(frame, fields={**frame.fields, **in_graph}), table, read, made)

    assert "data-in-graph" not in [each.reason for each in merged.memory.reasons]
    assert merged.cures[0].kind == "piece-size"
    assert merged.cures[0].value > 4 * MIB
    assert "from_pandas" not in merged.cures[0].change

    died = event("task-needs", key="read-1", kind="read", suspicious=9)
    unknown = found(frame, table, read, event("workload-step", name="merge", by_key=True, pieces=3), died)
    assert unknown.memory.reason == "pieces-too-large"
    assert "from_pandas" not in unknown.cures[0].change

    size = {"dtype": "float64", "argument": "chunks"}
    other = event(
        "workload-step",
        name="array",
        is_source=True,
        piece_bytes=1_440_000,
        chunk="3000 x 60",
        shape="3000 x 240",
        **size,
    )
    cells = event(
        "workload-step",
        name="linspace",
        is_source=True,
        variable="lat",
        piece_bytes=80_000,
        chunk="10000",
        shape="40000",
        **size,
    )
    weights = event(
        "workload-step",
        name="weights",
        inputs_bytes=80_000,
        inputs=1,
        piece_bytes=240_000_000,
        pieces=4,
        is_opaque=True,
        chunk="10000 x 3000",
        shape="40000 x 3000",
        **size,
    )
    spread = found(CALL, other, cells, weights)

    assert spread.cures[0].value in (8 * MIB, 16 * MIB)
    assert "chunks=(699,)" in spread.cures[0].change or "chunks=(349,)" in spread.cures[0].change
    assert "lat" in spread.cures[0].change


def test_a_reduction_whose_results_stay_large_brings_them_together():
    """Each of its tasks takes eight of what the others gave: groups of which nearly every row has its own."""
    call = event("workload", gathered=True, kinds="dataframe", result_pieces=1)
    needs = {"key": "groupbyagg-tree-1", "kind": "groupbyagg-tree", "finished": 18, "tasks": 6, "suspicious": 14}
    large = found(call, event("task-needs", made_bytes=370 * MIB, **needs), tasks=("groupbyagg-tree-1",))
    small = found(call, event("task-needs", made_bytes=MIB, **needs), tasks=("groupbyagg-tree-1",))

    assert large.memory.reason == "brought-together"
    assert large.cures[0].kind == "do-not-collect"
    assert "split_out" in large.cures[0].change
    assert small.memory.reason != "brought-together"

    planes = event("task-needs", made_bytes=370 * MIB, **needs | {"kind": "groupby_nanmean-aggregate"})
    assert "split_out" not in found(CALL, planes, tasks=("groupbyagg-tree-1",)).cures[0].change
    cut = found(CALL, SOURCE, PRODUCT, planes, tasks=("groupbyagg-tree-1",))
    assert cut.memory.reason == "pieces-too-large"  # their sizes are known, so smaller ones help
