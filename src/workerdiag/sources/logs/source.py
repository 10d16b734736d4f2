"""Reads logs, bundles, black boxes and records from any input of the caller, in bounded memory and time.

Each input is read in a thread. What cannot be read completely is a gap with a remedy.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from attrs import evolve

from workerdiag.deadline import MORE_TIME, Deadline, HelperThread
from workerdiag.errors import BadBoxError, BundleError, UnreadableInputError, describe_error, error_text
from workerdiag.guard import guarded
from workerdiag.model.evidence import Evidence, Gap, Inspected, LogChunk, LogText
from workerdiag.model.vocabulary import GapReason, Place, Stream
from workerdiag.sources.logs.file_kinds import (
    BLOCK_BYTES,
    MAX_BOX_BYTES,
    MAX_BUNDLE_BYTES,
    InputKind,
    LogHandle,
    read_at_most,
    sniff_blocks,
)
from workerdiag.sources.logs.inputs import LogInput, input_name, input_type, resolve_logs

if TYPE_CHECKING:
    from workerdiag.sources.recorder.records import ParsedRecord, RecordCollection
    from workerdiag.wire.messages import DeathReport

#: Maps name and bytes of a zip archive to its evidence, or to None if it is not a death bundle.
Unbundle = Callable[[str, bytes], Sequence[Evidence] | None]
#: Maps place and bytes of a black box, and faulthandler's output, to the report of its worker's death, or to
#: None if the worker may still run.
Unbox = Callable[[str, bytes, bytes], "DeathReport | None"]


class LogBlock(NamedTuple):
    """The next bytes of a log."""

    log: LogHandle
    data: bytes


class BundlePiece(NamedTuple):
    """A piece of evidence from a bundle."""

    piece: Evidence


class RecordPiece(NamedTuple):
    """One death record."""

    record: ParsedRecord


ReaderPiece = LogBlock | BundlePiece | RecordPiece | Gap | Inspected


class LogSource:
    """Reads the caller's logs: paths, globs, folders, fsspec URLs, ``-``, open files, `LogText`.

    It yields each log as `LogChunk` pieces of about 1 MiB, in order, followed by an `Inspected`
    (place ``log``). Compressed data (gzip, zstd, bzip2, xz, recognised by content) is decompressed;
    UTF-16 and UTF-32 with a byte order mark become UTF-8. An input that cannot be read completely is a
    `Gap`; the others are still used.
    Death records that the flight recorder appended to files, and black boxes, become the same evidence as
    `RecorderSource` yields for a live scheduler, after all logs. A thread does the reading; one that hangs is left.

    Args:
        inputs: What to read. A path given twice is read once.
        stream: The writer of all inputs, if known.
        unbundle: Opens death bundles; without it every zip archive is a gap.
        unbox: Opens black boxes.
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
        self._unbundle = unbundle
        self._unbox = unbox
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
                if records is None:
                    from workerdiag.sources.recorder.records import RecordCollection
                    from workerdiag.sources.scene import workers_and_tasks_in_question

                    workers, tasks = workers_and_tasks_in_question(self._facts)
                    records = RecordCollection([each.worker for each in workers if each.worker], tasks)
                records.add(piece.record)
            else:
                yield piece.piece if isinstance(piece, BundlePiece) else piece
        if records is not None:
            yield from records.evidence()

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
            reader = InputReader(given, numbers[kind], names, deadline, self._unbundle, self._unbox)
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
                yield timeout_gap(name, f"timed out after {count:,} bytes")
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


#: Seconds that a reader may take to notice that time is up.
_GRACE_S = 0.05


