"""The reading end of a black box: while it is written, after its process was killed, and when it is damaged."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TypeVar

from workerdiag.errors import BadBoxError
from workerdiag.recorder.box import cells
from workerdiag.recorder.box.companions import fault_path
from workerdiag.recorder.box.layout import HEADER_BYTES, MAX_BYTES, RUNNING, Region, unpack_header
from workerdiag.wire.black_box import BlackBox, FinishedTask, RegionName, RunningTask, UnreadablePart

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
        return _decode_box(source[:MAX_BYTES], name="", fault="")
    path = Path(source)
    fault = _read_fault(path)
    box = _decode_box(_read_file(path, MAX_BYTES), name=str(path), fault=fault)
    for _ in range(_MAX_READS - 1):
        if not box.unreadable_parts:
            break
        again = _decode_box(_read_file(path, MAX_BYTES), name=str(path), fault=fault)
        box = min(box, again, key=lambda each: len(each.unreadable_parts))
    return box


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


def _read_fault(path: Path) -> str:
    """What `faulthandler` wrote, if anything."""
    try:
        companion = fault_path(path)
        if not stat.S_ISREG(companion.stat().st_mode):
            return ""
        with companion.open("rb") as file:
            return file.read(_FAULT_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


def _parse_header(data: bytes, name: str) -> tuple[float, dict[str, Region]]:
    try:
        return unpack_header(data)
    except ValueError as problem:
        raise BadBoxError(name, str(problem)) from None


def _decode_box(data: bytes, *, name: str, fault: str) -> BlackBox:
    created_at, regions = _parse_header(data, name)
    decoder = _BoxDecoder(data, regions)
    identity = decoder.identity()
    executing = decoder.executing()
    ended = decoder.ring("finished", cells.decode_finished_task)
    staged_at, stage, reason = next(iter(decoder.pair("state", cells.decode_stage)), (0.0, None, ""))
    samples = decoder.ring("samples", cells.decode_sample)
    lags = decoder.ring("lags", cells.decode_lag)
    lines = decoder.ring("lines", cells.decode_line_piece)
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
        last_output=_join_lines(lines).decode("utf-8", "replace"),
        faulthandler_dump=fault,
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


def _join_lines(pieces: list[cells.LinePiece]) -> bytes:
    """Lines in the order they began, each with a line end, and a mark where pieces of it are missing."""
    ordered = sorted(pieces, key=lambda each: (each.number, each.piece))
    return b"".join(_join_pieces(list(line)) for _, line in groupby(ordered, lambda each: each.number))


def _join_pieces(pieces: list[cells.LinePiece]) -> bytes:
    before = [-1, *(each.piece for each in pieces)]
    parts = [
        each.data if each.piece == last + 1 else MISSING_PIECE + each.data
        for each, last in zip(pieces, before, strict=False)
    ]
    if not pieces[-1].is_last:
        parts.append(MISSING_PIECE)
    line = b"".join(parts)
    return line if line.endswith(b"\n") else line + b"\n"


class _BoxDecoder:
    """One look at the bytes of a box, and what could not be read in it."""

    def __init__(self, data: bytes, regions: Mapping[str, Region]) -> None:
        self._data = data
        self._regions = regions
        self.unreadable_parts: list[UnreadablePart] = []

    def identity(self) -> Mapping[str, str]:
        """Who wrote it."""
        return next(iter(self.pair("identity", cells.decode_identity)), {})

    def executing(self) -> list[tuple[int, RunningTask]]:
        """By slot the number of the write and the task, of slots that are in use."""
        region = self._regions.get("running")
        if region is None:
            return self._missing("running")
        latest, torn = cells.pair_cells(self._data, region)
        used = [(slot, cell) for slot, cell in enumerate(latest) if cell is not None and cell.flags & RUNNING]
        read = [
            (cell.number, task)
            for slot, cell in used
            for task in cells.decode_cells([cell], partial(cells.decode_running_task, slot=slot))
            if task is not None
        ]
        self._note("running", torn + len(used) - len(read), len(latest))
        return read

    def pair(self, name: RegionName, read: Callable[[cells.Cell], T]) -> list[T]:
        """What a single pair says: one value, or none."""
        region = self._regions.get(name)
        if region is None:
            return self._missing(name)
        latest, torn = cells.pair_cells(self._data, region._replace(cells=min(region.cells, 2)))
        return self._read(name, [each for each in latest if each is not None], torn, read)

    def ring(self, name: RegionName, read: Callable[[cells.Cell], T]) -> list[T]:
        """What the cells of a ring say, oldest first."""
        region = self._regions.get(name)
        if region is None:
            return self._missing(name)
        whole, torn = cells.ring_cells(self._data, region)
        return self._read(name, whole, torn, read)

    def _read(
        self, name: RegionName, whole: list[cells.Cell], torn: int, read: Callable[[cells.Cell], T]
    ) -> list[T]:
        values = [each for each in cells.decode_cells(whole, read) if each is not None]
        self._note(name, torn + len(whole) - len(values), self._regions[name].cells)
        return values

    def _note(self, name: RegionName, torn: int, total: int) -> None:
        if torn:
            part = UnreadablePart(region=name, unreadable_count=torn, cell_count=total)
            self.unreadable_parts.append(part)

    def _missing(self, name: RegionName) -> list[T]:
        self.unreadable_parts.append(UnreadablePart(region=name, unreadable_count=0, cell_count=0))
        return []
