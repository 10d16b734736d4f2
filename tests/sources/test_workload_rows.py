"""How many rows pieces of files have, and what a row takes: bounds that hold, and no guess where nothing is known."""

from __future__ import annotations

import pytest

from workerdiag.sources.workload.pieces import frame_layers, result_bytes

dd = pytest.importorskip("dask.dataframe")
np = pytest.importorskip("numpy")
pd = pytest.importorskip("pandas")

ROWS = 20_000
RANDOM = np.random.default_rng(0)
FRAMES = {
    "numbers": {"a": RANDOM.integers(0, 1000, ROWS), "b": RANDOM.random(ROWS)},
    "flags": {name: RANDOM.integers(0, 2, ROWS) for name in "abcd"},
    "a counter": {"a": np.arange(ROWS), "b": RANDOM.integers(0, 9, ROWS)},
    "texts": {"a": RANDOM.integers(0, 9, ROWS), "b": [f"customer number {n}" for n in range(ROWS)]},
    "dates": {"a": pd.date_range("2024", periods=ROWS, freq="s").astype(str), "b": RANDOM.random(ROWS).round(3)},
}


def source(frame):
    (found,) = (each for each in frame_layers(frame) if each.is_source)
    return found


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("blocksize", [None, 100_000])
def test_the_rows_of_a_block_of_text_are_within_their_bounds(kind, blocksize, tmp_path):
    """By the bytes of the block and the first lines, which Dask has read; and so is the memory that they take."""
    file = tmp_path / "a.csv"
    pd.DataFrame(FRAMES[kind]).to_csv(file, index=False)
    frame = dd.read_csv(file, blocksize=blocksize)
    most = source(frame)
    least, rows = most.at_least, ROWS * most.inputs_bytes / file.stat().st_size
    part = frame.partitions[0].compute(scheduler="sync")
    bytes_each = part.memory_usage(deep=True, index=False).sum() / len(part)

    assert least.rows <= rows <= most.rows
    assert least.piece_bytes <= 1.2 * rows * bytes_each
    assert rows * bytes_each <= 1.2 * most.piece_bytes
    assert (blocksize or file.stat().st_size) <= most.inputs_bytes <= 2 * (blocksize or file.stat().st_size)
    assert most.argument == "blocksize"


def test_columns_that_the_caller_leaves_out_take_text_and_no_memory(tmp_path):
    """Those that nobody asks for are read and then dropped, as Dask gives the reader options of its own."""
    pd.DataFrame(FRAMES["flags"]).to_csv(tmp_path / "a.csv", index=False)
    chosen, dropped = (
        source(dd.read_csv(tmp_path / "a.csv", usecols=["a"])),
        source(dd.read_csv(tmp_path / "a.csv").a),
    )
    assert (chosen.row_bytes, dropped.row_bytes) == (8, 32)
    assert all(each.at_least.rows <= ROWS <= each.rows for each in (chosen, dropped))


def test_equal_strings_may_be_one_object(tmp_path):
    """So columns of objects take a pointer a row at least, and a string a row at most."""
    frame = pd.DataFrame({"a": np.array(["Berlin", "Paris"])[RANDOM.integers(0, 2, ROWS)]})
    frame.to_csv(tmp_path / "a.csv", index=False)
    found = source(dd.read_csv(tmp_path / "a.csv", dtype={"a": object}))
    assert found.at_least.piece_bytes <= 8 * ROWS
    assert found.piece_bytes >= (57 + 5) * ROWS


def test_categories_take_a_code_a_row(tmp_path):
    """One byte at least, and never a string."""
    pd.DataFrame({"a": list("AB") * (ROWS // 2)}).to_csv(tmp_path / "a.csv", index=False)
    found = source(dd.read_csv(tmp_path / "a.csv", dtype={"a": "category"}))
    assert found.at_least.piece_bytes <= ROWS
    assert ROWS <= found.piece_bytes <= 6 * ROWS


def test_compressed_text_has_no_known_size(tmp_path):
    """It may be ten times as large, or a hundred times."""
    pd.DataFrame(FRAMES["flags"]).to_csv(tmp_path / "a.csv.gz", index=False)
    found = source(dd.read_csv(tmp_path / "a.csv.gz", blocksize=None))
    assert (found.piece_bytes, found.row_bytes) == (None, 32)


@pytest.mark.parametrize("names", [ROWS, 20], ids=["each once", "a number for each of a few"])
def test_the_strings_of_a_parquet_file_are_as_long_as_it_says(names, tmp_path):
    """By what they take there, or else by the smallest and the largest of them."""
    frame = pd.DataFrame({"a": [f"a customer whose number is {n % names:06}" for n in range(ROWS)]})
    frame.to_parquet(tmp_path / "a.parquet")
    found = source(dd.read_parquet(tmp_path / "a.parquet"))
    assert found.rows == ROWS
    assert found.piece_bytes == pytest.approx(33 * ROWS + 8 * ROWS, rel=0.2)


def test_what_a_filter_leaves_may_be_nothing():
    """So the whole result is at most as large as what is filtered."""
    frame = dd.from_pandas(pd.DataFrame(FRAMES["numbers"]), npartitions=4)
    whole, filtered = result_bytes("dataframe", frame), result_bytes("dataframe", frame[frame.a > 500])
    assert whole.least == whole.most == filtered.most > 0
    assert filtered.least == 0
