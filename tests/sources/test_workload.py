"""What the caller's process knows of the work: collections, pieces, data in graphs, and the caller's names."""

from __future__ import annotations

import threading
import time
from queue import SimpleQueue
from unittest.mock import Mock

import pytest
from distributed import Future, as_completed

from workerdiag.deadline import Deadline
from workerdiag.model.evidence import Event, Gap
from workerdiag.sources.workload.pieces import array_layers, frame_layers
from workerdiag.sources.workload.source import workload_evidence

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
np = pytest.importorskip("numpy")
pd = pytest.importorskip("pandas")

MIB = 2**20


class LostError(Exception):
    """Stands for what Dask raises when workers die."""


def scheduler(dsk, keys, **options):
    raise LostError


def computed(work):
    """The evidence in the frames of the exception that *work* raises: the call, and its steps by name."""
    with pytest.raises(LostError) as caught:
        work()
    evidence = workload_evidence(caught.value, None, Deadline.after(5))
    assert all(isinstance(each, Event) for each in evidence)
    steps = {each.fields["name"]: each.fields for each in evidence[1:]}
    return evidence[0].fields, steps


def test_an_array_has_the_pieces_of_its_steps_and_the_callers_names():
    """The product takes two chunks and gives one; the source is where the caller made it."""

    def work():
        x = da.random.random((4000, 4000), chunks=2000)
        (x @ x.T).sum().compute(scheduler=scheduler)

    call, steps = computed(work)

    assert call["kinds"] == "array"
    assert call["place"].startswith("work (test_workload.py:")
    assert steps["matmul"]["piece_bytes"] == 2000 * 2000 * 8
    assert steps["matmul"]["inputs_bytes"] == 2 * 2000 * 2000 * 8
    assert steps["random_sample"]["variable"] == "x"
    assert steps["random_sample"]["made_by"] == "x = da.random.random((4000, 4000), chunks=2000)"


@pytest.mark.parametrize(
    ("make", "share"),
    [
        (lambda x: (x @ x.T).sum(), 1),
        (lambda x: (x - x.mean()).sum(), 1),
        (lambda x: (x - x.mean(axis=0)).sum(), 1 / 8),
        (lambda x: (x - x.mean(axis=0, keepdims=True)).sum(), 1 / 8),
        (lambda x: (x + 1).sum(), 0),
        (lambda x: x.rechunk((800, 100)).map_blocks(lambda block: block - block.mean(axis=0)).sum(), 0),
    ],
    ids=["product", "mean-of-all", "mean-of-columns", "the-same-kept-as-a-row", "sum", "whole-columns"],
)
def test_what_must_be_kept_in_all_does_not_depend_on_the_size_of_the_pieces(make, share):
    """A piece that is taken again after all of them were there stays, or its column does; others pass through."""

    def work(chunk):
        return lambda: make(da.ones((800, 800), chunks=chunk)).compute(scheduler=scheduler)

    call, _ = computed(work(100))

    assert (call["kept_bytes"] or 0) == 800 * 800 * 8 * share


def test_a_rechunk_takes_as_much_as_it_gives():
    """Sixty chunks of one day become one chunk of sixty days."""

    def work():
        days = da.ones((60, 100, 100), chunks=(1, 100, 100))
        days.rechunk((60, 100, 100)).map_blocks(np.sort).compute(scheduler=scheduler)

    _, steps = computed(work)

    assert steps["rechunk-merge"]["inputs_bytes"] == 60 * 100 * 100 * 8
    assert steps["rechunk-merge"]["piece_bytes"] == 60 * 100 * 100 * 8


@pytest.mark.parametrize("hungry", [lambda x: da.nanmedian(x, axis=0), lambda x: da.fft.rfft(x, axis=0)])
def test_functions_of_numpy_that_make_many_copies_are_opaque(hungry):
    """Nobody knows how many; of others one is expected."""
    wave = da.random.random((100, 100), chunks=(100, 50))

    _, steps = computed(lambda: hungry(wave + 1).compute(scheduler=scheduler))
    assert [name for name, step in steps.items() if step["is_opaque"]] in (["nanmedian"], ["rfft"])


