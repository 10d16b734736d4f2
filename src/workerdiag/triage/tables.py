"""
Tables in files, as Parquet, CSV or JSON lines: written whole or not at all, and equal rows as equal bytes.
"""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, get_args, get_type_hints

from attrs import asdict

from workerdiag.errors import TableError, error_text
from workerdiag.triage.rows import TABLE_SCHEMA, DeathRow, InputRow

Row = TypeVar("Row", DeathRow, InputRow)
#: The forms that a table can have, as the name of its file ends.
TableFormat = Literal["parquet", "csv", "jsonl"]
TABLE_FORMATS: Final[tuple[TableFormat, ...]] = get_args(TableFormat)

_WRITE_AGAIN = "give a table that triage wrote, or write it again"
#: The column that holds `TABLE_SCHEMA` in each row.
_SCHEMA = "schema"
#: Times are kept to the microsecond, which Parquet's timestamps hold and a float of these years does.
_TIMES = frozenset({"died_at", "modified_at"})
_MICROSECONDS = 1_000_000
#: A spreadsheet takes a cell that begins with one of these for a formula (OWASP, "CSV injection"). With an
#: apostrophe before it the cell is text; reading takes the apostrophe away.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "'")
_READ_CELL: Final[Mapping[type, Callable[[str], object]]] = {int: int, float: float, bool: "True".__eq__}


def write_table(path: str | os.PathLike[str], kind: type[Row], rows: Iterable[Row]) -> Path:
    """
    Write rows, sorted, in the form that the name says: ``.parquet``, ``.csv`` or ``.jsonl``.

    The file appears whole or not at all, and equal rows make equal bytes.

    Raises:
        TableError: The name says no form, pyarrow is missing, or the file cannot be written.
    """
    target = Path(path)
    form = _format_of(target)
    plain = [_plain_row(row) for row in sorted(rows, key=lambda row: row.order)]
    encode = {"parquet": _to_parquet, "csv": _to_csv, "jsonl": _to_json_lines}[form]
    try:
        write_whole(target, encode(target, kind, plain))
    except OSError as problem:
        raise TableError(str(target), error_text(problem), "give another folder") from problem
    return target


def read_table(path: str | os.PathLike[str], kind: type[Row]) -> tuple[Row, ...]:
    """
    The rows of a table that `write_table` wrote.

    Raises:
        TableError: The file cannot be read, is no table of such rows, or pyarrow is missing.
    """
    source = Path(path)
    decode = {"parquet": _from_parquet, "csv": _from_csv, "jsonl": _from_json_lines}[_format_of(source)]
    try:
        return tuple(kind(**_checked(row)) for row in decode(source, kind, source.read_bytes()))
    except TableError:
        raise
    except Exception as problem:  # pyarrow's errors have no class in common
        raise TableError(str(source), error_text(problem), _WRITE_AGAIN) from problem


def write_whole(path: Path, content: bytes) -> None:
    """
    Write a file that appears whole or not at all, with the folders above it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".workerdiag-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).chmod(0o644)  # mkstemp lets nobody else read it
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _format_of(path: Path) -> TableFormat:
    for form in TABLE_FORMATS:
        if path.suffix.lower() == f".{form}":
            return form
    raise TableError(str(path), "its name says no form", "end it in .parquet, .csv or .jsonl")


def _plain_row(row: DeathRow | InputRow) -> dict[str, Any]:
    values = asdict(row)
    for name in _TIMES & values.keys():
        if values[name] is not None:
            values[name] = round(values[name], 6)
    return {_SCHEMA: TABLE_SCHEMA, **values}


def _checked(row: dict[str, Any]) -> dict[str, Any]:
    schema = row.pop(_SCHEMA, None)
    if schema != TABLE_SCHEMA:
        raise ValueError(f"its schema is {schema!r}, this version reads {TABLE_SCHEMA}")
    return row


def _columns(kind: type[DeathRow | InputRow]) -> dict[str, tuple[type, bool]]:
    """
    The type of each column, and whether it may be None.
    """
    columns: dict[str, tuple[type, bool]] = {_SCHEMA: (int, False)}
    for name, hint in get_type_hints(kind).items():
        members = get_args(hint)
        if not members:
            columns[name] = hint, False
        elif type(None) in members:
            columns[name] = members[0], True
        else:  # a Literal
            columns[name] = str, False
    return columns


def _to_json_lines(_: Path, __: type[DeathRow | InputRow], rows: list[dict[str, Any]]) -> bytes:
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows).encode()


def _from_json_lines(_: Path, __: type[DeathRow | InputRow], content: bytes) -> Iterator[dict[str, Any]]:
    yield from map(json.loads, content.splitlines())


def _to_csv(_: Path, kind: type[DeathRow | InputRow], rows: list[dict[str, Any]]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(_columns(kind))
    writer.writerows([_cell(value) for value in row.values()] for row in rows)
    return text.getvalue().encode()


def _cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA_STARTS) else value


def _from_csv(_: Path, kind: type[DeathRow | InputRow], content: bytes) -> Iterator[dict[str, Any]]:
    columns = _columns(kind)
    reader = csv.DictReader(io.StringIO(content.decode(), newline=""))
    if list(reader.fieldnames or ()) != list(columns):
        raise ValueError(f"its columns are not {', '.join(columns)}")
    for row in reader:
        yield {name: _value(cell, *columns[name]) for name, cell in row.items()}


def _value(cell: str, kind: type, may_be_none: bool) -> object:  # noqa: FBT001  as in the table of columns
    if not cell and may_be_none:
        return None
    return cell.removeprefix("'") if kind is str else _READ_CELL[kind](cell)


def _to_parquet(path: Path, kind: type[DeathRow | InputRow], rows: list[dict[str, Any]]) -> bytes:
    arrow, parquet = _pyarrow(path)
    types = {
        name: arrow.timestamp("us", tz="UTC") if name in _TIMES else _arrow_type(arrow, column)
        for name, (column, _) in _columns(kind).items()
    }
    for row in rows:
        for name in _TIMES & row.keys():
            if row[name] is not None:
                row[name] = round(row[name] * _MICROSECONDS)
    file = io.BytesIO()
    parquet.write_table(arrow.Table.from_pylist(rows, arrow.schema(list(types.items()))), file)
    return file.getvalue()


def _from_parquet(path: Path, _: type[DeathRow | InputRow], content: bytes) -> Iterator[dict[str, Any]]:
    arrow, parquet = _pyarrow(path)
    table = parquet.read_table(io.BytesIO(content))
    for name in _TIMES & set(table.column_names):
        table = table.set_column(
            table.column_names.index(name), name, table[name].cast(arrow.timestamp("us")).cast(arrow.int64())
        )
    for row in table.to_pylist():
        for name in _TIMES & row.keys():
            if row[name] is not None:
                row[name] /= _MICROSECONDS
        yield row


def _arrow_type(arrow: Any, column: type) -> Any:
    return {str: arrow.string(), int: arrow.int64(), float: arrow.float64(), bool: arrow.bool_()}[column]


def _pyarrow(path: Path) -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as problem:
        remedy = "pip install 'workerdiag[triage]', or use .csv or .jsonl"
        raise TableError(str(path), "Parquet needs pyarrow", remedy) from problem
    return pa, parquet
