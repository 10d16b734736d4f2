"""Reads log text from any input of the caller, in bounded memory and bounded time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from workerdiag.deadline import Deadline
from workerdiag.model.evidence import Evidence, Gap, LogChunk
from workerdiag.model.vocabulary import Place, Stream
from workerdiag.sources.logs.decompress import BLOCK_BYTES
from workerdiag.sources.logs.gaps import format_byte_count, timeout_gap, unread_gap
from workerdiag.sources.logs.input_kinds import (
    BundlePiece,
    ContainerOpeners,
    LogBlock,
    LogHandle,
    RecordPiece,
    Unbox,
    Unbundle,
)
from workerdiag.sources.logs.inputs import LogInput, input_name, input_type
from workerdiag.sources.logs.reader import InputReader, LogNames

if TYPE_CHECKING:
    from workerdiag.sources.recorder.records import RecordCollection

__all__ = ["LogInput", "LogSource", "Unbox", "Unbundle"]


class LogSource:
    """Reads the caller's logs: paths, globs, folders, fsspec URLs, ``-``, open files, `LogText`.

    It yields each log as `LogChunk` pieces of about 1 MiB, in order, followed by an `Inspected`
    (place ``log``). Compressed data (gzip, zstd, bzip2, xz, recognised by content) is decompressed;
    UTF-16 and UTF-32 with a byte order mark become UTF-8. An input that cannot be read completely is a
    `Gap`; the others are still used.

    Death records that the flight recorder appended to files, and black boxes, become the same evidence as
    `RecorderSource` yields for a live scheduler, after all logs.

    A thread does the reading, so that a hanging file system, pipe or server costs at most the time
    available; such a thread is left behind.

    Args:
        inputs: What to read. A path given twice is read once.
        stream: The writer of all inputs, if known (one of `model.vocabulary.STREAMS`).
        unbundle: Returns the evidence in a death bundle, given its name and bytes, or None for any other
            zip archive, which becomes a `Gap`. Without this function every zip archive is a gap.
        unbox: Returns the report of a worker's death in a black box; the same applies.
        facts: Evidence from an exception, whose worker and task select among recorded deaths.
    """

    name = "logs"
    place: Place = "log"

    def __init__(
        self,
        inputs: Iterable[LogInput],
        *,
        stream: Stream | None = None,
        unbundle: Unbundle | None = None,
        unbox: Unbox | None = None,
        facts: Iterable[Evidence] = (),
    ) -> None:
        self._inputs = tuple(inputs)
        self._stream = stream
        self._openers = ContainerOpeners(unbundle=unbundle, unbox=unbox)
        self._facts = tuple(facts)
        #: Whether any log, bundle, box or file of records could be read.
        self.has_read_any = False
        #: Inputs that could not be read completely, without the gaps inside bundles.
        self.unread: list[Gap] = []

    def collect(self, *, budget_s: float) -> Iterator[Evidence]:
        """Yield the text of all inputs, in the order given, within *budget_s* seconds."""
        self.has_read_any = False
        self.unread = []
        records: RecordCollection | None = None
        for piece in self._pieces(budget_s):
            if isinstance(piece, Gap):
                self.unread.append(piece)
            else:
                self.has_read_any = True
            if isinstance(piece, RecordPiece):
                records = records or self._record_collection()
                records.add(piece.record)
            else:
                yield piece.piece if isinstance(piece, BundlePiece) else piece
        if records is not None:
            yield from records.evidence()

    def _record_collection(self) -> RecordCollection:
        from workerdiag.sources.recorder.records import RecordCollection
        from workerdiag.sources.scene import workers_and_tasks_in_question

        workers, tasks = workers_and_tasks_in_question(self._facts)
        return RecordCollection([each.worker for each in workers if each.worker], tasks)

    def _pieces(self, budget_s: float) -> Iterator[Evidence | BundlePiece | RecordPiece]:
        deadline = Deadline.after(budget_s)
        names = LogNames()
        numbers: Counter[str] = Counter()
        for index, given in enumerate(self._inputs):
            if deadline.is_over:
                yield unread_gap(self._inputs[index:])
                return
            kind = input_type(given)
            numbers[kind] += 1
            reader = InputReader(given, numbers[kind], names, deadline, self._openers)
            try:
                yield from self._received_pieces(reader, given, len(self._inputs) - index)
            finally:
                reader.stop()

    def _received_pieces(
        self, reader: InputReader, given: LogInput, inputs_left: int
    ) -> Iterator[Evidence | BundlePiece | RecordPiece]:
        """Yield what *reader* reads, in chunks of about 1 MiB, until it is done or time is up."""
        chunk: _ChunkBuilder | None = None
        while True:
            try:
                piece = reader.next_piece(inputs_left)
            except TimeoutError:
                yield from chunk.rest() if chunk is not None else ()
                name, count = (chunk.log.origin, chunk.count) if chunk else (input_name(given), 0)
                yield timeout_gap(name, f"no more came in time, {format_byte_count(count)} were read")
                return
            if isinstance(piece, LogBlock):
                if chunk is None or chunk.log is not piece.log:
                    chunk = _ChunkBuilder(piece.log, self._stream)
                yield from chunk.add(piece.data)
                continue
            if chunk is not None:
                yield from chunk.rest()
            if piece is None:
                return
            yield piece


class _ChunkBuilder:
    """Joins the blocks of one log to chunks of about 1 MiB."""

    def __init__(self, log: LogHandle, stream: Stream | None) -> None:
        self.log = log
        self.count = 0
        self._stream = log.stream or stream
        self._data = bytearray()

    def add(self, data: bytes) -> Iterator[LogChunk]:
        self.count += len(data)
        if len(data) >= BLOCK_BYTES and not self._data:  # as for most blocks of large files
            yield self._chunk(data)
            return
        self._data += data
        if len(self._data) >= BLOCK_BYTES:
            yield from self.rest()

    def rest(self) -> Iterator[LogChunk]:
        if self._data:
            data, self._data = bytes(self._data), bytearray()
            yield self._chunk(data)

    def _chunk(self, data: bytes) -> LogChunk:
        return LogChunk(origin=self.log.origin, data=data, stream=self._stream, identity=self.log.identity)
