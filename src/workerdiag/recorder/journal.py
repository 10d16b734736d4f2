"""Death records on a disk or in an object store, where they outlive the scheduler.

They are JSON lines (docs/recorder.md) of the scheduler's records and the nannies' reports. The event loop
queues them and a thread writes them.
"""

from __future__ import annotations

import json
import os
import queue
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from workerdiag.deadline import Deadline
from workerdiag.errors import describe_error
from workerdiag.guard import guarded

if TYPE_CHECKING:
    from workerdiag.wire.black_box import MissingPart

#: A local file of this size is renamed to ``<name>.1``.
MAX_FILE_BYTES = 8 * 2**20
#: In a store each batch is a separate object, because most stores cannot append.
MAX_OBJECTS = 1000
_CLOSE_S = 5.0
_RETRY_S = 5.0


class Journal:
    """Writes records, from a thread, to a file or below an fsspec URL; *lack* is called with each failure."""

    def __init__(self, target: str, lack: Callable[[MissingPart, str], None]) -> None:
        self._target = target
        self._lack = lack
        self._remote = "://" in target
        self._pending: queue.Queue[bytes | None] = queue.Queue(1000)
        #: Unique to each run; ends with the time, by which readers find the newest.
        self._run_id = f"{uuid.uuid4().hex[:8]}-{int(time.time() * 1000)}"
        self._objects = 0
        self._thread = threading.Thread(target=self._run, name="workerdiag-append", daemon=True)
        self._thread.start()

    @property
    def target(self) -> str:
        """The target for display, as an absolute path or as a URL without a possible password."""
        scheme, separator, rest = self._target.partition("://")
        if separator:
            return f"{scheme}{separator}{rest.rpartition('@')[2]}"
        return str(Path(self._target).expanduser().absolute())

    def put(self, message: Mapping[str, object]) -> None:
        """Queue one record. Never waits; if the queue is full, the record is dropped with a note."""
        line = json.dumps(message, default=str).encode() + b"\n"
        try:
            self._pending.put_nowait(line)
        except queue.Full:
            self._lack("journal-overflow", f"{self._target} is too slow for all records")

    def close(self) -> None:
        """Write the queued records, for at most 5 seconds."""
        try:
            self._pending.put(None, timeout=_CLOSE_S)
        except queue.Full:
            return
        self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        ended = False
        while not ended:
            batch, ended = self._next_batch()
            if batch:
                self._write(batch)

    def _next_batch(self) -> tuple[bytes, bool]:
        """The next lines, and whether they are the last. A store gets the lines of two seconds as one batch."""
        lines = [self._pending.get()]
        collecting = Deadline.after(2.0 if self._remote else 0.0)
        while lines[-1] is not None and len(lines) < 200:
            try:
                lines.append(self._pending.get(timeout=collecting.left_s))
            except queue.Empty:
                break
        return b"".join(line for line in lines if line is not None), lines[-1] is None

    def _write(self, data: bytes) -> None:
        """Write the lines, with one retry; after a second failure they are lost."""
        for wait_s in (_RETRY_S, None):
            with guarded("appending to the journal", self._lack_lines):
                if self._remote:
                    self._write_object(data)
                else:
                    append_to_file(Path(self._target).expanduser(), data)
                return
            if wait_s is not None and self._pending.empty():
                time.sleep(wait_s)

    def _lack_lines(self, problem: Exception) -> None:
        self._lack("journal", f"appending to {self.target}: {describe_error(problem)}")

    def _write_object(self, data: bytes) -> None:
        import fsspec

        if self._objects >= MAX_OBJECTS:
            raise OSError(f"{MAX_OBJECTS} objects were written, and no more are")
        name = f"deaths-{socket.gethostname()}-{os.getpid()}-{self._run_id}-{self._objects:04d}.jsonl"
        filesystem, folder = fsspec.core.url_to_fs(self._target)
        filesystem.makedirs(folder, exist_ok=True)
        filesystem.pipe_file(f"{folder.rstrip('/')}/{name}", data)
        self._objects += 1


def append_to_file(path: Path, data: bytes) -> None:
    """Append to a file that only its owner may read; a large file is rotated first.

    A truncated last line is ended first, so that the following lines stay readable.

    Raises:
        OSError: The disk is full or not writable.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size + len(data) > MAX_FILE_BYTES:
        path.replace(path.with_name(f"{path.name}.1"))
    cut_off = b"" if _ends_with_line(path) else b"\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(cut_off + data)


def _ends_with_line(path: Path) -> bool:
    """Whether the last line of a file is complete. True if the file is missing or cannot be sought, as a pipe."""
    if not path.is_file() or not path.stat().st_size:
        return True
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() == b"\n"
