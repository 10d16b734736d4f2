"""Cells of a box: which are whole, and what they say. Made for files that are cut off, damaged or hostile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import isfinite
from struct import error
from typing import NamedTuple, TypeVar, get_args
from zlib import crc32

from workerdiag.recorder.box.layout import (
    CELL_HEAD,
    CELL_OVERHEAD,
    CELL_SUM,
    CLIPPED,
    CONTINUED,
    EXECUTING,
    FINISHED,
    LAG,
    LINE,
    MOMENT,
    NUMBER,
    SAMPLE_NUMBERS,
    Region,
)
from workerdiag.wire.black_box import FinishedTask, Lag, RunningTask, Sample, Stage

T = TypeVar("T")


class Cell(NamedTuple):
    """A cell that is whole."""

    #: Of its write, from 1.
    number: int
    flags: int
    payload: bytes


#: Stands for a cell that is not whole.
TORN = Cell(0, 0, b"")


class LinePiece(NamedTuple):
    """A piece of a line."""

    when: float
    number: int
    piece: int
    is_last: bool
    data: bytes


def ring_cells(data: bytes, region: Region) -> tuple[list[Cell], int]:
    """The whole cells of a region in the order they were written, and how many could not be read."""
    cells, torn = [], 0
    for index in range(region.cells):
        cell = _read_cell(data, region, index, region.cells)
        torn += cell is TORN
        if cell and cell is not TORN:
            cells.append(cell)
    return sorted(cells), torn


def pair_cells(data: bytes, region: Region) -> tuple[list[Cell | None], int]:
    """The later whole cell of each pair, None where nothing was written, and how many pairs could not be read.

    While one cell of a pair is written the other says what was before, so that the pair can be read.
    """
    latest: list[Cell | None] = []
    torn = 0
    for index in range(0, region.cells - 1, 2):
        both = [_read_cell(data, region, each, 2) for each in (index, index + 1)]
        whole = [each for each in both if each is not None and each is not TORN]
        latest.append(max(whole, default=None))
        torn += TORN in both and not whole
    return latest, torn


def _read_cell(data: bytes, region: Region, index: int, turns: int) -> Cell | None:
    """A cell, None if it was never written, `TORN` if it is not whole."""
    start = region.offset + index * region.cell_bytes
    raw = data[start : min(start + region.cell_bytes, region.end)]
    if len(raw) < CELL_OVERHEAD:
        return TORN
    (checksum,) = CELL_SUM.unpack_from(raw)
    length, flags, number = CELL_HEAD.unpack_from(raw, CELL_SUM.size)
    if number == checksum == length == 0:
        return None
    following = raw[CELL_SUM.size : CELL_OVERHEAD + length]
    if CELL_OVERHEAD + length > len(raw) or crc32(following) != checksum or number % turns != index % turns:
        return TORN
    return Cell(number, flags, raw[CELL_OVERHEAD : CELL_OVERHEAD + length])


def decode_cells(cells: list[Cell], read: Callable[[Cell], T]) -> Iterator[T | None]:
    """What each cell says, None for one that has a checksum but no sense."""
    for cell in cells:
        try:
            yield read(cell)
        except (error, ValueError):
            yield None


# ---------------------------------------------------------------------------------- payloads


def decode_identity(cell: Cell) -> dict[str, str]:
    """Names and values, each ended by a zero."""
    parts = [_decode_utf8(each) for each in cell.payload.split(b"\0")]
    return dict(zip(parts[0:-1:2], parts[1::2], strict=False))


def decode_stage(cell: Cell) -> tuple[float, Stage, str]:
    """When it was noted, the stage, and why the worker closes."""
    at, _ = _check_finite(*MOMENT.unpack_from(cell.payload))
    noted, _, reason = cell.payload[MOMENT.size :].partition(b"\0")
    for stage in get_args(Stage):
        if noted == stage.encode():
            return at, stage, _decode_utf8(reason)
    raise ValueError("no stage")


def decode_running_task(cell: Cell, slot: int) -> RunningTask:
    """The task of a slot that is in use."""
    started_at, _, thread_id, key_bytes, name_bytes = EXECUTING.unpack_from(cell.payload)
    key, name = _split_texts(cell.payload[EXECUTING.size :], key_bytes, name_bytes)
    _check_finite(started_at)
    return RunningTask(
        slot=slot,
        key=key,
        is_clipped=bool(cell.flags & CLIPPED),
        thread_id=thread_id,
        thread_name=name,
        started_at=started_at,
    )


def decode_finished_task(cell: Cell) -> tuple[int, FinishedTask]:
    """Number of the write that noted the task's beginning, and the task."""
    started_at, ended_at, took, number, slot, key_bytes, outcome_bytes = FINISHED.unpack_from(cell.payload)
    key, outcome = _split_texts(cell.payload[FINISHED.size :], key_bytes, outcome_bytes)
    _check_finite(started_at, ended_at, took)
    return number, FinishedTask(
        slot=slot,
        key=key,
        is_clipped=bool(cell.flags & CLIPPED),
        started_at=started_at,
        ended_at=ended_at,
        duration_s=took,
        outcome=outcome,
    )


def decode_sample(cell: Cell) -> Sample:
    """Return the numbers that this release knows; those of a later release follow them."""
    at, _ = _check_finite(*MOMENT.unpack_from(cell.payload))
    count = min((len(cell.payload) - MOMENT.size) // NUMBER.size, len(SAMPLE_NUMBERS))
    values = [NUMBER.unpack_from(cell.payload, MOMENT.size + nth * NUMBER.size)[0] for nth in range(count)]
    known = {name: value for name, value in zip(SAMPLE_NUMBERS, values, strict=False) if value >= 0}
    return Sample(at=at, **known)


def decode_lag(cell: Cell) -> Lag:
    """Event loop and GIL."""
    at, _, loop_s, gil = LAG.unpack_from(cell.payload)
    _check_finite(at, loop_s)
    return Lag(at=at, loop_s=loop_s, gil_contention=gil if isfinite(gil) else None)


def decode_line_piece(cell: Cell) -> LinePiece:
    """A piece of a line."""
    when, number, piece = LINE.unpack_from(cell.payload)
    _check_finite(when)
    return LinePiece(when, number, piece, not cell.flags & CONTINUED, cell.payload[LINE.size :])


def _split_texts(data: bytes, first_bytes: int, second_bytes: int) -> tuple[str, str]:
    if first_bytes + second_bytes > len(data):
        raise ValueError("longer than the cell")
    return _decode_utf8(data[:first_bytes]), _decode_utf8(data[first_bytes : first_bytes + second_bytes])


def _decode_utf8(data: bytes) -> str:
    """The text; a character cut in two at the end is left out."""
    whole = data.decode("utf-8", "replace")
    return whole[:-1] if whole.endswith("\ufffd") and not data.endswith("\ufffd".encode()) else whole


def _check_finite(*numbers: float) -> tuple[float, ...]:
    if not all(map(isfinite, numbers)):
        raise ValueError("not a number")
    return numbers