def test_data_of_the_caller_in_a_graph_are_counted():
    """An array that is added travels with the tasks, as does what a function closes over."""
    table = np.ones(3_000_000)

    def work():
        (da.ones(3_000_000, chunks=1_000_000) + table).sum().compute(scheduler=scheduler)

    def closure():
        da.ones(100, chunks=10).map_blocks(lambda part: part + table[0]).compute(scheduler=scheduler)

    assert computed(work)[0]["embedded_bytes"] >= 24_000_000
    assert computed(closure)[0]["embedded_bytes"] >= 24_000_000


def test_what_one_task_brings_with_it_is_summed():
    """The columns of a table that is an argument; it counts once in all, however many tasks take it."""
    bag = pytest.importorskip("dask.bag")
    table = {"start": np.ones(1_000_000), "country": np.ones(1_000_000, dtype="int32")}
    hours = bag.from_sequence(range(8), npartitions=8)

    call, _ = computed(lambda: hours.map(lambda at, table: table[at], table=table).compute(scheduler=scheduler))
    assert call["embedded_bytes"] == call["embedded_task_bytes"] == 12_000_000


def test_a_long_collection_of_the_caller_travels_with_each_task():
    """A dictionary that a bag's function looks into; the items of a bag itself go to one task each."""
    bag = pytest.importorskip("dask.bag")
    notes = {f"gene{number}": ("chr1", number, f"note {number}") for number in range(20_000)}
    genes = bag.from_sequence(list(notes), npartitions=4)

    call, _ = computed(lambda: genes.map(lambda gene: notes[gene][1]).compute(scheduler=scheduler))
    assert 2 * MIB < call["embedded_bytes"] < 8 * MIB
    assert computed(lambda: genes.map(len).compute(scheduler=scheduler))[0]["embedded_bytes"] is None


def test_a_bag_of_text_has_the_length_of_its_blocks(tmp_path):
    """What is made of the text, nobody knows."""
    bag = pytest.importorskip("dask.bag")
    path = tmp_path / "log.jsonl"
    path.write_text("{}\n" * 100_000)

    _, steps = computed(lambda: bag.read_text(str(path), blocksize=100_000).count().compute(scheduler=scheduler))
    assert steps["read-block"]["inputs_bytes"] == 100_000
    assert steps["read-block"]["pieces"] == 3


def fill(count):
    return [bytes(100) for _ in range(count)]


def grow():
    kept = []
    while kept is not None:
        kept += fill(10)


def refine(count):
    for _ in range(count):
        if not fill(count):
            continue
    return fill(count)


def refine_until_done(count):
    return [grow() for _ in range(count)]


@pytest.mark.parametrize(
    ("function", "loops"), [(grow, "grow"), (refine, None), (fill, None), (refine_until_done, None)]
)
def test_a_function_that_goes_on_until_something_happens_is_named(function, loops):
    """A `while` loop may never end; a `for` loop ends. What an importable function calls is not looked at."""

    def of_delayed():
        dask.delayed(function)(10).compute(scheduler=scheduler)

    assert computed(of_delayed)[0]["loops"] == loops


def failed_futures(*keys):
    """The iterator over futures of which the first has failed."""
    futures = object.__new__(as_completed)
    futures.with_results = futures.raise_errors = True
    pending = [type("Future", (), {"key": key})() for key in keys[1:]]
    futures.queue, futures.futures = SimpleQueue(), dict.fromkeys(pending, 1)
    futures.queue.put((Mock(spec=Future, key=keys[0], status="error"), (LostError, LostError(), None)))
    return futures


def test_a_function_of_futures_is_found_by_its_name():
    """The key of a future begins with the name of the function that the caller has."""

    def work():
        submitted = grow
        return submitted, list(failed_futures("refine-1", "grow-2"))

    assert computed(work)[0]["loops"] == "grow"


