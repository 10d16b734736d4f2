"""Reads one input in a thread: its logs, bundles, black boxes and records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import assert_never

from attrs import evolve

from workerdiag.deadline import Deadline, HelperThread
from workerdiag.errors import BadBoxError, BundleError
from workerdiag.model.evidence import Gap, Inspected, LogChunk, LogText
from workerdiag.sources.logs.gaps import (
    empty_gap,
    format_byte_count,
    in_use_gap,
    log_gap,
    timeout_gap,
    unread_gap,
    unusable_gap,
)
from workerdiag.sources.logs.input_kinds import (
    MAX_BOX_BYTES,
    MAX_BUNDLE_BYTES,
    BundlePiece,
    ContainerOpeners,
    LogBlock,
    LogHandle,
    ReaderPiece,
    RecordPiece,
    read_at_most,
    sniff_blocks,
)
from workerdiag.sources.logs.inputs import LogInput, input_name, resolve_logs

#: An input that yields nothing for this many seconds is given up if others wait.
_STALL_S = 1.0
#: Seconds that a reader may take to notice that time is up.
_GRACE_S = 0.05
#: Number of blocks read ahead, at most 1 MiB each.
_READ_AHEAD = 4
#: Detail and remedy if there is no opener for such a file.
_IS_ZIP = ("looks binary (a zip archive)", "unpack it and give the files in it")
_IS_BOX = ("looks binary (a black box of a worker)", "workerdiag blackbox prints it")


class InputReader:
    """Reads one input in a thread until it is stopped; text in memory needs no thread."""

    def __init__(
        self, given: LogInput, number: int, names: LogNames, deadline: Deadline, openers: ContainerOpeners
    ) -> None:
        self._given = given
        self._number = number
        self._names = names
        self._deadline = deadline
        self._openers = openers
        self._in_use: list[str] = []
        self._pieces = self._read_or_gap()
        self._thread: HelperThread[ReaderPiece] | None = None
        if not isinstance(given, LogText):
            self._thread = HelperThread("workerdiag-log", lambda: self._pieces, read_ahead=_READ_AHEAD)

    def stop(self) -> None:
        """Make the thread end at its next piece."""
        if self._thread is not None:
            self._thread.stop()

    def next_piece(self, inputs_left: int) -> ReaderPiece | None:
        """Return the next piece, or None after the last one.

        Raises:
            TimeoutError: No piece arrived in the time for this input.
        """
        if self._thread is None:
            return next(self._pieces, None)
        # When time is up the reader stops by itself, and what it has read is used.
        left = self._deadline.share(at_least_s=_GRACE_S)
        try:
            piece = self._thread.next_piece(
                left.share(1 / inputs_left, at_least_s=min(_STALL_S, left.left_s))
            )
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
        try:
            logs = resolve_logs(self._given, self._number)
        except Exception as problem:  # noqa: BLE001  fsspec and its backends raise anything
            yield log_gap(input_name(self._given), problem, 0)
            return
        for index, log in enumerate(logs):
            if self._deadline.is_over:
                yield unread_gap([each.origin for each in logs[index:]])
                break
            named = self._names.claim(log)
            if named is not None:
                yield from self._read_log(named)
        if self._in_use:
            yield in_use_gap(self._in_use)

    def _read_log(self, log: LogHandle) -> Iterator[ReaderPiece]:
        opened = _OpenedLog(log)
        match opened.kind:
            case "bundle":
                yield from self._read_bundle(opened)
            case "box":
                yield from self._read_box(opened)
            case "records":
                yield from self._read_records(opened)
            case "text":
                yield from self._read_text(opened)
            case _:
                assert_never(opened.kind)

    def _read_text(self, opened: _OpenedLog) -> Iterator[ReaderPiece]:
        log = opened.log
        for data in self._blocks_in_time(opened):
            yield LogBlock(log, data)
        is_whole = Inspected(place="log", identity=log.identity)
        yield opened.broken or (is_whole if opened.read_bytes else empty_gap(log.origin))

    def _read_records(self, opened: _OpenedLog) -> Iterator[ReaderPiece]:
        """Yield the records in a file, then a gap if it was not read completely."""
        from workerdiag.sources.recorder.record_lines import RecordParser

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
                stopped = f"stopped after {format_byte_count(opened.read_bytes)}"
                opened.broken = timeout_gap(opened.log.origin, stopped)
                break

    def _read_bundle(self, opened: _OpenedLog) -> Iterator[ReaderPiece]:
        """Yield the evidence of a death bundle; its logs keep their names unless these are taken."""
        origin, unbundle, pieces = opened.log.origin, self._openers.unbundle, None
        data = read_at_most(opened.blocks(), MAX_BUNDLE_BYTES)
        if unbundle is not None and data and not opened.broken:
            try:
                pieces = unbundle(origin, data)
            except BundleError as problem:
                yield unusable_gap(origin, problem.why, problem.remedy)
                return
            except Exception as problem:  # noqa: BLE001  a file that anybody may have made
                yield log_gap(origin, problem, 0)
                return
        if pieces is None:
            yield opened.broken or unusable_gap(origin, *_IS_ZIP)
            return
        names: dict[str, str] = {}
        for piece in pieces:
            if isinstance(piece, LogChunk):
                if piece.origin not in names:
                    names[piece.origin] = self._names.free_name(piece.origin)
                piece = evolve(piece, origin=names[piece.origin])  # noqa: PLW2901  the same under another name
            yield BundlePiece(piece)

    def _read_box(self, opened: _OpenedLog) -> Iterator[ReaderPiece]:
        """Yield the report of a worker's death from its black box."""
        from workerdiag.sources.recorder.record_lines import ParsedRecord

        log, data = opened.log, read_at_most(opened.blocks(), MAX_BOX_BYTES)
        if self._openers.unbox is None or not data or opened.broken:
            yield opened.broken or unusable_gap(log.origin, *_IS_BOX)
            return
        try:
            report = self._openers.unbox(log.key or log.origin, data, log.fault())
        except BadBoxError as problem:
            yield unusable_gap(log.origin, problem.why, "copy it again, or use the version that wrote it")
        except Exception as problem:  # noqa: BLE001  a file that anybody may have made
            yield log_gap(log.origin, problem, 0)
        else:
            if report is None:
                self._in_use.append(log.origin)
            else:
                yield RecordPiece(ParsedRecord(report, len(data)))


class _OpenedLog:
    """One log while it is read: its kind, its blocks, and why they ended early."""

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
