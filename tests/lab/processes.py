"""Runs ``dask scheduler`` or ``dask worker`` as a separate process, and makes sure that it ends."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self, TypeVar

import psutil

from .forked import ForkedProcess, Kind

T = TypeVar("T")

#: Longest wait in seconds, for a busy machine; a healthy step takes a second or two.
PATIENCE_S = 60.0
#: Makes the process die with its parent (``man 2 prctl``, PR_SET_PDEATHSIG is 1), joins a cgroup if given, and
#: executes the command.
LAUNCH = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
_, group, *command = sys.argv
if group:
    with open(group, "w") as joined:
        joined.write(str(os.getpid()))
os.execvp(command[0], command)
"""

#: Python's multiprocessing starts this next to the worker; it cleans up and ends by itself.
TRACKER = "multiprocessing.resource_tracker"


class LabError(Exception):
    """The lab could not set up a fault; this says nothing about workerdiag."""


def wait_until(ask: Callable[[], T], what: str, *, within_s: float = PATIENCE_S) -> T:
    """Return the first true result of *ask*.

    Raises:
        LabError: There is none within *within_s* seconds.
    """
    deadline = time.monotonic() + within_s
    while not (answer := ask()):
        if time.monotonic() > deadline:
            raise LabError(f"waited {within_s:.0f} s in vain for {what}")
        time.sleep(0.02)
    return answer


class Daemon:
    """A command that runs until it is closed, with its child processes and their log.

    Args:
        command: Program and arguments.
        log: File for stdout and stderr.
        env: The whole environment.
        group: A ``cgroup.procs`` file, to which the command's pid is written.
    """

    def __init__(
        self, command: Sequence[str], *, log: Path, env: Mapping[str, str], group: Path | None = None
    ) -> None:
        self.log = log
        with log.open("wb") as sink:
            self._process: subprocess.Popen[bytes] | ForkedProcess = subprocess.Popen(
                [sys.executable, "-c", LAUNCH, str(group or ""), *command],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=env,
                cwd=log.parent,
                start_new_session=True,  # one process group to end, which does not get pytest's ^C
            )

    @classmethod
    def forked(cls, kind: Kind, arguments: Sequence[str], *, log: Path, env: Mapping[str, str]) -> Self:
        """Return ``dask scheduler`` or ``dask worker`` without the second that its imports take."""
        self = cls.__new__(cls)
        self.log = log
        self._process = ForkedProcess(kind, arguments, log=log, env=env, import_path=env["PYTHONPATH"])
        return self

    @property
    def pid(self) -> int:
        """The pid of the command itself: the scheduler, the nanny, or a worker without one."""
        return self._process.pid

    def wait_for_output(self, pattern: str, *, within_s: float = PATIENCE_S) -> re.Match[str]:
        """Wait for *pattern* in the log; return its first match."""

        def look() -> re.Match[str] | None:
            return re.search(pattern, self.log.read_text(errors="replace"))

        found = wait_until(look, f"{pattern!r} in {self.log}", within_s=within_s)
        assert found is not None
        return found

    def ended(self, *, within_s: float = PATIENCE_S) -> int:
        """Wait for the end and return the exit status; a signal's number is negative."""
        try:
            return self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise LabError(f"{self.log.stem} does not end") from None

    def worker_pid(self) -> int:
        """Return the pid of this nanny's worker process."""

        def look() -> list[int]:
            nanny = psutil.Process(self.pid)
            return [child.pid for child in nanny.children() if "spawn_main" in " ".join(child.cmdline())]

        return wait_until(look, "a worker below the nanny")[0]

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the command itself, not to its children."""
        self._process.send_signal(number)

    def close(self) -> None:
        """Kill the remaining process group and wait until it is gone."""
        for process in self._group():
            if TRACKER not in " ".join(_command_line(process)):
                _kill(process.pid)
        try:
            wait_until(lambda: not self._group(), "an empty process group", within_s=3)
        except LabError:
            for process in self._group():
                _kill(process.pid)
        self._process.wait(PATIENCE_S)

    def _group(self) -> list[psutil.Process]:
        """Return live members of the command's process group."""
        return [process for process in psutil.process_iter() if _group_of(process) == self.pid]


def _group_of(process: psutil.Process) -> int | None:
    try:
        return None if process.status() == psutil.STATUS_ZOMBIE else os.getpgid(process.pid)
    except (psutil.Error, OSError):
        return None


def _command_line(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
