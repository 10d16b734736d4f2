"""Reads a black box: while it is written, after its process was killed, and when it is damaged or hostile."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, TypeVar
from zlib import crc32

from msgpack import unpackb

from workerdiag.errors import BadBoxError
from workerdiag.model.timeline import MemoryCensus
from workerdiag.recorder.box import layout
from workerdiag.values import frozen
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
from workerdiag.wire.plain import BrokenValueError, from_plain

T = TypeVar("T")

#: What `faulthandler` writes of 100 threads; the beginning of it names the signal.
_FAULT_BYTES = 128 * 1024
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
        return _decode_box(source[: layout.MAX_BYTES], name="the bytes")
    path = Path(source)
    stacks = _read_fault(path)
    box = _decode_box(_read_file(path, layout.MAX_BYTES), name=str(path))
    for _ in range(4):  # it may be being written
        if not box.unreadable_parts:
            break
        again = _decode_box(_read_file(path, layout.MAX_BYTES), name=str(path))
        box = min(box, again, key=lambda each: len(each.unreadable_parts))
    return box.with_stacks(*stacks)


def read_identity(path: str | os.PathLike[str]) -> Mapping[str, str]:
    """Only who wrote a box, empty if that part is damaged; raises BadBoxError as `read_box` does."""
    data = _read_file(Path(path), layout.HEADER_BYTES + 4 * 4096)
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
        companion = layout.fault_path(path)
        return _read_file(companion, _FAULT_BYTES).decode("utf-8", "replace"), companion.stat().st_mtime
    except (BadBoxError, OSError, ValueError):
        return "", 0.0


def _parse_header(data: bytes, name: str) -> tuple[float, dict[str, layout.Region]]:
    try:
        return layout.unpack_header(data)
    except ValueError as problem:
        raise BadBoxError(name, str(problem)) from None


def _decode_box(data: bytes, *, name: str) -> BlackBox:
    created_at, regions = _parse_header(data, name)
    decoder = _BoxDecoder(data, regions)
    identity = decoder.identity()
    executing = decoder.pair("running", _decode_running_task)
    ended = decoder.ring(
        "finished", lambda cell: (_decode("finished", _Write, cell), _decode("finished", FinishedTask, cell))
    )
    state = next(iter(decoder.pair("state", partial(_decode, "state", _State))), None)
    samples = decoder.ring("samples", partial(_decode, "samples", Sample))
    lags = decoder.ring("lags", partial(_decode, "lags", Lag))
    lines = decoder.ring("lines", partial(_decode, "lines", LinePiece))
    times = [created_at, state.at if state else 0.0, *(each.started_at or 0.0 for _, each in executing)]
    times += [each.ended_at for _, each in ended]
    times += [each.at for part in (samples, lags, lines) for each in part]
    # A process may be killed after it said that a task ended, and before it freed the slot.
    over = {write for write, _ in ended}
    return BlackBox(
        identity=identity,
        stage=state.stage if state else None,
        close_reason=state.reason if state else "",
        running_tasks=tuple(task for write, task in executing if write not in over),
        finished_tasks=tuple(each for _, each in ended),
        samples=tuple(samples),
        lags=tuple(lags),
        censuses=tuple(decoder.ring("objects", partial(_decode, "objects", MemoryCensus))),
        last_output=_join_lines(lines).decode("utf-8", "replace"),
        unreadable_parts=tuple(decoder.unreadable_parts),
        created_at=created_at,
        written_at=max(times),
    )


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

    def __init__(self, data: bytes, regions: Mapping[str, layout.Region]) -> None:
        self._data = data
        self._regions = regions
        self.unreadable_parts: list[UnreadablePart] = []

    def identity(self) -> Mapping[str, str]:
        return next((each.texts for each in self.pair("identity", partial(_decode, "identity", _Identity))), {})

    def pair(self, name: RegionName, read: Callable[[Cell], T]) -> list[T]:
        """What pairs of cells say that are in use."""
        latest, torn = pair_cells(self._data, self._regions[name])
        return self._read(name, [each for each in latest if each and each.payload], torn, read)

    def ring(self, name: RegionName, read: Callable[[Cell], T]) -> list[T]:
        """What the cells of a ring say, oldest first."""
        return self._read(name, *ring_cells(self._data, self._regions[name]), read)

    def _read(self, name: RegionName, whole: list[Cell], torn: int, read: Callable[[Cell], T]) -> list[T]:
        values = []
        for cell in whole:
            try:
                values.append(read(cell))
            except ValueError:  # its checksum fits, and it makes no sense
                torn += 1
        if torn:
            cells = self._regions[name].cells
            self.unreadable_parts.append(UnreadablePart(region=name, unreadable_count=torn, cell_count=cells))
        return values


class Cell(NamedTuple):
    """A cell that is whole."""

    #: Of its write, from 1.
    number: int
    #: Its place in the region, from 0.
    place: int
    payload: bytes


#: Stands for a cell that is not whole.
TORN = Cell(0, 0, b"")


def ring_cells(data: bytes, region: layout.Region) -> tuple[list[Cell], int]:
    """The whole cells of a region in the order they were written, and how many could not be read."""
    cells, torn = [], 0
    for index in range(region.cells):
        cell = _read_cell(data, region, index, region.cells)
        torn += cell is TORN
        if cell and cell is not TORN:
            cells.append(cell)
    return sorted(cells), torn


def pair_cells(data: bytes, region: layout.Region) -> tuple[list[Cell | None], int]:
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


def _read_cell(data: bytes, region: layout.Region, index: int, turns: int) -> Cell | None:
    """A cell, None if it was never written, `TORN` if it is not whole."""
    start = region.offset + index * region.cell_bytes
    raw = data[start : min(start + region.cell_bytes, region.end)]
    if len(raw) < layout.CELL_OVERHEAD:
        return TORN
    (checksum,) = layout.CELL_SUM.unpack_from(raw)
    length, number = layout.CELL_HEAD.unpack_from(raw, layout.CELL_SUM.size)
    if number == checksum == length == 0:
        return None
    following = raw[layout.CELL_SUM.size : layout.CELL_OVERHEAD + length]
    if layout.CELL_OVERHEAD + length > len(raw) or crc32(following) != checksum or number % turns != index % turns:
        return TORN
    return Cell(number, index, raw[layout.CELL_OVERHEAD : layout.CELL_OVERHEAD + length])


# ---------------------------------------------------------------------------------- payloads
@frozen
class _Identity:
    texts: Mapping[str, str]


@frozen
class _State:
    at: float
    stage: Stage
    reason: str = ""


@frozen
class _Write:
    slot: int
    number: int


@frozen
class LinePiece:
    """A piece of a line."""

    at: float
    number: int
    piece: int
    is_last: bool
    data: bytes


def _fields(name: RegionName, cell: Cell) -> dict[str, object]:
    values = unpackb(cell.payload)
    if not isinstance(values, list):
        raise BrokenValueError
    return dict(zip(layout.FIELDS[name], values, strict=False))


def _decode(name: RegionName, kind: type[T], cell: Cell) -> T:
    return from_plain(kind, _fields(name, cell), [])


def _decode_running_task(cell: Cell) -> tuple[_Write, RunningTask]:
    slot = cell.place // 2
    return _Write(slot, cell.number), from_plain(RunningTask, {**_fields("running", cell), "slot": slot}, [])
