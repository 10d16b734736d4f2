"""
Log text from wherever the caller has it, in bounded memory and bounded time.
"""

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
    """
    The logs a caller names: paths, globs, folders, fsspec URLs, ``-``, open files, `LogText`.

    Each log comes as `LogChunk` pieces of about 1 MiB, in order, one log after the other, and
    `Inspected` (place ``log``) after its end. What is packed is unpacked (gzip, zstd,
    bzip2, xz, told by content); UTF-16 and UTF-32 with a byte order mark become UTF-8. An input
    that cannot be read, or not wholly, is a `Gap`; the others are still used.

    Records of deaths that the flight recorder appended to files, and black boxes, become the evidence
    that `RecorderSource` has of a live scheduler, after all logs.

    Reading is done in a thread, so that a file system, a pipe or a server that hangs costs time
    but no more than there is; such a thread is left behind.

    Args:
        inputs: What to read. The same path twice is read once.
        stream: Who wrote it all, where the caller knows (one of `model.vocabulary.STREAMS`).
        unbundle: Gives the evidence in a death bundle of that name and those bytes; None for a zip
            archive that is no bundle, and is a `Gap` then. Without it every zip archive is one.
        unbox: Gives the message of a worker's death that is in a black box; the same applies.
        facts: What an exception says: its worker and task select among recorded deaths.
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
        #: What could not be read, or not wholly; gaps that a bundle tells of are not among it.
        self.unread: list[Gap] = []

    def collect(self, *, budget_s: float) -> Iterator[Evidence]:
        """
        The text of all inputs, in the order given, within *budget_s* seconds.
        """
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
        """
        What *reader* reads, in chunks of about 1 MiB, until it is done or time is up.
        """
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
    """
    Blocks of one log, joined until they are worth handing on.
    """

    def __init__(self, log: LogHandle, stream: Stream | None) -> None:
        self.log = log
        self.count = 0
        self._stream = log.stream or stream
        self._data = bytearray()

    def add(self, data: bytes) -> Iterator[LogChunk]:
        self.count += len(data)
        if len(data) >= BLOCK_BYTES and not self._data:  # as most are of large files
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
