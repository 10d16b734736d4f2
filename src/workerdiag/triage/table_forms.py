"""Convert rows to Parquet, CSV or JSON lines, and back."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Final, Literal, get_args, get_type_hints

from attrs import frozen

from workerdiag.errors import TableError
from workerdiag.triage.rows import DeathRow, InputRow

#: The formats, named like the file extensions.
TableFormat = Literal["parquet", "csv", "jsonl"]
TABLE_FORMATS: Final[tuple[TableFormat, ...]] = get_args(TableFormat)
#: The column that holds `TABLE_SCHEMA` in each row.
SCHEMA_COLUMN: Final = "schema"
#: Columns of times. They have microsecond precision, as Parquet's timestamps and floats of these years do.
TIME_COLUMNS: Final = frozenset({"died_at", "modified_at"})

_MICROSECONDS = 1_000_000
#: A spreadsheet reads a cell that begins with one of these as a formula (OWASP, "CSV injection"). An
#: apostrophe in front makes it text; reading removes the apostrophe.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "'")
_READ_CELL: Final[Mapping[type, Callable[[str], object]]] = {
    int: int,
    float: float,
    bool: {"True": True, "False": False}.__getitem__,
}

RowKind = type[DeathRow | InputRow]
#: Returns the cells of one row. An exception concerns only that row.
ReadRow = Callable[[], object]


@frozen(kw_only=True)
class Form:
    """Functions that convert rows to the content of a file, and back. Each gets the path for its error messages."""

    encode: Callable[[Path, RowKind, list[dict[str, object]]], bytes]
    decode: Callable[[Path, RowKind, bytes], Iterator[ReadRow]]
    #: Returns the names of the columns, if there are any.
    names: Callable[[Path, bytes], set[str]]


def _columns(kind: RowKind) -> dict[str, tuple[type, bool]]:
    """Return the type of each column, and whether it may be None."""
    columns: dict[str, tuple[type, bool]] = {SCHEMA_COLUMN: (int, False)}
    for name, hint in get_type_hints(kind).items():
        members = get_args(hint)
        if not members:
            columns[name] = hint, False
        elif type(None) in members:
            columns[name] = members[0], True
        else:  # a Literal
            columns[name] = str, False
    return columns


def _to_json_lines(_: Path, __: RowKind, rows: list[dict[str, object]]) -> bytes:
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows).encode()


def _from_json_lines(_: Path, __: RowKind, content: bytes) -> Iterator[ReadRow]:
    for line in content.splitlines():
        yield partial(json.loads, line)


def _json_lines_names(_: Path, content: bytes) -> set[str]:
    for line in content.splitlines():
        with suppress(ValueError):
            if isinstance(row := json.loads(line), dict):
                return set(row)
    return set()


def _to_csv(_: Path, kind: RowKind, rows: list[dict[str, object]]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(_columns(kind))
    writer.writerows([_cell(value) for value in row.values()] for row in rows)
    return text.getvalue().encode()


def _cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA_STARTS) else value


def _from_csv(_: Path, kind: RowKind, content: bytes) -> Iterator[ReadRow]:
    columns = _columns(kind)
    records = _csv_records(content)
    if next(records, []) != list(columns):
        raise ValueError(f"its columns are not {', '.join(columns)}")
    for cells in records:
        yield partial(_csv_row, cells, columns)


def _csv_records(content: bytes) -> Iterator[list[str]]:
    """Yield the cells of each record. One with an unclosed quotation mark ends with its first line."""
    lines = list(io.StringIO(content.decode(errors="replace"), newline=""))
    place, width = 0, 0
    while place < len(lines):
        reader = csv.reader((lines[number] for number in range(place, len(lines))), strict=True)
        try:
            cells, used = next(reader), reader.line_num
        except csv.Error:
            cells, used = [], 1
        width = width or len(cells)
        place += used if len(cells) == width else 1
        yield cells


def _csv_names(_: Path, content: bytes) -> set[str]:
    return set(next(_csv_records(content), ()))


def _csv_row(cells: list[str], columns: Mapping[str, tuple[type, bool]]) -> dict[str, object]:
    if len(cells) != len(columns):
        raise ValueError(f"it has {len(cells)} cells, not {len(columns)}")
    return {name: _value(cell, *columns[name]) for name, cell in zip(columns, cells, strict=True)}


def _value(cell: str, kind: type, may_be_none: bool) -> object:  # noqa: FBT001  as in the table of columns
    if not cell and may_be_none:
        return None
    return cell.removeprefix("'") if kind is str else _READ_CELL[kind](cell)


def _to_parquet(path: Path, kind: RowKind, rows: list[dict[str, object]]) -> bytes:
    arrow, parquet = _pyarrow(path)
    types = {
        name: arrow.timestamp("us", tz="UTC") if name in TIME_COLUMNS else _arrow_type(arrow, column)
        for name, (column, _) in _columns(kind).items()
    }
    for row in rows:
        for name in TIME_COLUMNS & row.keys():
            if isinstance(seconds := row[name], float | int):
                row[name] = round(seconds * _MICROSECONDS)
    file = io.BytesIO()
    parquet.write_table(arrow.Table.from_pylist(rows, arrow.schema(list(types.items()))), file)
    return file.getvalue()


def _from_parquet(path: Path, _: RowKind, content: bytes) -> Iterator[ReadRow]:
    arrow, parquet = _pyarrow(path)
    table = parquet.read_table(io.BytesIO(content))
    for name in TIME_COLUMNS & set(table.column_names):
        table = table.set_column(
            table.column_names.index(name), name, table[name].cast(arrow.timestamp("us")).cast(arrow.int64())
        )
    for row in table.to_pylist():
        yield partial(_parquet_row, row)


def _parquet_row(row: dict[str, object]) -> dict[str, object]:
    return {
        name: value / _MICROSECONDS if name in TIME_COLUMNS and isinstance(value, int) else value
        for name, value in row.items()
    }


def _parquet_names(path: Path, content: bytes) -> set[str]:
    _, parquet = _pyarrow(path)
    return set(parquet.read_schema(io.BytesIO(content)).names)


def _arrow_type(arrow: ModuleType, column: type) -> object:
    return {str: arrow.string(), int: arrow.int64(), float: arrow.float64(), bool: arrow.bool_()}[column]


def _pyarrow(path: Path) -> tuple[ModuleType, ModuleType]:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as problem:
        remedy = "pip install 'workerdiag[triage]', or use .csv or .jsonl"
        raise TableError(str(path), "Parquet needs pyarrow", remedy) from problem
    return pa, parquet


FORMS: Final[Mapping[TableFormat, Form]] = {
    "parquet": Form(encode=_to_parquet, decode=_from_parquet, names=_parquet_names),
    "csv": Form(encode=_to_csv, decode=_from_csv, names=_csv_names),
    "jsonl": Form(encode=_to_json_lines, decode=_from_json_lines, names=_json_lines_names),
}


def check_form(form: str) -> None:
    """Check that tables can be written in this format, before hours of work.

    Raises:
        ValueError: There is no such format.
        TableError: pyarrow is missing.
    """
    if form not in TABLE_FORMATS:
        raise ValueError(f"form is one of {', '.join(TABLE_FORMATS)}, not {form!r}")
    if form == "parquet":
        _pyarrow(Path("deaths.parquet"))
