"""The nanny's part in copying standard error: it finds its worker's file and forwards the content."""

from __future__ import annotations

import os
import time
from pathlib import Path

from workerdiag.procfs import process_start_ms
from workerdiag.recorder.box.companions import stderr_path
from workerdiag.recorder.box.directories import find_boxes, parse_box_name
from workerdiag.recorder.stderr.descriptor_copy import is_copy_configured
from workerdiag.recorder.stderr.forwarder import Forwarder
from workerdiag.recorder.stderr.location import STDERR, file_id

#: A worker creates its file within this time of its start; if recording starts later, the file exists.
_FILE_TIMEOUT_S = 60.0


class StderrWatch:
    """Forwards the standard error of a nanny's successive worker processes, if configured."""

    def __init__(self) -> None:
        self._is_enabled = is_copy_configured()
        self._pid: int | None = None
        self._until = 0.0
        self._forwarder: Forwarder | None = None

    def poll(self, pid: int | None) -> None:
        """Check whether the worker process with this pid has created its file. Call this repeatedly."""
        if not self._is_enabled or pid is None:
            return
        if pid != self._pid or (self._forwarder is not None and self._forwarder.is_finished):
            self.finish()
            self._pid, self._until = pid, time.monotonic() + _FILE_TIMEOUT_S
        if self._forwarder is None and time.monotonic() < self._until:
            self._forwarder = _start_forwarder(pid)

    def finish(self) -> None:
        """The worker process has ended: pass on the rest, for at most half a second."""
        forwarder, self._forwarder, self._pid = self._forwarder, None, None
        if forwarder is not None:
            forwarder.finish()

    def stop(self) -> None:
        """Withdraw the promise; output until the worker knows is passed on."""
        forwarder, self._forwarder, self._is_enabled = self._forwarder, None, False
        if forwarder is not None:
            forwarder.withdraw()


def _start_forwarder(pid: int) -> Forwarder | None:
    """What passes on the standard error of a worker process; None if it asks for nothing, or it cannot be.

    It must go where ours goes: that is where it is passed on to.
    """
    import fcntl

    started_ms = process_start_ms(pid)
    for box in find_boxes(pid=pid):
        name, path = parse_box_name(box), stderr_path(box)
        if name is None or started_ms is None or name.started_ms != started_ms or not path.exists():
            continue
        sink = None
        try:
            if file_id(Path(f"/proc/{pid}/fd/{STDERR}").stat()) != file_id(os.fstat(STDERR)):
                return None
            sink = fcntl.fcntl(STDERR, fcntl.F_DUPFD_CLOEXEC, STDERR + 1)
            return Forwarder(path, sink, pid, started_ms)
        except OSError:
            if sink is not None:
                os.close(sink)
    return None
