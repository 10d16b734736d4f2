"""Whether work fits before it runs: each grade, with its sum and the changes after which it should fit."""

from __future__ import annotations

import pytest

from workerdiag.model.evidence import Event
from workerdiag.rulebook.load import load_rulebook
from workerdiag.scoring.memory_account import Workload
from workerdiag.scoring.work_check import check_work

MIB = 2**20
LIMIT = 600 * MIB
RULES = load_rulebook().reasons


def event(topic, **fields):
    return Event(topic=topic, fields=fields)


def worker(**more):
    fields = {"memory_bytes": 100 * MIB, "limit_bytes": LIMIT, "stored_bytes": 0, "nthreads": 2}
    return event("worker-state", status="running", executing_count=0, **{**fields, **more})


def array(piece, inputs=0, pieces=20, **more):
    fields = {"piece_bytes": piece, "pieces": pieces, "inputs_bytes": inputs, "inputs": 2 if inputs else 0}
    return event(
        "workload-step", name="add", chunk="1000 x 1000", shape="9000 x 9000", dtype="float64", **fields, **more
    )


def checked(*events, call=None, workers=2, **of_worker):
    fields = {"place": "main (work.py:3)", "gathered": True, "kinds": "array", **(call or {})}
    called = event("workload", **fields)
    return check_work(Workload.of_events([called, *events, *[worker(**of_worker)] * workers]), "local", RULES)


@pytest.mark.parametrize(
    ("piece", "grade"),
    [(8, "fits"), (40, "tight"), (100, "too-many-threads"), (200, "will-not-fit")],
)
def test_the_tasks_of_the_largest_step_are_held_against_the_limit(piece, grade):
    """Its inputs, its result and a copy, once and for each thread."""
    found = checked(array(piece * MIB, inputs=2 * piece * MIB))
    assert found.grade == grade
    assert found.is_alarm == (grade in ("too-many-threads", "will-not-fit"))
    assert "the limit is 600 MiB" in found.why


def test_fewer_pieces_than_threads_run_at_once():
    """A single task has the worker for itself."""
    assert checked(array(100 * MIB, inputs=200 * MIB, pieces=1)).grade == "tight"


def test_what_would_not_fit_comes_with_the_changes_that_help():
    """As after a death: smaller pieces, fewer threads, more memory, each with its sum."""
    found = checked(array(100 * MIB, inputs=200 * MIB, is_source=False))
    assert [each.kind for each in found.cures] == ["piece-size", "threads", "worker-memory"]
    assert "threads_per_worker=1" in str(found)
    assert checked(array(8 * MIB)).cures == ()