def test_a_loop_over_futures_as_they_complete_waits_for_them():
    """``as_completed(..., with_results=True)`` raises by itself."""
    futures = failed_futures("load-1", "load-2")

    call, _ = computed(lambda: list(futures))
    assert call["code"] == "call, _ = computed(lambda: list(futures))"


def test_data_among_the_arguments_of_a_frames_function_travel_with_it():
    """Given to the function, or held by it; a frame that is cut into partitions is another matter."""
    rows = pd.DataFrame({"value": np.ones(100_000)})
    frame = dd.from_map(lambda start: pd.DataFrame({"value": [start]}), range(9))

    def argument():
        frame.map_partitions(lambda part, table: part + len(table), rows, meta={"value": "f8"}).compute(
            scheduler=scheduler
        )

    def closure():
        frame.map_partitions(lambda part: part + len(rows), meta={"value": "f8"}).compute(scheduler=scheduler)

    for work in (argument, closure):
        call = computed(work)[0]
        assert call["embedded_bytes"] >= 800_000
        assert call["embedded_partitioned"] is None
        assert call["result_pieces"] == 9


def test_a_frame_of_this_process_has_rows_and_a_key_that_most_of_them_share():
    """Only a sample of the keys is read, and none of them is told."""
    rows = pd.DataFrame({"user": [7] * 9_700 + list(range(300)), "value": np.ones(10_000)})

    frame = dd.from_pandas(rows, npartitions=10)
    empty = rows.iloc[:0]

    def with_frame():
        frame.groupby("user").apply(lambda group: group, meta=empty).compute(scheduler=scheduler)

    call, steps = computed(with_frame)

    assert call["embedded_type"] == "DataFrame"
    assert call["embedded_partitioned"]
    assert steps["frompandas"]["rows"] == 1000
    assert steps["frompandas"]["variable"] == "frame"
    by_key = next(each for each in steps.values() if each["by_key"])
    assert by_key["key"] == "user"
    assert by_key["key_share"] > 0.9


def test_a_parquet_file_of_this_machine_has_rows_in_its_footer(tmp_path):
    """A read is a source task: nothing behind it makes its piece smaller."""
    pytest.importorskip("pyarrow")
    pd.DataFrame({"a": np.ones(5000), "b": np.ones(5000)}).to_parquet(tmp_path / "one.parquet")
    frame = dd.read_parquet(tmp_path)

    def work():
        frame.map_partitions(lambda part: part).compute(scheduler=scheduler)

    _, steps = computed(work)

    assert steps["read_parquet"]["rows"] == 5000
    assert steps["read_parquet"]["is_source"]


def test_unknown_chunks_and_foreign_collections_are_gaps_and_no_errors():
    """Chunks of unknown length, and an object with an attribute ``dask`` that is no collection."""

    class Foreign:
        dask = property(lambda _: 1 / 0)

    foreign = Foreign()

    def work():
        x = da.ones(1000, chunks=100)
        odd = x[x > 0]
        odd.compute(scheduler=scheduler)
        return foreign

    call, _ = computed(work)

    assert call["kinds"] == "array"
    assert "result_bytes" not in call or not call["result_bytes"]


def test_a_graph_of_a_million_tasks_takes_no_longer():
    """Layers are read, not their tasks."""
    x = da.ones((1000, 1000, 1000), chunks=10)

    def work():
        (x + 1).sum().compute(scheduler=scheduler, optimize_graph=False)

    with pytest.raises(LostError) as caught:
        work()
    began = time.perf_counter()
    evidence = workload_evidence(caught.value, None, Deadline.after(10))

    assert time.perf_counter() - began < 5
    assert evidence[0].topic == "workload"


def test_a_thread_that_waits_is_read_where_nothing_was_raised():
    """A call that hangs has frames as well."""
    begin, end = threading.Event(), threading.Event()

    def wait(dsk, keys, **options):
        begin.set()
        end.wait(10)
        raise LostError

    def work():
        x = da.ones((100, 100), chunks=50)
        with pytest.raises(LostError):
            x.sum().compute(scheduler=wait)

    thread = threading.Thread(target=work)
    thread.start()
    begin.wait(10)
    try:
        evidence = workload_evidence(None, object(), Deadline.after(5))
    finally:
        end.set()
        thread.join()

    assert evidence[0].fields["kinds"] == "array"