class InputReader:
    """Reads one input in a thread until it is stopped; text in memory needs no thread."""

    def __init__(
        self,
        given: LogInput,
        number: int,
        names: LogNames,
        deadline: Deadline,
        unbundle: Unbundle | None,
        unbox: Unbox | None,
    ) -> None:
        self._given = given
        self._number = number
        self._names = names
        self._deadline = deadline
        self._unbundle = unbundle
        self._unbox = unbox
        self._in_use: list[str] = []
        self._pieces = self._read_or_gap()
        self._thread: HelperThread[ReaderPiece] | None = None
        if not isinstance(given, LogText):
            self._thread = HelperThread("workerdiag-log", lambda: self._pieces, read_ahead=4)

    def stop(self) -> None:
        """Make the thread end at its next piece."""
        if self._thread is not None:
            self._thread.stop()

    def next_piece(self, inputs_left: int) -> ReaderPiece | None:
        """Return the next piece, or None after the last one; raises TimeoutError if none arrives in time."""
        if self._thread is None:
            return next(self._pieces, None)
        # When time is up the reader stops by itself, and what it has read is used.
        left = self._deadline.share(at_least_s=_GRACE_S)
        try:
            own = left.share(1 / inputs_left, at_least_s=min(1.0, left.left_s))  # then others have their turn
            piece = self._thread.next_piece(own)
        except RuntimeError as problem:
            return log_gap(input_name(self._given), problem, 0)
        return None if piece is None else piece[0]

    def _read_or_gap(self) -> Iterator[ReaderPiece]:
        try:
            yield from self._read()
        except GeneratorExit:
            raise
        except BaseException as problem:  # noqa: BLE001  an input may be of a class that raises anything
            yield log_gap(input_name(self._given), problem, 0)

    def _read(self) -> Iterator[ReaderPiece]:
        logs = resolve_logs(self._given, self._number)
        for index, log in enumerate(logs):
            if self._deadline.is_over:
                yield unread_gap([each.origin for each in logs[index:]])
                break
            named = self._names.claim(log)
            if named is not None:
                yield from self._read_log(named)
        if self._in_use:
            detail = f"apparently still in use: {_listed(self._in_use)}"
            remedy = "retry when the worker has ended; on another machine than its own, ten minutes later"
            yield Gap(source="black boxes", reason="never-recorded", detail=detail[:500], remedy=remedy)

    def _read_log(self, log: LogHandle) -> Iterator[ReaderPiece]:
        opened = _OpenedLog(log)
        readers: Mapping[InputKind, Callable[[_OpenedLog], Iterator[ReaderPiece]]] = {
            "bundle": self._read_bundle,
            "box": self._read_box,
            "records": self._read_records,
            "text": self._read_text,
        }
        yield from readers[opened.kind](opened)

    def _read_text(self, opened: _OpenedLog) -> Iterator[ReaderPiece]:
        log = opened.log
        for data in self._blocks_in_time(opened):
            yield LogBlock(log, data)
        is_whole = Inspected(place="log", identity=log.identity)
        yield opened.broken or (is_whole if opened.read_bytes else _empty_gap(log.origin))

    def _read_records(self, opened: _OpenedLog) -> Iterator[ReaderPiece]:
        from workerdiag.sources.recorder.records import RecordParser

        lines = RecordParser()
        for data in self._blocks_in_time(opened):
            yield from map(RecordPiece, lines.take(data))
        yield from map(RecordPiece, lines.end())
        if broken := opened.broken or lines.gap(opened.log.origin):
            yield broken

    def _blocks_in_time(self, opened: _OpenedLog) -> Iterator[bytes]:
        for data in opened.blocks():
            yield data
            if self._deadline.is_over:
                stopped = f"stopped after {opened.read_bytes:,} bytes"
                opened.broken = timeout_gap(opened.log.origin, stopped)
                break

    def _read_bundle(self, opened: _OpenedLog) -> Iterator[ReaderPiece]:
        """Yield the evidence of a death bundle; its logs keep their names unless these are taken."""
        origin, pieces = opened.log.origin, None
        data = read_at_most(opened.blocks(), MAX_BUNDLE_BYTES)
        if self._unbundle is not None and data and not opened.broken:
            with guarded("opening a death bundle") as opening:  # a file that anybody may have made
                pieces = self._unbundle(origin, data)
            if opening.problem is not None:
                yield log_gap(origin, opening.problem, 0)
                return
        if pieces is None:
            remedy = "unpack it and give the files in it"
            yield opened.broken or unusable_gap(origin, "looks binary (a zip archive)", remedy)
            return
        names: dict[str, str] = {}
        for piece in pieces:
            if isinstance(piece, LogChunk):
                if piece.origin not in names:
                    names[piece.origin] = self._names.free_name(piece.origin)
                piece = evolve(piece, origin=names[piece.origin])  # noqa: PLW2901  the same under another name
            yield BundlePiece(piece)

    def _read_box(self, opened: _OpenedLog) -> Iterator[ReaderPiece]:
        from workerdiag.sources.recorder.records import ParsedRecord

        log, data = opened.log, read_at_most(opened.blocks(), MAX_BOX_BYTES)
        if self._unbox is None or not data or opened.broken:
            why = "looks binary (a black box of a worker)"
            yield opened.broken or unusable_gap(log.origin, why, "workerdiag explain reads it")
            return
        report = None
        with guarded("opening a black box") as opening:  # a file that anybody may have made
            report = self._unbox(log.key or log.origin, data, log.fault())
        if opening.problem is not None:
            yield log_gap(log.origin, opening.problem, 0)
        elif report is None:
            self._in_use.append(log.origin)
        else:
            yield RecordPiece(ParsedRecord(report, len(data)))


