"""Reads a black box: while it is written, after its process was killed, and when it is damaged or hostile."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import groupby
from math import isfinite
from pathlib import Path
from struct import error
from typing import NamedTuple, TypeVar, get_args
from zlib import crc32

from workerdiag.errors import BadBoxError
from workerdiag.model.timeline import MemoryCensus
from workerdiag.recorder.box.layout import (
    CELL_HEAD,
    CELL_OVERHEAD,
    CELL_SUM,
    CLIPPED,
    CONTINUED,
    EXECUTING,
    FINISHED,
    HEADER_BYTES,
    LAG,
    LINE,
    MAX_BYTES,
    MOMENT,
    NUMBER,
    RUNNING,
    SAMPLE_NUMBERS,
    Region,
    fault_path,
    unpack_header,
)
from workerdiag.wire.black_box import (
    BlackBox,
    FinishedTask,
    Lag,
    RegionName,
    RunningTask,
    Sample,
    Stage,
    UnreadablePart,
)
from workerdiag.wire.plain import from_plain

T = TypeVar("T")

#: What `faulthandler` writes of 100 threads; the beginning of it names the signal.
_FAULT_BYTES = 128 * 1024
#: A box that is being written is read again while a part of it cannot be read, at most this often.
_MAX_READS = 5
#: Stands in a line for pieces that were not, or no longer, in the box.
MISSING_PIECE = b"[...]"


def read_box(source: str | os.PathLike[str] | bytes) -> BlackBox:
    """Read a black box, given as a path or as bytes.

    Damaged or half-written parts are left out, and named in `BlackBox.unreadable_parts`. At most 4 MiB are
    read, and 128 KiB of the companion file of `faulthandler`.

    Raises:
        BadBoxError: It is not a black box, has another format, or cannot be read. Nothing else is raised.
    """
    if isinstance(source, bytes):
        return _decode_box(source[:MAX_BYTES], name="")
    path = Path(source)
    stacks = _read_fault(path)
    box = _decode_box(_read_file(path, MAX_BYTES), name=str(path))
    for _ in range(_MAX_READS - 1):
        if not box.unreadable_parts:
            break
        again = _decode_box(_read_file(path, MAX_BYTES), name=str(path))
        box = min(box, again, key=lambda each: len(each.unreadable_parts))
    return box.with_stacks(*stacks)


def read_identity(path: str | os.PathLike[str]) -> Mapping[str, str]:
    """Only who wrote a box; empty if that part is damaged.

    Raises:
        BadBoxError: As `read_box`.
    """
    data = _read_file(Path(path), HEADER_BYTES + 4 * 4096)
    _, regions = _parse_header(data, str(path))
    return _BoxDecoder(data, regions).identity()


def _read_file(path: Path, most_bytes: int) -> bytes:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise BadBoxError(str(path), "it is no regular file")
        with path.open("rb") as file:
            return file.read(most_bytes)
    except (OSError, ValueError) as problem:
        why = getattr(problem, "strerror", None) or str(problem)
        raise BadBoxError(str(path), why[:1].lower() + why[1:]) from None


def _read_fault(path: Path) -> tuple[str, float]:
    """What `faulthandler` wrote, and when it last did."""
    try:
        companion = fault_path(path)
        about = companion.stat()
        if not stat.S_ISREG(about.st_mode):
            return "", 0.0
        with companion.open("rb") as file:
            return file.read(_FAULT_BYTES).decode("utf-8", "replace"), about.st_mtime
    except (OSError, ValueError):
        return "", 0.0


def _parse_header(data: bytes, name: str) -> tuple[float, dict[str, Region]]:
    try:
        return unpack_header(data)
    except ValueError as problem:
        raise BadBoxError(name, str(problem)) from None


def _decode_box(data: bytes, *, name: str) -> BlackBox:
    created_at, regions = _parse_header(data, name)
    decoder = _BoxDecoder(data, regions)
    identity = decoder.identity()
    executing = decoder.executing()
    ended = decoder.ring("finished", decode_finished_task)
    staged_at, stage, reason = next(iter(decoder.pair("state", decode_stage)), (0.0, None, ""))
    samples = decoder.ring("samples", decode_sample)
    lags = decoder.ring("lags", decode_lag)
    lines = decoder.ring("lines", decode_line_piece)
    times = [created_at, staged_at, *(each.started_at or 0.0 for _, each in executing)]
    times += [each.ended_at for _, each in ended] + [each.when for each in lines]
    times += [each.at for each in samples] + [each.at for each in lags]
    return BlackBox(
        identity=identity,
        stage=stage,
        close_reason=reason,
        running_tasks=_still_running(executing, ended),
        finished_tasks=tuple(each for _, each in ended),
        samples=tuple(samples),
        lags=tuple(lags),
        censuses=tuple(decoder.ring("objects", decode_census)),
        last_output=_join_lines(lines).decode("utf-8", "replace"),
        unreadable_parts=tuple(decoder.unreadable_parts),
        created_at=created_at,
        written_at=max(times),
    )


def _still_running(
    executing: list[tuple[int, RunningTask]], ended: list[tuple[int, FinishedTask]]
) -> tuple[RunningTask, ...]:
    """The tasks that run: a process may be killed after it said that one ended, and before its slot was freed."""
    over = {(each.slot, number) for number, each in ended}
    return tuple(each for number, each in executing if (each.slot, number) not in over)


def _join_lines(pieces: list[LinePiece]) -> bytes:
    """Lines in the order they began, each with a line end, and a mark where pieces of it are missing."""
    ordered = sorted(pieces, key=lambda each: (each.number, each.piece))
    return b"".join(_join_pieces(list(line)) for _, line in groupby(ordered, lambda each: each.number))


def _join_pieces(pieces: list[LinePiece]) -> bytes:
    """One record. Behind a missing piece the rest of its line is left out: it may be the rest of a secret."""
    before = [-1, *(each.piece for each in pieces)]
    text, is_cut = b"", False
    for each, last in zip(pieces, before, strict=False):
        data = each.data
        if each.piece != last + 1:
            text, is_cut = text + MISSING_PIECE, True
        if is_cut:
            _, end, data = data.partition(b"\n")
            text, is_cut = text + end, not end
        text += data
    if not pieces[-1].is_last and not is_cut:
        text += MISSING_PIECE
    return text if text.endswith(b"\n") else text + b"\n"


class _BoxDecoder:
    """One look at the bytes of a box, and what could not be read in it."""

    def __init__(self, data: bytes, regions: Mapping[str, Region]) -> None:
        self._data = data
        self._regions = regions
        self.unreadable_parts: list[UnreadablePart] = []

    def identity(self) -> Mapping[str, str]:
        """Who wrote it."""
        return next(iter(self.pair("identity", decode_identity)), {})

    def executing(self) -> list[tuple[int, RunningTask]]:
        """By slot the number of the write and the task, of slots that are in use."""
        region = self._regions.get("running")
        if region is None:
            return self._missing("running")
        latest, torn = pair_cells(self._data, region)
        used = [(slot, cell) for slot, cell in enumerate(latest) if cell is not None and cell.flags & RUNNING]
        read = [
            (cell.number, task)
            for slot, cell in used
            for task in decode_cells([cell], partial(decode_running_task, slot=slot))
            if task is not None
        ]
        self._note("running", torn + len(used) - len(read), len(latest))
        return read

    def pair(self, name: RegionName, read: Callable[[Cell], T]) -> list[T]:
        """What a single pair says: one value, or none."""
        region = self._regions.get(name)
        if region is None:
            return self._missing(name)
        latest, torn = pair_cells(self._data, region._replace(cells=min(region.cells, 2)))
        return self._read(name, [each for each in latest if each is not None], torn, read)

    def ring(self, name: RegionName, read: Callable[[Cell], T]) -> list[T]:
        """What the cells of a ring say, oldest first."""
        region = self._regions.get(name)
        if region is None:
            return self._missing(name)
        whole, torn = ring_cells(self._data, region)
        return self._read(name, whole, torn, read)

    def _read(self, name: RegionName, whole: list[Cell], torn: int, read: Callable[[Cell], T]) -> list[T]:
        values = [each for each in decode_cells(whole, read) if each is not None]
        self._note(name, torn + len(whole) - len(values), self._regions[name].cells)
        return values

    def _note(self, name: RegionName, torn: int, total: int) -> None:
        if torn:
            part = UnreadablePart(region=name, unreadable_count=torn, cell_count=total)
            self.unreadable_parts.append(part)

    def _missing(self, name: RegionName) -> list[T]:
        self.unreadable_parts.append(UnreadablePart(region=name, unreadable_count=0, cell_count=0))
        return []


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


def decode_census(cell: Cell) -> MemoryCensus:
    """The largest objects at one moment; what is not understood of them is left out."""
    try:
        return from_plain(MemoryCensus, json.loads(cell.payload), [])
    except RecursionError:
        raise ValueError("nested too deeply") from None


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