def test_what_takes_too_long_is_a_gap(monkeypatch):
    """Reading the caller's objects never holds up the answer."""
    monkeypatch.setattr("workerdiag.sources.workload.source._evidence", lambda *_: time.sleep(2))

    (gap,) = workload_evidence(ValueError(), None, Deadline.after(0.1))

    assert isinstance(gap, Gap)
    assert gap.reason == "timed-out"


@pytest.mark.parametrize(
    ("made", "steps"),
    [
        (
            lambda frame: frame.groupby("k").v.std(),
            ["frompandas"],
        ),  # a square root of what was reduced to one piece
        (lambda frame: frame.head(3, compute=False), ["frompandas"]),
        (lambda frame: frame.repartition(npartitions=1).v + 1, ["frompandas", "repartition"]),
        (lambda frame: frame.repartition(npartitions=2), ["frompandas", "repartition"]),
        (lambda frame: frame.repartition(npartitions=8), ["frompandas"]),
    ],
)
def test_what_was_reduced_is_not_taken_for_rows_brought_together(made, steps):
    """Most end in fewer pieces: those of a repartition have all rows."""
    frame = dd.from_pandas(pd.DataFrame({"k": range(1000), "v": range(1000)}), npartitions=4)
    assert [each.name for each in frame_layers(made(frame))] == steps


@pytest.mark.parametrize(
    ("made", "name", "piece_bytes"),
    [
        (lambda x: x.sum(), "sum", 16),
        (lambda x: x.mean(axis=0), "mean_chunk", 16 * 500),
        (lambda x: x.var(), "var", 8 * 500 * 500),
        (lambda x: da.lib.stride_tricks.sliding_window_view(x, 10, axis=0), "sliding_window_view", 8 * 509 * 50),
    ],
    ids=["a sum", "means of columns", "squares on the way", "a view"],
)
def test_a_step_gives_what_it_leaves_in_memory(made, name, piece_bytes):
    """A reduction of each piece gives little, whatever its layer says; a view holds what it is a view of."""
    steps = {each.name: each for each in array_layers(made(da.ones((2000, 2000), chunks=500)))}
    assert steps[name].piece_bytes == piece_bytes


def test_a_source_of_unknown_size_is_told_beside_a_known_one():
    """Else nobody knew that something is not known."""
    known = dd.from_pandas(pd.DataFrame({"name": ["row 0"] * 1000, "v": range(1000)}), npartitions=4)
    unknown = dd.from_map(named_rows, range(2), meta={"name": "object", "amount": "f8"})
    _, steps = computed(lambda: known.merge(unknown, on="name").compute(scheduler=scheduler))
    assert [bool(each["piece_bytes"]) for each in steps.values() if each["is_source"]] == [True, False]


def test_a_statement_that_still_runs_has_made_nothing():
    """``x = x.persist()`` failed, so *x* is what was there before."""

    def work():
        x = da.random.random((4000, 4000), chunks=2000)
        x = (
            x.sum(axis=0)
            .compute(scheduler=scheduler)
        )  # fmt: skip
        x.clear()

    _, steps = computed(work)

    assert steps["random_sample"]["made_by"] == "x = da.random.random((4000, 4000), chunks=2000)"


def test_what_was_persisted_is_kept_on_the_workers():
    """The graph has futures in the place of its pieces."""
    distributed = pytest.importorskip("distributed")

    def work():
        with distributed.Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None):
            x = da.ones((1000, 100), chunks=(100, 100)).persist()
            (x + 1).compute(scheduler=scheduler)

    call, _ = computed(work)

    assert call["persisted_bytes"] == 1000 * 100 * 8