class _OpenedLog:
    def __init__(self, log: LogHandle) -> None:
        self.log = log
        #: Number of bytes read, and the gap if reading failed.
        self.read_bytes = 0
        self.broken: Gap | None = None
        self.kind, self._blocks = sniff_blocks(self._read())

    def blocks(self) -> Iterator[bytes]:
        """Yield the blocks; a failure ends them."""
        for data in self._blocks:
            self.read_bytes += len(data)
            yield data

    def _read(self) -> Iterator[bytes]:
        try:
            yield from self.log.blocks()
        except GeneratorExit:
            raise
        except BaseException as problem:  # noqa: BLE001  files of foreign classes raise anything
            self.broken = log_gap(self.log.origin, problem, self.read_bytes)


class LogNames:
    """Remembers the logs already read and the names in use: chunks of one name belong to one log."""

    def __init__(self) -> None:
        self._keys: set[str] = set()
        self._taken: Counter[str] = Counter()

    def claim(self, log: LogHandle) -> LogHandle | None:
        """Return the log under a unique name; None if it was read before."""
        if log.key is not None and log.key in self._keys:
            return None
        self._keys.add(log.key or "")
        return evolve(log, origin=self.free_name(log.origin))

    def free_name(self, origin: str) -> str:
        """Return *origin*, with a number appended if it is taken, and reserve the name."""
        self._taken[origin] += 1
        times = self._taken[origin]
        return origin if times == 1 else f"{origin} ({times})"


_MORE_TIME = f"{MORE_TIME}, or --timeout 60s"
_MAX_NAMED = 5
#: Text that occurs in log lines and hardly ever in a path.
_LINE = re.compile(r"\n| - | \w+: ")


def log_gap(name: str, problem: BaseException, count: int) -> Gap:
    """Return why reading a log failed after *count* bytes."""
    reason, detail, remedy = _explain_problem(problem)
    if isinstance(problem, FileNotFoundError) and _LINE.search(name):
        remedy = "give a path, or log text itself as workerdiag.LogText(text)"
    elif "://" in name and detail == name:  # fsspec says no more
        detail, remedy = "nothing could be fetched", "check the address, and that its server runs"
    read = f"; {count:,} bytes were read" if count else ""
    return Gap(source=name, place="log", reason=reason, detail=f"{detail}{read}"[:500], remedy=remedy[:300])


def _explain_problem(problem: BaseException) -> tuple[GapReason, str, str]:
    description = error_text(problem) or type(problem).__name__
    if isinstance(problem, UnreadableInputError | BundleError | BadBoxError):
        of_box = "copy it again, or use the version that wrote it"
        return "malformed", problem.why, getattr(problem, "remedy", of_box)
    if isinstance(problem, ImportError):
        return "not-installed", "a package needed to read it is not installed", description
    if isinstance(problem, FileNotFoundError):
        detail = "there is no such file" if problem.errno else description
        return "unreachable", detail, "check the path or pattern"
    if isinstance(problem, PermissionError):
        return "forbidden", description, "run this as a user who may read it"
    if isinstance(problem, UnicodeDecodeError):
        return "malformed", description, "open it in binary mode, or give its path"
    return "unreachable", describe_error(problem), "check that it can be opened"


def timeout_gap(name: str, detail: str) -> Gap:
    """Return the gap of a log that could not be read completely in time."""
    return Gap(source=name, place="log", reason="timed-out", detail=detail, remedy=_MORE_TIME)


def unread_gap(given: Sequence[object]) -> Gap:
    """Return the gap of inputs that were not read at all for lack of time."""
    detail = f"no time was left for {_listed([input_name(each) for each in given])}"
    return Gap(source="logs", place="log", reason="timed-out", detail=detail, remedy=_MORE_TIME)


def _empty_gap(name: str) -> Gap:
    remedy = "check that the process writes its log there"
    return Gap(source=name, place="log", reason="never-recorded", detail="it is empty", remedy=remedy)


def unusable_gap(name: str, why: str, remedy: str) -> Gap:
    """Return the gap of an unreadable death bundle or black box."""
    return Gap(source=name, place="log", reason="malformed", detail=why[:500], remedy=remedy)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return f"{', '.join(names[:_MAX_NAMED])}{more}"
