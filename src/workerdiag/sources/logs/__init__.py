"""
Log text from wherever the caller has it, in bounded memory and bounded time.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from attrs import evolve, frozen

from workerdiag.errors import BundleError
from workerdiag.model.evidence import Evidence, Gap, LogChunk, Looked
from workerdiag.sources.logs.decompress import BLOCK_BYTES, ZipArchiveError
from workerdiag.sources.logs.gaps import counted_bytes, gap_of, timed_out, unread
from workerdiag.sources.logs.inputs import LogInput, OneLog, kind_of, logs_in, name_of

#: Name and bytes of a zip archive to the evidence in it; None: it is no death bundle.
Unbundle = Callable[[str, bytes], Sequence[Evidence] | None]

#: An input that gives nothing for so long is left alone, if others wait.
_STALL_S = 1.0
#: How long a reader may take to notice that time is up.
_GRACE_S = 0.05
#: Blocks read ahead, at most a MiB each.
_AHEAD = 4


class LogSource:
    """
    The logs a caller names: paths, globs, folders, fsspec URLs, ``-``, open files, `LogText`.

    Each log comes as `LogChunk` pieces of about 1 MiB, in order, one log after the other, and
    `Looked` (place ``log <origin>``) after its end. What is packed is unpacked (gzip, zstd,
    bzip2, xz, told by content); UTF-16 and UTF-32 with a byte order mark become UTF-8. An input
    that cannot be read, or not wholly, is a `Gap`; the others are still used.

    Reading is done in a thread, so that a file system, a pipe or a server that hangs costs time
    but no more than there is; such a thread is left behind.

    Args:
        inputs: What to read. The same path twice is read once.
        stream: Who wrote it all, where the caller knows (one of `model.evidence.STREAMS`).
        unbundle: Gives the evidence in a death bundle of that name and those bytes; None for a zip
            archive that is no bundle, and is a `Gap` then. Without it every zip archive is one.
    """

    name = "logs"

    def __init__(
        self, inputs: Iterable[LogInput], *, stream: str | None = None, unbundle: Unbundle | None = None
    ) -> None:
        self._inputs = tuple(inputs)
        self._stream = stream
        self._unbundle = unbundle
        #: Logs and bundles of which anything could be read, counted by `collect`.
        self.readable_count = 0
        #: What could not be read, or not wholly; gaps that a bundle tells of are not among it.
        self.unread: list[Gap] = []

    def collect(self, *, budget_s: float) -> Iterator[Evidence]:
        """
        The text of all inputs, in the order given, within *budget_s* seconds.
        """
        self.readable_count = 0
        self.unread = []
        for piece in self._pieces(budget_s):
            if isinstance(piece, _Told):
                yield piece.piece
                continue
            if isinstance(piece, Gap):
                self.unread.append(piece)
            yield piece

    def _pieces(self, budget_s: float) -> Iterator[Evidence | _Told]:
        deadline = time.monotonic() + budget_s
        names = _Names()
        numbers: Counter[str] = Counter()
        for index, given in enumerate(self._inputs):
            left = self._inputs[index:]
            if time.monotonic() >= deadline:
                yield unread(left)
                return
            kind = kind_of(given)
            numbers[kind] += 1
            reader = _Reader(given, numbers[kind], names, deadline, self._unbundle)
            try:
                yield from self._received(reader, given, len(left))
            finally:
                reader.stop.set()

    def _received(self, reader: _Reader, given: LogInput, inputs_left: int) -> Iterator[Evidence | _Told]:
        """
        What *reader* reads, in chunks of about 1 MiB, until it is done or time is up.
        """
        chunk: _Chunk | None = None
        while True:
            piece = reader.next_piece(inputs_left)
            if isinstance(piece, _Block):
                if chunk is None or chunk.log is not piece.log:
                    self.readable_count += 1
                    chunk = _Chunk(piece.log, self._stream)
                yield from chunk.add(piece.data)
                continue
            if chunk is not None:
                yield from chunk.rest()
            if piece is None:
                return
            if piece is _STALLED:
                name, count = (chunk.log.origin, chunk.count) if chunk else (name_of(given), 0)
                yield timed_out(name, f"no more came in time, {counted_bytes(count)} were read")
                return
            if isinstance(piece, _Told):
                self.readable_count += piece.is_first
            if isinstance(piece, Gap | Looked | _Told):
                yield piece


class _Chunk:
    """
    Blocks of one log, joined until they are worth handing on.
    """

    def __init__(self, log: OneLog, stream: str | None) -> None:
        self.log = log
        self.count = 0
        self._stream = log.stream or stream
        self._data = bytearray()

    def add(self, data: bytes) -> Iterator[LogChunk]:
        self.count += len(data)
        self._data += data
        if len(self._data) >= BLOCK_BYTES:
            yield from self.rest()

    def rest(self) -> Iterator[LogChunk]:
        if self._data:
            data, self._data = bytes(self._data), bytearray()
            yield LogChunk(origin=self.log.origin, data=data, stream=self._stream, whose=self.log.whose)


@frozen(eq=False)
class _Block:
    log: OneLog
    data: bytes


@frozen(eq=False)
class _Told:
    """
    A piece of evidence out of a bundle.
    """

    piece: Evidence
    is_first: bool


_Piece = _Block | _Told | Gap | Looked


class _Signal:
    """
    Said by a reader in place of a piece.
    """


_STALLED = _Signal()


class _Reader:
    """
    A thread that reads one input.
    """

    def __init__(
        self, given: LogInput, number: int, names: _Names, deadline: float, unbundle: Unbundle | None
    ) -> None:
        self.stop = threading.Event()
        self._given = given
        self._number = number
        self._names = names
        self._deadline = deadline
        self._unbundle = unbundle
        self._pieces: queue.Queue[_Piece | None] = queue.Queue(maxsize=_AHEAD)
        threading.Thread(target=self._run, name="workerdiag-log", daemon=True).start()

    def next_piece(self, inputs_left: int) -> _Piece | _Signal | None:
        """
        The next piece; None after the last one, `_STALLED` if none comes in time.
        """
        # When time is up the reader stops by itself, and what it has read is taken.
        left_s = max(_GRACE_S, self._deadline - time.monotonic())
        fair_s = left_s if inputs_left == 1 else max(_STALL_S, left_s / inputs_left)
        try:
            return self._pieces.get(timeout=min(left_s, fair_s))
        except queue.Empty:
            return _STALLED

    def _run(self) -> None:
        for piece in self._read():
            if not self._put(piece):
                return
        self._put(None)

    def _put(self, piece: _Piece | None) -> bool:
        while not self.stop.is_set():
            try:
                self._pieces.put(piece, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def _read(self) -> Iterator[_Piece]:
        try:
            logs = logs_in(self._given, self._number)
        except Exception as problem:  # noqa: BLE001  fsspec and its backends raise anything
            yield gap_of(name_of(self._given), problem, 0)
            return
        for index, log in enumerate(logs):
            if time.monotonic() >= self._deadline:
                yield unread([each.origin for each in logs[index:]])
                return
            named = self._names.named(log)
            if named is not None:
                yield from self._read_log(named)

    def _read_log(self, log: OneLog) -> Iterator[_Piece]:
        count = 0
        try:
            for data in log.blocks():
                if data:
                    count += len(data)
                    yield _Block(log, data)
                if time.monotonic() >= self._deadline:
                    yield timed_out(log.origin, f"stopped after {counted_bytes(count)}")
                    return
        except ZipArchiveError as archive:
            yield from self._unbundled(log, archive)
            return
        except Exception as problem:  # noqa: BLE001  as above
            yield gap_of(log.origin, problem, count)
            return
        if count:
            yield Looked(place=f"log {log.origin}", whose=log.whose)
        else:
            yield Gap(
                source=f"log {log.origin}",
                reason="never-recorded",
                detail="it is empty",
                remedy="check that the process writes its log there",
            )

    def _unbundled(self, log: OneLog, archive: ZipArchiveError) -> Iterator[_Piece]:
        """
        The evidence of a death bundle; its logs keep their names, unless these are taken.
        """
        told = None
        if self._unbundle is not None and archive.data:
            try:
                told = self._unbundle(log.origin, archive.data)
            except BundleError as problem:
                yield Gap(
                    source=f"log {log.origin}",
                    reason="malformed",
                    detail=problem.why[:500],
                    remedy=problem.remedy,
                )
                return
        if told is None:
            yield gap_of(log.origin, archive, 0)
            return
        names: dict[str, str] = {}
        for index, piece in enumerate(told):
            if isinstance(piece, LogChunk):
                if piece.origin not in names:
                    names[piece.origin] = self._names.free(piece.origin)
                piece = evolve(piece, origin=names[piece.origin])  # noqa: PLW2901  the same under another name
            yield _Told(piece, is_first=index == 0)


class _Names:
    """
    Which logs were read already, and which names are taken: chunks of one name are of one log.
    """

    def __init__(self) -> None:
        self._keys: set[str] = set()
        self._taken: Counter[str] = Counter()

    def named(self, log: OneLog) -> OneLog | None:
        """
        The log under a name of its own; None if it was read before.
        """
        if log.key is not None and log.key in self._keys:
            return None
        self._keys.add(log.key or "")
        return evolve(log, origin=self.free(log.origin))

    def free(self, origin: str) -> str:
        """
        The name *origin*, with a number behind it if it is taken; it is taken then.
        """
        self._taken[origin] += 1
        times = self._taken[origin]
        return origin if times == 1 else f"{origin} ({times})"