def test_a_call_that_waits_for_what_was_persisted_computes_it():
    """Its results stay on the workers."""
    distributed = pytest.importorskip("distributed")

    def work():
        with distributed.Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None):
            x = da.ones((1000, 100), chunks=(100, 100)).map_blocks(lambda _: time.sleep(5)).persist()
            distributed.wait(x, timeout=0.1)

    with pytest.raises(TimeoutError) as caught:
        work()
    call = workload_evidence(caught.value, None, Deadline.after(5))[0].fields

    assert call["kinds"] == "array"
    assert not call["gathered"]


def test_a_rechunk_that_the_caller_named_is_a_step_with_its_line():
    """The layers in between, on the way to its chunks, are not the caller's; what takes its pieces is a step, too."""

    def work():
        x = da.random.random((300, 400, 400), chunks=(10, 400, 400))
        pixels = x.rechunk((300, 100, 100))
        pixels.map_blocks(lambda block: block.max(axis=0), drop_axis=0).compute(scheduler=scheduler)

    _, steps = computed(work)

    assert steps["rechunk-merge"]["made_by"] == "pixels = x.rechunk((300, 100, 100))"
    assert steps["rechunk-merge"]["chunk"] == "300 x 100 x 100"
    assert steps["lambda"]["is_opaque"]


def test_a_step_whose_results_have_no_shape_is_as_large_as_what_it_takes():
    """Both parts of a decomposition."""
    _, steps = computed(
        lambda: da.linalg.svd(da.ones((8000, 40), chunks=(1000, 40)))[1].compute(scheduler=scheduler)
    )

    assert steps["qr"]["inputs_bytes"] == steps["qr"]["piece_bytes"] == 1000 * 40 * 8


def test_a_step_that_makes_more_columns_has_larger_pieces():
    """As many rows as before, each wider."""

    def work():
        frame = pd.DataFrame({"sku": pd.Categorical([f"s{n}" for n in range(100)] * 10), "n": range(1000)})
        dd.get_dummies(dd.from_pandas(frame, npartitions=2), columns=["sku"]).sum().compute(scheduler=scheduler)

    _, steps = computed(work)

    (wide,) = [each for name, each in steps.items() if name != "frompandas"]
    assert wide["piece_bytes"] == 500 * wide["row_bytes"]
    assert wide["row_bytes"] > 100


def test_the_task_with_most_inputs_is_known_by_the_schedulers_name():
    """Of work whose results have no known size."""
    dask = pytest.importorskip("dask")
    bag = pytest.importorskip("dask.bag")

    def concat(parts):
        return sum(parts)

    parts = [dask.delayed(float)(n) for n in range(12)]
    call, _ = computed(lambda: dask.delayed(concat)(parts).compute(scheduler=scheduler))
    assert (call["widest_kind"], call["widest_inputs"]) == ("concat", 12)

    numbers = bag.from_sequence(range(40), npartitions=20)
    call, _ = computed(lambda: numbers.fold(max).compute(scheduler=scheduler))
    assert (call["widest_kind"], call["widest_inputs"]) == ("reduce-aggregate", 8)


@pytest.mark.parametrize(
    "made",
    [
        lambda frame: frame.set_index("name").amount.sum(),
        lambda frame: frame.sort_values("name").merge(frame, on="name").amount_x.sum(),
        lambda frame: frame.repartition(partition_size="1MB").amount.sum(),
    ],
    ids=["set_index", "sort_values", "repartition by size"],
)
def test_reading_the_work_computes_nothing(made):
    """Dask asks the workers for the borders of such pieces; they are busy or dead, and nothing is to run on them."""
    frame = made(dd.from_map(named_rows, range(4), meta={"name": "object", "amount": "f8"}))

    def refuse(dsk, keys, **options):
        pytest.fail("something is computed")

    with dask.config.set(scheduler=refuse):
        steps = {each.name: each for each in frame_layers(frame)}

    assert steps["named_rows"].pieces == 4


def named_rows(number):
    return pd.DataFrame({"name": [f"row {number}"], "amount": [1.0]})
