"""Read and write tables as Parquet, CSV or JSON lines. Writing is atomic, and equal rows give equal bytes."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from attrs import NOTHING, asdict, fields, frozen

from workerdiag.errors import TableError, error_text
from workerdiag.serialization import problem_lines, strict_converter
from workerdiag.triage.rows import TABLE_SCHEMA, DeathRow, InputRow
from workerdiag.triage.table_forms import (
    FORMS,
    SCHEMA_COLUMN,
    TABLE_FORMATS,
    TIME_COLUMNS,
    Form,
    ReadRow,
    RowKind,
)

if TYPE_CHECKING:
    from cattrs import Converter

__all__ = [
    "TABLE_FORMATS",
    "BadRow",
    "folder_remedy",
    "kind_of_table",
    "read_rows",
    "read_table",
    "write_table",
    "write_whole",
]

Row = TypeVar("Row", DeathRow, InputRow)

_WRITE_AGAIN = "give a table that triage wrote, or write it again"


@frozen(kw_only=True)
class BadRow:
    """A row that does not fit its table."""

    #: Number of the row, counted from 1, without the header of a CSV file.
    number: int
    problem: str


def write_table(path: str | os.PathLike[str], kind: type[Row], rows: Iterable[Row]) -> Path:
    """Write sorted rows in the format of the file extension: ``.parquet``, ``.csv`` or ``.jsonl``.

    The file is written atomically, and equal rows give equal bytes.

    Raises:
        TableError: The extension is unknown, pyarrow is missing, or the file cannot be written.
    """
    target = Path(path)
    form = _form_of(target)
    plain = [_plain_row(row) for row in sorted(rows, key=lambda row: row.order)]
    try:
        write_whole(target, form.encode(target, kind, plain))
    except OSError as problem:
        raise TableError(str(target), error_text(problem), folder_remedy(problem)) from problem
    return target


def folder_remedy(problem: OSError) -> str:
    """Return what to do if a folder cannot be written to."""
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free some space and run the same again: it resumes from here"
    return "give another folder"


def read_table(path: str | os.PathLike[str], kind: type[Row]) -> tuple[Row, ...]:
    """Return the rows of a table that `write_table` wrote.

    Raises:
        TableError: The file cannot be read, has other rows, or pyarrow is missing.
    """
    rows = []
    for each in read_rows(path, kind):
        if isinstance(each, BadRow):
            raise TableError(str(path), f"row {each.number}: {each.problem}", _WRITE_AGAIN)
        rows.append(each)
    return tuple(rows)


def read_rows(path: str | os.PathLike[str], kind: type[Row]) -> Iterator[Row | BadRow]:
    """Yield the rows of a table one by one. A row that does not fit becomes a `BadRow`.

    Raises:
        TableError: The file cannot be read to its end, or pyarrow is missing.
    """
    source = Path(path)
    form = _form_of(source)
    with _naming_errors(source):
        for number, read in enumerate(form.decode(source, kind, source.read_bytes()), 1):
            try:
                row = _checked(read(), kind)
            except Exception:  # noqa: BLE001  a cell may hold anything
                yield BadRow(number=number, problem=_problem(read, kind))
            else:
                yield row


def kind_of_table(path: str | os.PathLike[str]) -> RowKind | None:
    """Return the kind of rows of a table, by its columns; None if it has none, such as JSON lines without a row.

    Raises:
        TableError: The file cannot be read, is not a table of triage, or pyarrow is missing.
    """
    source = Path(path)
    form = _form_of(source)
    with _naming_errors(source):
        names = form.names(source, source.read_bytes())
        found = [each for each in (DeathRow, InputRow) if _required(each) <= names]
        if names and not found:
            raise ValueError("its columns are not those of a table of triage")
    return found[0] if found else None


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically. Create its folders if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".workerdiag-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).chmod(0o644)  # mkstemp makes it private
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _form_of(path: Path) -> Form:
    for name in TABLE_FORMATS:
        if path.suffix.lower() == f".{name}":
            return FORMS[name]
    raise TableError(str(path), "its extension is not known", "use .parquet, .csv or .jsonl")


def _plain_row(row: DeathRow | InputRow) -> dict[str, object]:
    values = asdict(row)
    for name in TIME_COLUMNS & values.keys():
        if values[name] is not None:
            values[name] = round(values[name], 6)
    return {SCHEMA_COLUMN: TABLE_SCHEMA, **values}


@contextmanager
def _naming_errors(source: Path) -> Iterator[None]:
    try:
        yield
    except TableError:
        raise
    except Exception as problem:  # pyarrow's errors have no common class
        raise TableError(str(source), error_text(problem), _WRITE_AGAIN) from problem


def _problem(read: ReadRow, kind: type[Row]) -> str:
    """Return what is wrong with a row, with the place of each mistake. This is slower than reading."""
    try:
        _checked(read(), kind, with_places=True)
    except Exception as problem:  # noqa: BLE001  as in the first read
        return "; ".join(problem_lines(problem))
    return "it cannot be read"


def _checked(row: object, kind: type[Row], *, with_places: bool = False) -> Row:
    if not isinstance(row, dict):
        raise TypeError("it is not an object")
    schema = row.pop(SCHEMA_COLUMN, None)
    if schema != TABLE_SCHEMA:
        raise ValueError(f"its schema is {schema!r}, this version reads {TABLE_SCHEMA}")
    return _row_converter(with_places=with_places).structure(row, kind)


@cache
def _row_converter(*, with_places: bool) -> Converter:
    return strict_converter("any", with_places=with_places)


def _required(kind: RowKind) -> set[str]:
    return {SCHEMA_COLUMN, *(each.name for each in fields(kind) if each.default is NOTHING)}
