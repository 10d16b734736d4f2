"""
A thread that reads one input: its logs, and what else turns out to be in them.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Iterator

from attrs import evolve

from workerdiag import foreign
from workerdiag.errors import BadBoxError, BundleError
from workerdiag.model.evidence import Gap, Inspected, LogChunk
from workerdiag.sources.logs.containers import BlackBoxFileError, ZipArchiveError
from workerdiag.sources.logs.gaps import (
    empty_gap,
    format_byte_count,
    in_use_gap,
    log_gap,
    timeout_gap,
    unread_gap,
    unusable_gap,
)
from workerdiag.sources.logs.inputs import LogHandle, LogInput, input_name, resolve_logs
from workerdiag.sources.logs.pieces import (
    STALLED,
    BundlePiece,
    ContainerOpeners,
    LogBlock,
    ReaderPiece,
    ReaderSignal,
    RecordBatch,
)
from workerdiag.sources.recorder.record_lines import HEAD_BYTES, ParsedRecord, RecordParser, is_record_file

#: An input that gives nothing for so long is left alone, if others wait.
_STALL_S = 1.0
#: How long a reader may take to notice that time is up.
_GRACE_S = 0.05
#: Blocks read ahead, at most a MiB each.
_READ_AHEAD = 4


class InputReader:
    """
    Reads one input in a thread, from now on, until it is told to `stop`.
    """

    def __init__(
        self, given: LogInput, number: int, names: LogNames, deadline: float, openers: ContainerOpeners
    ) -> None:
        self.stop = threading.Event()
        self._given = given
        self._number = number
        self._names = names
        self._deadline = deadline
        self._openers = openers
        self._in_use: list[str] = []
        self._pieces: queue.Queue[ReaderPiece | None] = queue.Queue(maxsize=_READ_AHEAD)
        try:
            foreign.start_thread("workerdiag-log", self._run)
        except RuntimeError as problem:
            self._pieces.put(log_gap(input_name(given), problem, 0))
            self._pieces.put(None)

    def next_piece(self, inputs_left: int) -> ReaderPiece | ReaderSignal | None:
        """
        The next piece; None after the last one, `STALLED` if none comes in time.
        """
        # When time is up the reader stops by itself, and what it has read is taken.
        left_s = max(_GRACE_S, self._deadline - time.monotonic())
        fair_s = left_s if inputs_left == 1 else max(_STALL_S, left_s / inputs_left)
        try:
            return self._pieces.get(timeout=min(left_s, fair_s))
        except queue.Empty:
            return STALLED

    def _run(self) -> None:
        try:
            for piece in self._read():
                if not self._put(piece):
                    return
        except BaseException as problem:  # noqa: BLE001  an input may be of a class that raises anything
            self._put(log_gap(input_name(self._given), problem, 0))
        self._put(None)

    def _put(self, piece: ReaderPiece | None) -> bool:
        while not self.stop.is_set():
            try:
                self._pieces.put(piece, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def _read(self) -> Iterator[ReaderPiece]:
        try:
            logs = resolve_logs(self._given, self._number)
        except Exception as problem:  # noqa: BLE001  fsspec and its backends raise anything
            yield log_gap(input_name(self._given), problem, 0)
            return
        for index, log in enumerate(logs):
            if time.monotonic() >= self._deadline:
                yield unread_gap([each.origin for each in logs[index:]])
                break
            named = self._names.claim(log)
            if named is not None:
                yield from self._read_log(named)
        if self._in_use:
            yield in_use_gap(self._in_use)

    def _read_log(self, log: LogHandle) -> Iterator[ReaderPiece]:
        try:
            yield from self._read_text(log)
        except ZipArchiveError as archive:
            yield from self._read_bundle(log, archive)
        except BlackBoxFileError as box:
            yield self._read_box(log, box)

    def _read_text(self, log: LogHandle) -> Iterator[ReaderPiece]:
        """
        The text of a log, or the records in it, and whether that is all.
        """
        count = 0
        lines: RecordParser | None = None
        broken: Gap | None = None
        try:
            for data in _with_sniffable_head(log.blocks()):
                if not count and is_record_file(data):
                    lines = RecordParser()
                if lines is not None:
                    yield from _record_batch(lines.take(data), is_first=not count)
                else:
                    yield LogBlock(log, data)
                count += len(data)
                if time.monotonic() >= self._deadline:
                    broken = timeout_gap(log.origin, f"stopped after {format_byte_count(count)}")
                    break
        except (ZipArchiveError, BlackBoxFileError, GeneratorExit):
            raise
        except BaseException as problem:  # noqa: BLE001  as above, and files of foreign classes
            broken = log_gap(log.origin, problem, count)
        if lines is not None:
            yield from _record_batch(lines.end(), is_first=False)
            broken = broken or lines.gap(log.origin)
        if broken is not None:
            yield broken
        elif lines is None:
            yield (
                Inspected(place=f"log {log.origin}", identity=log.identity)
                if count
                else empty_gap(log.origin)
            )

    def _read_bundle(self, log: LogHandle, archive: ZipArchiveError) -> Iterator[ReaderPiece]:
        """
        The evidence of a death bundle; its logs keep their names, unless these are taken.
        """
        unbundle, pieces = self._openers.unbundle, None
        if unbundle is not None and archive.data:
            try:
                pieces = unbundle(log.origin, archive.data)
            except BundleError as problem:
                yield unusable_gap(log.origin, problem.why, problem.remedy)
                return
            except Exception as problem:  # noqa: BLE001  a file that anybody may have made
                yield log_gap(log.origin, problem, 0)
                return
        if pieces is None:
            yield log_gap(log.origin, archive, 0)
            return
        names: dict[str, str] = {}
        for index, piece in enumerate(pieces):
            if isinstance(piece, LogChunk):
                if piece.origin not in names:
                    names[piece.origin] = self._names.free_name(piece.origin)
                piece = evolve(piece, origin=names[piece.origin])  # noqa: PLW2901  the same under another name
            yield BundlePiece(piece, is_first=index == 0)

    def _read_box(self, log: LogHandle, box: BlackBoxFileError) -> ReaderPiece:
        """
        What a black box tells of its worker's death.
        """
        if self._openers.unbox is None or not box.data:
            return log_gap(log.origin, box, 0)
        try:
            message = self._openers.unbox(log.key or log.origin, box.data, log.fault())
        except BadBoxError as problem:
            return unusable_gap(log.origin, problem.why, "copy it again, or use the version that wrote it")
        except Exception as problem:  # noqa: BLE001  a file that anybody may have made
            return log_gap(log.origin, problem, 0)
        if message is None:
            self._in_use.append(log.origin)
            return RecordBatch((), is_first=False)
        return RecordBatch((ParsedRecord(message, len(box.data)),), is_first=True)


def _with_sniffable_head(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """
    The blocks that are not empty; the first has enough to tell records by, where it may hold some.
    """
    head = b""
    for data in blocks:
        head += data
        if head and (not head.lstrip().startswith(b"{") or b"\n" in head or len(head) >= HEAD_BYTES):
            break
    if head:
        yield head
    yield from (data for data in blocks if data)


def _record_batch(records: Iterator[ParsedRecord], *, is_first: bool) -> Iterator[RecordBatch]:
    """
    Records as one piece, if there are any.
    """
    found = tuple(records)
    if found or is_first:
        yield RecordBatch(found, is_first=is_first)


class LogNames:
    """
    Which logs were read already, and which names are taken: chunks of one name are of one log.
    """

    def __init__(self) -> None:
        self._keys: set[str] = set()
        self._taken: Counter[str] = Counter()

    def claim(self, log: LogHandle) -> LogHandle | None:
        """
        The log under a name of its own; None if it was read before.
        """
        if log.key is not None and log.key in self._keys:
            return None
        self._keys.add(log.key or "")
        return evolve(log, origin=self.free_name(log.origin))

    def free_name(self, origin: str) -> str:
        """
        The name *origin*, with a number behind it if it is taken; it is taken then.
        """
        self._taken[origin] += 1
        times = self._taken[origin]
        return origin if times == 1 else f"{origin} ({times})"
