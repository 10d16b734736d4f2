"""
Commands of the operating system and of batch systems: bounded in time and in what they may say.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import IO

from attrs import frozen

from workerdiag.errors import worded
from workerdiag.model.evidence import Gap

#: What one command may say.
MOST_BYTES = 4 * 2**20
_BLOCK_BYTES = 64 * 1024
#: So that times and states come in the form that is documented.
_PLAIN = {"LC_ALL": "C", "TZ": "UTC", "SLURM_TIME_FORMAT": "standard"}
_DENIED = ("permission denied", "not permitted", "access denied", "not authorized", "unauthorized")
_AWAY = ("unable to contact", "connection refused", "cannot connect", "could not connect", "timed out")


@frozen(kw_only=True)
class Said:
    """
    What one command said.
    """

    output: bytes
    errors: str
    status: int
    #: Whether there was more than `MOST_BYTES`.
    cut: bool = False


def run(command: Sequence[str], *, within_s: float) -> Said:
    """
    What *command* says, run without a shell, without input, in the C locale and in UTC.

    Raises:
        FileNotFoundError: There is no such command.
        TimeoutError: It did not end in time; it has been killed.
    """
    path = shutil.which(command[0])
    if path is None:
        raise FileNotFoundError(command[0])
    process = subprocess.Popen(  # noqa: S603  our own commands, and ids that sources have checked
        [path, *command[1:]],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **_PLAIN},
        start_new_session=True,
    )
    said: dict[str, bytes] = {}
    readers = [
        threading.Thread(target=_read, args=(said, name, pipe), daemon=True)
        for name, pipe in (("output", process.stdout), ("errors", process.stderr))
    ]
    for reader in readers:
        reader.start()
    deadline = time.monotonic() + within_s
    try:
        status = _ended(process, deadline, said)
    finally:
        _end(process)
        for reader, pipe in zip(readers, (process.stdout, process.stderr), strict=True):
            reader.join(timeout=max(0.1, deadline - time.monotonic()))
            if pipe is not None and not reader.is_alive():
                pipe.close()
    output = said.get("output", b"")
    errors = said.get("errors", b"").decode("utf-8", errors="replace").strip()
    return Said(output=output[:MOST_BYTES], errors=errors[:2000], status=status, cut=len(output) > MOST_BYTES)


def _ended(process: subprocess.Popen[bytes], deadline: float, said: dict[str, bytes]) -> int:
    while True:
        try:
            return process.wait(timeout=min(0.05, max(0.0, deadline - time.monotonic())))
        except subprocess.TimeoutExpired:
            if len(said.get("output", b"")) > MOST_BYTES:
                return 0
            if time.monotonic() >= deadline:
                raise TimeoutError("the command did not end in time") from None


def _end(process: subprocess.Popen[bytes]) -> None:
    """
    End the command and what it started itself; it leads a session of its own.
    """
    with suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.poll()


def _read(said: dict[str, bytes], name: str, pipe: IO[bytes] | None) -> None:
    """
    Read to the end, or to a little more than may be said.
    """
    said[name] = b""
    while pipe is not None and len(said[name]) <= MOST_BYTES:
        try:
            block = os.read(pipe.fileno(), _BLOCK_BYTES)
        except (OSError, ValueError):
            return
        if not block:
            return
        said[name] += block


def why_not(source: str, command: Sequence[str], problem: Exception | Said) -> Gap:
    """
    The gap that a command leaves which could not be run, or which said that it failed.
    """
    typed = shlex.join(command)
    if isinstance(problem, FileNotFoundError):
        detail = f"{command[0]} is not installed here"
        return Gap(
            source=source, reason="not-installed", detail=detail, remedy=f"where it is installed: {typed}"
        )
    if isinstance(problem, TimeoutError):
        return Gap(
            source=source, reason="timed-out", detail=f"{command[0]} did not answer in time", remedy=typed
        )
    if isinstance(problem, Said):
        detail = f"{command[0]} ended with status {problem.status}: {problem.errors}"[:500]
    else:
        detail = f"{command[0]}: {worded(problem)}"[:500]
    lower = detail.lower()
    reason = "malformed"
    if any(each in lower for each in _DENIED):
        reason = "forbidden"
    elif any(each in lower for each in _AWAY):
        reason = "unreachable"
    return Gap(source=source, reason=reason, detail=detail, remedy=typed)
