"""What is written to a table is read again, the same, in each form."""

from __future__ import annotations

import csv
import errno
import os
import sys

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from workerdiag.errors import TableError
from workerdiag.triage import tables
from workerdiag.triage.tables import TABLE_FORMATS, DeathRow, InputRow, read_table, write_table

DEATH = DeathRow(
    case="0123456789ab",
    cause="nanny.memory-terminate",
    family="nanny",
    probability=0.97,
    outcome="explained",
    blame="task",
    host="10.0.0.4",
    worker="tcp://10.0.0.4:34937",
    pid=129,
    died_at=1_763_000_000.123456,
    signal=15,
    run="cafe",
    url="s3://logs/a.log",
    offset=7,
    knowledge="2026.11",
)
INPUT = InputRow(url="s3://logs/a.log", etag='"9f"', size_bytes=10, status="done", knowledge="2026.11")


def read(path):
    """The kind of rows of a table, and the rows."""
    kind, rows = read_table(path)
    return kind, tuple(rows)


@pytest.mark.parametrize("form", TABLE_FORMATS)
def test_rows_come_back_as_they_were(tmp_path, form):
    """Each form keeps every value, None and the empty text apart."""
    deaths = (DEATH, evolve(DEATH, offset=8, evidence="", pid=None, died_at=None))
    path = write_table(tmp_path / f"deaths.{form}", DeathRow, deaths)
    assert read(path) == (DeathRow, deaths)
    path = write_table(tmp_path / f"inputs.{form}", InputRow, [INPUT])
    assert read(path) == (InputRow, (INPUT,))


@pytest.mark.parametrize("form", TABLE_FORMATS)
def test_equal_rows_make_equal_bytes_in_any_order(tmp_path, form):
    """A table depends on its rows, not on when or in which order they were found."""
    rows = [DEATH, evolve(DEATH, offset=3), evolve(DEATH, url="a.log")]
    one = write_table(tmp_path / f"one.{form}", DeathRow, rows).read_bytes()
    assert one == write_table(tmp_path / f"two.{form}", DeathRow, rows[::-1]).read_bytes()


@pytest.mark.parametrize("form", TABLE_FORMATS)
def test_a_table_without_rows_is_a_table(tmp_path, form):
    """A run that found no death leaves a table that can be read."""
    assert read(write_table(tmp_path / f"deaths.{form}", DeathRow, []))[1] == ()


@given(text=st.text(max_size=30), when=st.floats(0, 4e9))
def test_hostile_text_stays_text_in_csv(tmp_path_factory, text, when):
    """No cell begins as a formula does, and none loses a character."""
    row = evolve(DEATH, evidence=text, died_at=round(when, 6))
    path = write_table(tmp_path_factory.mktemp("csv") / "deaths.csv", DeathRow, [row])
    assert read(path) == (DeathRow, (row,))
    with path.open(newline="", encoding="utf-8") as file:
        cells = {name: cell for name, cell in next(csv.DictReader(file)).items() if name == "evidence"}
    assert not cells["evidence"].startswith(("=", "+", "-", "@", "\t", "\r"))


@pytest.mark.parametrize("form", TABLE_FORMATS)
@pytest.mark.parametrize("content", [b"\0\xff not a table", b"a,b\n1,2\n", b'{"schema": 99}\n', b"[]\n"])
def test_what_is_no_table_is_refused(tmp_path, form, content):
    """Of a file that is something else the error names the file and what to do."""
    path = tmp_path / f"deaths.{form}"
    path.write_bytes(content)
    with pytest.raises(TableError, match=r"deaths.*triage"):
        read(path)


def test_a_name_without_a_form_is_refused(tmp_path):
    """The error says which names there are."""
    with pytest.raises(TableError, match=r"\.parquet, \.csv or \.jsonl"):
        write_table(tmp_path / "deaths.txt", DeathRow, [])


def test_without_pyarrow_the_error_names_the_extra(tmp_path, monkeypatch):
    """Parquet is an extra, the other forms need nothing."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(TableError, match=r"workerdiag\[triage\]"):
        write_table(tmp_path / "deaths.parquet", DeathRow, [DEATH])
    write_table(tmp_path / "deaths.csv", DeathRow, [DEATH])


def test_a_table_that_cannot_be_written_leaves_nothing(tmp_path):
    """The error names the file; no half of it stays behind."""
    (tmp_path / "deaths.csv").mkdir()
    with pytest.raises(TableError, match=r"deaths\.csv"):
        write_table(tmp_path / "deaths.csv", DeathRow, [DEATH])
    assert [each.name for each in tmp_path.iterdir()] == ["deaths.csv"]


@pytest.mark.parametrize(("number", "remedy"), [(errno.ENOSPC, "free some space"), (errno.EROFS, "another folder")])
def test_a_full_disk_is_told_from_a_folder_that_cannot_be_written(tmp_path, monkeypatch, number, remedy):
    """What was read is kept, so that the same command goes on where there is space again."""

    def fail(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(tables, "write_whole", fail)
    with pytest.raises(TableError, match=remedy):
        write_table(tmp_path / "deaths.csv", DeathRow, [DEATH])


@pytest.mark.parametrize(
    ("form", "broken"),
    [
        ("jsonl", b'{"schema": 1, "url'),
        ("jsonl", b"\xff\xfe\x00"),
        ("jsonl", b"[]"),
        ("csv", b'1,"a quotation mark that nothing closes,'),
        ("csv", b"\xff\xfe,\x00"),
        ("csv", b"1," + b"x" * 200_000),
    ],
)
def test_a_broken_row_costs_no_other(tmp_path, form, broken):
    """What is no row is told with its number; the rows before and behind it are read."""
    deaths = [evolve(DEATH, offset=each, evidence='two\nlines, a "quote"') for each in range(3)]
    path = write_table(tmp_path / f"deaths.{form}", DeathRow, deaths)
    head, _, last = path.read_bytes().rpartition(b"1,0123" if form == "csv" else b'{"schema"')
    rest = (b"1,0123" if form == "csv" else b'{"schema"') + last
    path.write_bytes(head + broken + b"\n" + rest)
    rows = read(path)[1]
    assert [each for each in rows if isinstance(each, DeathRow)] == deaths
    (problem,) = [each for each in rows if isinstance(each, str)]
    assert problem.startswith("row 3: ")


def test_a_cell_of_another_type_is_a_broken_row(tmp_path):
    """Whoever reads rows can rely on their types."""
    path = write_table(tmp_path / "deaths.jsonl", DeathRow, [DEATH])
    path.write_text(path.read_text().replace('"pid": 129', '"pid": "129"'))
    (row,) = read(path)[1]
    assert isinstance(row, str)
    assert "pid" in row
