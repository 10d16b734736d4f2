"""How many rows a piece of a frame has, and what a row takes, where they are made or read.

Nothing is read but the footers of Parquet files of this machine, the sizes of text files, and the first rows of a
text file, which Dask has read when the frame was made.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from workerdiag.sources.internals import embedded_frame, expression_part
from workerdiag.values import frozen

#: At most this many footers, row groups of a file, blocks of text, and sizes of text files are looked at.
_MAX_FOOTERS, _MAX_GROUPS, _MAX_BLOCKS, _MAX_SIZES = 3, 200, 10_000, 20
#: Bytes of a string in a column besides its text: as an object of Python and the pointer to it, or of Arrow.
_OBJECT_BYTES, _ARROW_BYTES = 57, 8
#: The most and the least that a value takes where it refers to one that others share.
_CODE_BYTES, _LEAST_BYTES = 4, {"object": 8, "category": 1}
#: Characters of a string that nobody knows.
_USUAL_CHARS = 16
#: Lines of a text are as long as the first ones, give or take this share; and the columns in which those count up
#: (0, 1, 2 ...) grow by so many characters at most.
_LINE_SHARE, _COUNTER_CHARS = 0.25, 6
#: Most characters of a value in a column that the caller leaves out.
_UNREAD_CHARS = 20


@frozen(kw_only=True)
class PieceRows:
    """The rows of the largest piece of a source."""

    #: None if only reading would tell.
    rows: int | None = None
    row_bytes: int = 0
    #: Bytes of the text that is read for it.
    text_bytes: int = 0
    #: Where only bounds are known: the lower one by the upper, which `rows` is.
    least_share: float | None = None


def source_rows(node: Any, names: set[str], count: int) -> PieceRows:
    """The rows of the largest of *count* pieces of a source of the classes *names*."""
    each, rows = row_bytes(expression_part(node, "_meta")), None
    if "FromPandas" in names:
        rows = -(-len(embedded_frame(node)) // max(count, 1))
    elif "Timeseries" in names:
        pandas = sys.modules["pandas"]  # which made the frame
        periods = map(pandas.tseries.frequencies.to_offset, map(node.operand, ("partition_freq", "freq")))
        piece, row = map(pandas.Timedelta, periods)
        rows = int(piece / row)
    elif "FromArray" in names:
        size = node.operand("chunksize")
        rows = int(size) if isinstance(size, int) else None
    elif "ReadParquet" in names:
        return _rows_of_parquet(node, count)
    elif "FromMap" in names and is_text(node):
        return _rows_of_text(node)
    return PieceRows(rows=rows, row_bytes=each)


def row_bytes(meta: Any) -> int:
    """Bytes of one row in memory, with its index."""
    dtypes = list(getattr(meta, "dtypes", ())) if hasattr(meta, "columns") else [getattr(meta, "dtype", None)]
    return sum(_value_bytes(each) * count for each, count in Counter(dtypes).items()) + _index_bytes(meta)


def _index_bytes(meta: Any) -> int:
    index = getattr(meta, "index", None)
    return 0 if type(index).__name__ == "RangeIndex" else _value_bytes(getattr(index, "dtype", None))


def _value_bytes(dtype: Any, chars: float = _USUAL_CHARS) -> int:
    if dtype is None:
        return 0
    if _is_text_type(dtype):
        return round(chars) + (_OBJECT_BYTES if str(dtype) == "object" else _ARROW_BYTES)
    if str(dtype) == "category":
        return _CODE_BYTES
    size = getattr(dtype, "itemsize", None)
    return int(size) if isinstance(size, int) else 8


def _is_text_type(dtype: object) -> bool:
    return str(dtype).startswith(("object", "string", "str"))


def is_text(node: Any) -> bool:
    """Whether an expression ``FromMap`` is a read of text in lines, such as ``read_csv``."""
    return "head" in getattr(node.operand("func"), "keywords", {})


def _rows_of_text(node: Any) -> PieceRows:
    """Bounds of the rows, from the bytes of the largest block and the length of the first lines."""
    given = node.operand("func").keywords
    head, options = given["head"], given["kwargs"]
    text_bytes = largest_block_bytes(node.operand("iterables")[0])
    wanted = node.operand("columns")
    # Dask reads all columns if there are options.
    parsed = head if options or wanted is None else head[list(wanted)]
    chars = {name: head[name].astype(str).str.len().mean() for name in head.columns}
    sizes = [(parsed[name].dtype, chars[name]) for name in parsed.columns]
    each = sum(_value_bytes(dtype, many) for dtype, many in sizes)
    if text_bytes is None:
        return PieceRows(row_bytes=each)
    line = len(head.to_csv(index=False, header=False).encode()) / len(head)
    separator = str(options.get("sep") or options.get("delimiter") or ",")
    unread = max(0, given["header"].decode(errors="replace").count(separator) + 1 - len(head.columns))
    counters = sum(_counts_up(head[name]) for name in head.columns)
    longest = (1 + _LINE_SHARE) * line + counters * _COUNTER_CHARS + unread * _UNREAD_CHARS
    shortest = (1 - _LINE_SHARE) * line + unread
    return PieceRows(
        rows=max(1, int(text_bytes / shortest)),
        row_bytes=each,
        text_bytes=text_bytes,
        least_share=round(shortest / longest * _least_bytes(sizes) / max(each, 1), 3),
    )


def _least_bytes(sizes: Iterable[tuple[Any, float]]) -> int:
    """Bytes of one row if its objects are those of other rows: pandas makes one object of equal strings."""
    return sum(_LEAST_BYTES.get(str(dtype)) or _value_bytes(dtype, many) for dtype, many in sizes)


def _counts_up(column: Any) -> bool:
    is_counted = column.dtype.kind == "i" or _is_text_type(column.dtype)
    return bool(is_counted and len(column) > 1 and column.is_unique and column.is_monotonic_increasing)


def largest_block_bytes(blocks: Iterable[Any]) -> int | None:
    """Bytes of the largest block: tasks ``read_block_from_file(file, offset, length, delimiter)``.

    A block without a length is a whole file. None if the text is compressed.
    """
    files, most = {}, 0
    for block in islice(blocks, _MAX_BLOCKS):
        file, _, length, *_ = block.args
        if file.compression is not None:
            return None
        if length is None:
            files[file.path] = file
        else:
            most = max(most, int(length))
    return max([most, *(int(each.fs.info(each.path)["size"]) for each in islice(files.values(), _MAX_SIZES))])


def _rows_of_parquet(node: Any, count: int) -> PieceRows:
    meta = expression_part(node, "_meta")
    files = _parquet_files(node)
    local = [each for each in islice(files, _MAX_FOOTERS) if isinstance(each, str) and Path(each).is_file()]
    if not local:
        return PieceRows(row_bytes=row_bytes(meta))
    from pyarrow.parquet import read_metadata

    footers = [read_metadata(each) for each in local]
    if count > len(files):
        groups = (
            footer.row_group(at) for footer in footers for at in range(min(footer.num_row_groups, _MAX_GROUPS))
        )
        rows = max((each.num_rows for each in groups), default=0)
    else:
        rows = max(each.num_rows for each in footers) * max(1, len(files) // max(count, 1))
    chars = _chars_in_columns(footers)
    dtypes = meta.dtypes.items() if hasattr(meta, "columns") else [(meta.name, meta.dtype)]
    each = sum(_value_bytes(dtype, chars.get(str(name), _USUAL_CHARS)) for name, dtype in dtypes)
    return PieceRows(rows=rows, row_bytes=each + _index_bytes(meta))


def _parquet_files(node: Any) -> Sequence[Any]:
    parameters = expression_part(node, "_parameters")
    cache = node.operand("_dataset_info_cache") if "_dataset_info_cache" in parameters else None
    files = list(getattr((cache or {}).get("ds"), "files", ()))
    if not files:
        path = node.operand("path")
        files = [path] if isinstance(path, str) else list(islice(path or (), _MAX_FOOTERS))
    return files


def _chars_in_columns(footers: Iterable[Any]) -> dict[str, float]:
    """Characters of a string of each column.

    What a column takes in the file tells it, unless each string is there once and numbers stand for it: then the
    smallest and the largest string do.
    """
    found: dict[str, float] = {}
    groups = [footer.row_group(0) for footer in footers if footer.num_row_groups]
    for column in (group.column(at) for group in groups for at in range(group.num_columns)):
        if column.physical_type != "BYTE_ARRAY" or not column.num_values:
            continue
        chars = column.total_uncompressed_size / column.num_values - 4  # the length is written before each
        statistics = column.statistics
        if column.has_dictionary_page and statistics is not None and statistics.has_min_max:
            chars = max(chars, (len(statistics.min) + len(statistics.max)) / 2)
        found[column.path_in_schema] = max(chars, found.get(column.path_in_schema, 0.0))
    return found
