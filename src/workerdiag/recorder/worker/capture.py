"""The last words of a worker: log records, what Python writes to standard error, and faulthandler's dump.

Standard error is watched where Python writes to it (``sys.stderr``), not at the file descriptor: what
C libraries print ("free(): invalid pointer") cannot be copied without first taking it away from where
it goes. `workerdiag.recorder.stderr` reads it where it goes to a file, and takes it away only if asked to.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable
from typing import TextIO, cast

from workerdiag.procfs import call_in_children

#: Loggers that have handlers in Dask's default configuration, and do not propagate further. Those without
#: any print to ``sys.stderr`` (``logging.lastResort``), which a handler of ours would end: `StderrCapture`.
LOGGERS = ("distributed", "tornado.application")
_FORMAT = "%(asctime)s - %(name)s - %(levelname)s - %(message)s"

Write = Callable[[bytes], None]


class LogCapture(logging.Handler):
    """Copies log records, as Dask would print them, to where *write* leads.

    Args:
        write: Called with each record as text.
        on_record: Called with each record.
    """

    def __init__(self, write: Write, on_record: Callable[[logging.LogRecord], None]) -> None:
        super().__init__(level=logging.INFO)
        self.setFormatter(logging.Formatter(_FORMAT))
        self._write = write
        self._on_record = on_record
        self._pid = os.getpid()

    def emit(self, record: logging.LogRecord) -> None:
        """Copy one record, if this is still the worker's own process. Never raises."""
        with contextlib.suppress(Exception):
            if os.getpid() == self._pid:
                self._write(self.format(record).encode("utf-8", "replace"))
                self._on_record(record)

    def attach(self) -> None:
        """Begin to copy."""
        for logger in map(logging.getLogger, LOGGERS):
            if logger.hasHandlers():
                logger.addHandler(self)

    def detach(self) -> None:
        """Stop copying."""
        for name in LOGGERS:
            logging.getLogger(name).removeHandler(self)
        self.close()


class StderrCapture:
    """Replaces ``sys.stderr``: passes everything on, and copies it with *write*.

    A line may be written in pieces; it is copied when it is complete. Handlers with the earlier stream, above
    all those of Dask's log messages, do not write here, so nothing is copied twice.
    """

    def __init__(self, write: Write) -> None:
        self._copy: Write | None = write
        self._original: TextIO = sys.stderr
        self._piece = threading.local()
        self._pid = os.getpid()

    def write(self, text: str) -> int:
        """As of any text stream."""
        count: int = self._original.write(text)
        if self._copy is not None:
            with contextlib.suppress(Exception):
                self._note(text)
        return count

    def writelines(self, lines: Iterable[str]) -> None:
        """As of any text stream."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> object:
        return getattr(self._original, name)

    def attach(self) -> None:
        """Begin to copy."""
        sys.stderr = cast("TextIO", self)

    def detach(self) -> None:
        """Stop copying. Later users of the stream keep it, and it only passes text on."""
        self._copy = None
        if sys.stderr is cast("TextIO", self):
            sys.stderr = self._original

    def _note(self, text: str) -> None:
        if self._copy is None or os.getpid() != self._pid:
            return
        whole, newline, rest = (getattr(self._piece, "text", "") + text).rpartition("\n")
        if newline:
            self._copy(whole.encode("utf-8", "replace"))
        self._piece.text = rest[-io.DEFAULT_BUFFER_SIZE :]


class FaulthandlerCapture:
    """Has faulthandler write the stacks of all threads to a file when a fatal signal comes.

    Args:
        file: Stays open until `detach`; faulthandler knows its descriptor alone.
    """

    def __init__(self, file: io.FileIO) -> None:
        self._file = file
        self._active = True
        faulthandler.enable(file=file, all_threads=True)
        call_in_children(self.leave)

    def detach(self) -> None:
        """Leave the signals as they were."""
        self.leave()
        with contextlib.suppress(OSError):
            self._file.close()

    def leave(self) -> None:
        """Stop watching; also in forked children, whose stacks do not belong in the worker's box."""
        if self._active:
            self._active = False
            faulthandler.disable()


def capture_fatal_signals(open_file: Callable[[], io.FileIO]) -> tuple[FaulthandlerCapture | None, str]:
    """What watches for fatal signals, or None and the reason why nothing does."""
    if faulthandler.is_enabled():
        return None, "faulthandler writes elsewhere already, and is left alone"
    try:
        return FaulthandlerCapture(open_file()), ""
    except (OSError, ValueError, RuntimeError) as problem:
        return None, f"faulthandler has no file: {problem}"
