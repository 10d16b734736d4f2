"""Starts ``dask scheduler`` and ``dask worker`` as forks of one process that has imported them.

Importing is nine tenths of what a start costs. Nothing else differs: a fork reads its configuration, logs
and dies as the command does.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

Kind = Literal["scheduler", "worker"]


class ForkedProcess:
    """A fork, with what the lab uses of `subprocess.Popen`."""

    def __init__(
        self, kind: Kind, arguments: Sequence[str], *, log: Path, env: Mapping[str, str], import_path: str
    ) -> None:
        log.write_bytes(b"")
        forking = _forking(import_path)
        assert forking.stdin is not None
        assert forking.stdout is not None
        # The exit status goes to a file: only the parent may wait for a process.
        self._status = log.with_suffix(f".{time.monotonic_ns()}.status")
        request = {
            "kind": kind,
            "arguments": arguments,
            "log": str(log),
            "env": dict(env),
            "status": str(self._status),
        }
        forking.stdin.write(json.dumps(request) + "\n")
        forking.stdin.flush()
        self.pid = int(forking.stdout.readline())

    def wait(self, timeout_s: float) -> int:
        """Wait for the end and return the exit status; a signal's number is negative."""
        deadline = time.monotonic() + timeout_s
        while not self._status.exists():
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("dask", timeout_s)
            time.sleep(0.02)
        return int(self._status.read_text())

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if not self._status.exists():
            os.kill(self.pid, number)


@functools.cache
def _forking(import_path: str) -> subprocess.Popen[str]:
    """Return the process that forks, which ends with this one."""
    env = {**os.environ, "PYTHONPATH": import_path, "PYTHONUNBUFFERED": "1"}
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, __file__], stdin=pipe, stdout=pipe, text=True, env=env)


def _fork_on_request() -> None:
    """Read requests from standard input until it is closed, and write down how each fork ended."""
    from distributed.cli import dask_scheduler, dask_worker

    commands = {"scheduler": dask_scheduler.main, "worker": dask_worker.main}
    running: dict[int, str] = {}
    while True:
        if select.select([sys.stdin], [], [], 0.02 if running else None)[0]:
            line = sys.stdin.readline()
            if not line:
                return
            request = json.loads(line)
            if (pid := os.fork()) == 0:
                _become(request)
                commands[request["kind"]](request["arguments"])
            running[pid] = request["status"]
        while running and (ended := os.waitpid(-1, os.WNOHANG))[0]:
            status = Path(running.pop(ended[0]))
            unfinished = status.with_suffix(".new")
            unfinished.write_text(str(os.waitstatus_to_exitcode(ended[1])))
            unfinished.rename(status)


def _become(request: Mapping[str, Any]) -> None:
    """Turn a fork into what the command would be."""
    import dask.config

    os.setsid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # die with the parent (PR_SET_PDEATHSIG)
    print(os.getpid(), flush=True)  # noqa: T201  the reply
    log = Path(request["log"])
    nothing = os.open(os.devnull, os.O_RDONLY)
    sink = os.open(log, os.O_WRONLY)
    for source, target in ((nothing, 0), (sink, 1), (sink, 2)):
        os.dup2(source, target)
    os.closerange(3, max(nothing, sink) + 1)
    os.chdir(log.parent)
    sys.path.insert(0, str(log.parent))  # as with ``python -m``
    sys.argv = ["dask", request["kind"], *request["arguments"]]
    os.environ.clear()
    os.environ.update(request["env"])
    dask.config.refresh()


if __name__ == "__main__":
    del sys.path[0]  # this folder, whose modules are the lab's own
    _fork_on_request()