def test_a_repartition_that_puts_all_into_one_is_to_be_left_out():
    """Smaller partitions where the frame is read would not make its one partition smaller."""
    size = 660 * MIB
    joined = {"inputs": 88, "inputs_bytes": size, "piece_bytes": size, "pieces": 1, "rows": 10**7, "row_bytes": 66}
    read = {"is_source": True, "piece_bytes": size // 88, "pieces": 88, "rows": 10**5, "argument": "partition_freq"}
    steps = [
        event("workload-step", name=name, **of) for name, of in (("timeseries", read), ("repartition", joined))
    ]
    found = checked(*steps, call={"kinds": "dataframe", "gathered": False})
    assert found.grade == "will-not-fit"
    assert found.cures[0].kind == "do-not-collect"
    assert "no repartition(npartitions=1)" in found.cures[0].change


def test_a_result_that_comes_together_is_too_big_twice():
    """Its parts and the whole are held by one worker."""
    found = checked(array(8 * MIB), call={"result_bytes": 300 * MIB})
    assert (found.grade, found.cures[0].kind) == ("result-too-big", "do-not-collect")


def test_data_in_one_task_may_be_more_than_a_worker_holds():
    """A single large array is sent whole."""
    found = checked(array(8 * MIB), call={"embedded_bytes": 700 * MIB, "embedded_task_bytes": 700 * MIB})
    assert (found.grade, found.memory.reason) == ("will-not-fit", "data-in-graph")


def test_a_frequent_key_brings_its_rows_together():
    """The pieces are small, the group is not."""
    keyed = event("workload-step", name="groupbyapply", by_key=True, key="user", key_share=0.97, pieces=10)
    found = checked(
        keyed, call={"embedded_bytes": 400 * MIB, "embedded_task_bytes": 40 * MIB, "kinds": "dataframe"}
    )
    assert (found.grade, found.cures[0].kind) == ("will-not-fit", "spread-key")


def test_without_sizes_nothing_is_promised():
    """Nor without a limit."""
    unread = event("workload-step", name="read-csv", is_source=True, pieces=3)
    assert checked(unread).grade == "not-known"
    assert checked(array(8 * MIB), limit_bytes=None).grade == "not-known"
    assert checked(unread, call={"result_bytes": 8 * MIB}).grade == "not-known"


@pytest.mark.parametrize(
    "more",
    [{"name": "read-csv", "is_source": True}, {"name": "merge", "by_key": True, "inputs_bytes": 8 * MIB}],
    ids=["an unread file", "rows by key"],
)
def test_a_part_of_unknown_size_leaves_no_all_clear(more):
    """What is known may fit, or be too large by itself."""
    assert checked(array(8 * MIB), event("workload-step", pieces=3, **more)).grade == "not-known"
    assert checked(array(200 * MIB), event("workload-step", pieces=3, **more)).grade == "too-many-threads"


def test_what_workers_store_already_takes_room():
    """It goes to disk from some share of the limit on, and not before."""
    assert checked(array(40 * MIB)).grade == "fits"
    assert checked(array(40 * MIB), stored_bytes=300 * MIB).grade == "tight"


def test_what_must_go_to_disk_is_told_with_the_room_there():
    """It may still succeed, slowly."""
    disk = event("spill-disk", free_bytes=5 * 2**30)
    found = checked(array(8 * MIB), disk, call={"kept_bytes": 2 * 2**30})
    assert "1.49 GiB of that go to disk, where 5 GiB are free" in str(found)


def test_copies_of_a_function_of_ones_own_are_not_known():
    """It says so."""
    assert "What add needs besides its pieces is not known" in str(checked(array(8 * MIB, is_opaque=True)))


def text(text_bytes, piece, least_share=0.5, **more):
    """A step that reads text into frames of which only bounds are known."""
    fields = {"inputs_bytes": text_bytes * MIB, "inputs": 1, "piece_bytes": piece * MIB, "rows": 1000, "pieces": 9}
    return event(
        "workload-step",
        name="read-csv",
        is_source=True,
        argument="blocksize",
        least_share=least_share,
        row_bytes=20,
        **fields,
        **more,
    )


@pytest.mark.parametrize(
    ("piece", "grade"), [(40, "fits"), (60, "tight"), (150, "not-known"), (300, "too-many-threads")]
)
def test_bounds_that_do_not_agree_are_no_answer(piece, grade):
    """An alarm needs the lower one, an all-clear the upper one."""
    found = checked(text(24, piece), call={"kinds": "dataframe"})
    assert found.grade == grade
    assert ("bounds" in found.why) == (piece >= 150)


def test_a_result_of_which_only_the_upper_bound_is_too_big_is_no_alarm():
    """A filter may leave nothing of it."""
    assert checked(array(8 * MIB), call={"result_bytes": 400 * MIB, "result_least_bytes": 0}).grade == "not-known"
    found = checked(array(8 * MIB), call={"result_bytes": 400 * MIB, "result_least_bytes": 300 * MIB})
    assert found.grade == "result-too-big"


def test_text_is_cut_by_its_own_size():
    """The caller gives the bytes of text, the sum has what they become."""
    made = "df = dd.read_csv('a.csv', blocksize=None)"
    found = checked(text(200, 400, made_by=made, variable="df"), call={"kinds": "dataframe"})
    cure = found.cures[0]
    assert (cure.kind, cure.change.split("   #")[0]) == (
        "piece-size",
        f"df = dd.read_csv('a.csv', blocksize={cure.value})",
    )
    assert 100 * MIB + 2 * cure.value / (200 * MIB) * (200 + 400 + 400) * MIB <= 0.6 * LIMIT
