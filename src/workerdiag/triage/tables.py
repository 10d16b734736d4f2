"""The two tables that triage writes: deaths, and the inputs they were found in, as Parquet, CSV or JSON lines."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final, Literal, TypeVar, get_args, get_type_hints

from attrs import NOTHING, asdict, field, fields
from attrs.validators import and_, ge, in_, le

from workerdiag.errors import TableError, error_text
from workerdiag.guard import guarded
from workerdiag.model.normalize import normalize_fields
from workerdiag.model.vocabulary import Outcome, Verdict
from workerdiag.serialization import problem_lines, strict_converter
from workerdiag.values import frozen

if TYPE_CHECKING:
    from cattrs import Converter

#: Version of the table format; it grows with each change that a reader could notice.
TABLE_SCHEMA: Final = 1

#: How the reading of one part ended. ``done``: it was read to its end. ``empty``: it is empty. ``not-a-log``:
#: its format is not supported, or nothing in its text is recognized. ``failed``: it could not be read
#: completely.
InputStatus = Literal["done", "empty", "not-a-log", "failed"]


@frozen(kw_only=True, field_transformer=normalize_fields)
class DeathRow:
    """One death of a worker, with its likeliest cause. None means not known."""

    #: Key of its watched case or its repeats; equal for deaths of the same trouble.
    case: str
    #: Id and family of the likeliest cause; None if "unknown" is likelier than any cause.
    cause: str | None = None
    family: str | None = None
    probability: float = field(default=0.0, validator=and_(ge(0.0), le(1.0)))
    outcome: Outcome
    blame: Verdict = "unknown"
    #: Whether somebody asked the worker to stop; nobody needs to act then.
    stop_requested: bool = False
    host: str | None = None
    #: Addresses of the worker and its nanny, as Dask wrote them.
    worker: str | None = None
    nanny: str | None = None
    #: The worker's name, if it was given one.
    name: str | None = None
    pid: int | None = None
    #: Seconds since 1970 (UTC).
    died_at: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    distributed_version: str | None = None
    #: Python version, such as ``3.12``.
    python_version: str | None = None
    #: Address of the scheduler of the run.
    scheduler: str | None = None
    #: Id of the cluster run: equal for all rows whose logs were judged together.
    run: str
    #: Where the death is first reported: the input, and the byte offset of that message in its unpacked text.
    url: str
    offset: int = field(validator=ge(0))
    #: Run time of the tasks that were lost with the worker, in seconds.
    lost_compute_s: float | None = None
    rss_bytes: int | None = None
    limit_bytes: int | None = None
    #: The strongest evidence for the cause, quoted.
    evidence: str = ""
    #: Release of the knowledge base that judged the death.
    knowledge: str

    @property
    def order(self) -> tuple[object, ...]:
        """The sort key of deaths in a table: where they are reported, then who died."""
        who = self.worker or "", self.pid or 0, self.died_at or 0.0
        return (self.url, self.offset, *who, self.case, self.run)


@frozen(kw_only=True, field_transformer=normalize_fields)
class InputRow:
    """One part of an input, and how reading it ended. All rows together are the manifest."""

    url: str
    #: Changes with the input's content: its tag in a store, or size and time; None: not known.
    etag: str | None = None
    size_bytes: int | None = None
    #: Seconds since 1970 (UTC).
    modified_at: float | None = None
    #: First byte of the part, and the byte after its last one; None: the part ends with the input.
    first_byte: int = field(default=0, validator=ge(0))
    end_byte: int | None = None
    status: InputStatus = field(validator=in_(("done", "empty", "not-a-log", "failed")))
    #: Why it is not ``done``, or what was left out because it was too much, in words.
    reason: str = ""
    #: Number of bytes read from the file, and of lines of its text.
    read_bytes: int = field(default=0, validator=ge(0))
    lines: int = field(default=0, validator=ge(0))
    #: Id of the cluster run of its text; None if not known.
    run: str | None = None
    #: Release of the knowledge base that searched the part.
    knowledge: str

    @property
    def order(self) -> tuple[object, ...]:
        """The sort key of inputs in a table."""
        return self.url, self.first_byte


Row = TypeVar("Row", DeathRow, InputRow)


def write_table(path: str | os.PathLike[str], kind: type[Row], rows: Iterable[Row]) -> Path:
    """Write sorted rows atomically, by the file extension; equal rows give equal bytes. Raises TableError."""
    target = Path(path)
    form = _form_of(target)
    plain = [_plain_row(row) for row in sorted(rows, key=lambda row: row.order)]
    try:
        write_whole(target, _ENCODERS[form](target, kind, plain))
    except OSError as problem:
        raise TableError(str(target), error_text(problem), folder_remedy(problem)) from problem
    return target


def folder_remedy(problem: OSError) -> str:
    """Return what to do if a folder cannot be written to."""
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free some space and run the same again: it resumes from here"
    return "give another folder"


def read_table(path: str | os.PathLike[str]) -> tuple[RowKind | None, Iterator[DeathRow | InputRow | str]]:
    """Return the kind of rows of a table that `write_table` wrote, by its columns, and the rows one by one.

    Of a row that does not fit it yields what is wrong with it, with its number from 1, without the header of a CSV
    file. The kind is None if there is neither a column nor a row. Raises TableError if the file cannot be read to
    its end, is no table of triage, or pyarrow is missing.
    """
    source = Path(path)
    form = _form_of(source)
    with _naming_errors(source):
        names, rows = _DECODERS[form](source, source.read_bytes())
        kind = next((each for each in (DeathRow, InputRow) if _required(each) <= names), None)
        if names and kind is None:
            raise ValueError("its columns are not those of a triage table")
    return kind, _checked_rows(source, kind, rows) if kind is not None else iter(())


def _checked_rows(source: Path, kind: RowKind, rows: Iterable[ReadRow]) -> Iterator[DeathRow | InputRow | str]:
    with _naming_errors(source):
        for number, read in enumerate(rows, 1):
            with guarded("reading a row") as reading:
                row = _checked(read(kind), kind)
            bad = reading.problem
            yield row if bad is None else f"row {number}: {'; '.join(problem_lines(bad))}"


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


def _form_of(path: Path) -> TableFormat:
    for name in TABLE_FORMATS:
        if path.suffix.lower() == f".{name}":
            return name
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
        remedy = "give a table that triage wrote, or write it again"
        raise TableError(str(source), error_text(problem), remedy) from problem


def _checked(row: object, kind: RowKind) -> DeathRow | InputRow:
    if not isinstance(row, dict):
        raise TypeError("it is not an object")
    schema = row.pop(SCHEMA_COLUMN, None)
    if schema != TABLE_SCHEMA:
        raise ValueError(f"its schema is {schema!r}, this version reads {TABLE_SCHEMA}")
    return row_converter(with_places=True).structure(row, kind)


def _required(kind: RowKind) -> set[str]:
    return {SCHEMA_COLUMN, *(each.name for each in fields(kind) if each.default is NOTHING)}


@cache
def row_converter(*, with_places: bool) -> Converter:
    """Return the converter of rows, and of all that triage keeps; a newer version may have written more."""
    return strict_converter("any", with_places=with_places)


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
#: Returns the cells of one row of that kind. An exception concerns only that row.
ReadRow = Callable[[RowKind], object]


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


_COLUMNS: Final[Mapping[RowKind, Mapping[str, tuple[type, bool]]]] = {
    each: _columns(each) for each in (DeathRow, InputRow)
}


def _to_json_lines(_: Path, __: RowKind, rows: list[dict[str, object]]) -> bytes:
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows).encode()


def _from_json_lines(_: Path, content: bytes) -> tuple[set[str], Iterable[ReadRow]]:
    lines = content.splitlines()
    for line in lines:
        with suppress(ValueError):
            if isinstance(row := json.loads(line), dict):
                return set(row), [lambda _, each=each: json.loads(each) for each in lines]
    if lines:
        raise ValueError("none of its lines is a row")
    return set(), ()


def _to_csv(_: Path, kind: RowKind, rows: list[dict[str, object]]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(_COLUMNS[kind])
    writer.writerows([_cell(value) for value in row.values()] for row in rows)
    return text.getvalue().encode()


def _cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA_STARTS) else value


def _from_csv(_: Path, content: bytes) -> tuple[set[str], Iterable[ReadRow]]:
    records = _csv_records(content)
    names = next(records, [])
    return set(names), (partial(_csv_row, names, cells) for cells in records)


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


def _csv_row(names: list[str], cells: list[str], kind: RowKind) -> dict[str, object]:
    if len(cells) != len(names):
        raise ValueError(f"it has {len(cells)} cells, not {len(names)}")
    row, columns = dict(zip(names, cells, strict=True)), _COLUMNS[kind]
    return {name: _value(row[name], *columns[name]) for name in names if name in columns}


def _value(cell: str, kind: type, may_be_none: bool) -> object:  # noqa: FBT001  as in the table of columns
    if not cell and may_be_none:
        return None
    return cell.removeprefix("'") if kind is str else _READ_CELL[kind](cell)


def _to_parquet(path: Path, kind: RowKind, rows: list[dict[str, object]]) -> bytes:
    arrow, parquet = _pyarrow(path)
    of_type = {str: arrow.string(), int: arrow.int64(), float: arrow.float64(), bool: arrow.bool_()}
    types = {
        name: arrow.timestamp("us", tz="UTC") if name in TIME_COLUMNS else of_type[column]
        for name, (column, _) in _COLUMNS[kind].items()
    }
    for row in rows:
        for name in TIME_COLUMNS & row.keys():
            if isinstance(seconds := row[name], float | int):
                row[name] = round(seconds * _MICROSECONDS)
    file = io.BytesIO()
    parquet.write_table(arrow.Table.from_pylist(rows, arrow.schema(list(types.items()))), file)
    return file.getvalue()


def _from_parquet(path: Path, content: bytes) -> tuple[set[str], Iterable[ReadRow]]:
    arrow, parquet = _pyarrow(path)
    table = parquet.read_table(io.BytesIO(content))
    for name in TIME_COLUMNS & set(table.column_names):
        table = table.set_column(
            table.column_names.index(name), name, table[name].cast(arrow.timestamp("us")).cast(arrow.int64())
        )
    return set(table.column_names), (partial(_parquet_row, row) for row in table.to_pylist())


def _parquet_row(row: dict[str, object], _: RowKind) -> dict[str, object]:
    return {
        name: value / _MICROSECONDS if name in TIME_COLUMNS and isinstance(value, int) else value
        for name, value in row.items()
    }


def _pyarrow(path: Path) -> tuple[ModuleType, ModuleType]:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as problem:
        remedy = "pip install 'workerdiag[triage]', or use .csv or .jsonl"
        raise TableError(str(path), "Parquet needs pyarrow", remedy) from problem
    return pa, parquet


#: What makes a file's content of rows, and returns from it the names of columns and what reads the rows. Each gets
#: the path for its error messages.
_ENCODERS: Final = {"parquet": _to_parquet, "csv": _to_csv, "jsonl": _to_json_lines}
_DECODERS: Final = {"parquet": _from_parquet, "csv": _from_csv, "jsonl": _from_json_lines}


def check_form(form: str) -> None:
    """Raise ValueError or TableError if tables cannot be written in this format, before hours of work."""
    if form not in TABLE_FORMATS:
        raise ValueError(f"form is one of {', '.join(TABLE_FORMATS)}, not {form!r}")
    if form == "parquet":
        _pyarrow(Path("deaths.parquet"))
