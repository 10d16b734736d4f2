"""
Commands of the operating system and of batch systems: bounded in time and in what they may say.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import IO

from attrs import frozen

from workerdiag.deadline import Deadline, start_thread
from workerdiag.errors import describe_error
from workerdiag.model.evidence import Gap
from workerdiag.model.vocabulary import GapReason

#: What one command may say.
MAX_BYTES = 4 * 2**20
_BLOCK_BYTES = 64 * 1024
#: Its end is looked for this often, and what it said is read for at least so long, in seconds.
_POLL_S, _MIN_READ_S = 0.05, 0.1
#: So that times and states come in the form that is documented.
_PLAIN_ENVIRONMENT = {"LC_ALL": "C", "TZ": "UTC", "SLURM_TIME_FORMAT": "standard"}
_DENIED_WORDS = ("permission denied", "not permitted", "access denied", "not authorized", "unauthorized")
_UNREACHABLE_WORDS = (
    "unable to contact",
    "connection refused",
    "cannot connect",
    "could not connect",
    "timed out",
)


@frozen(kw_only=True)
class CommandResult:
    """
    What one command said.
    """

    stdout: bytes
    errors: str
    returncode: int
    #: Whether there was more than `MAX_BYTES`.
    is_truncated: bool = False


def run_command(command: Sequence[str], deadline: Deadline) -> CommandResult:
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
        env={**os.environ, **_PLAIN_ENVIRONMENT},
        start_new_session=True,
    )
    streams: dict[str, bytes] = {}
    pipes = {"output": process.stdout, "errors": process.stderr}
    readers = {
        name: start_thread(f"workerdiag-{name}", partial(_read_pipe, streams, name, pipe))
        for name, pipe in pipes.items()
    }
    try:
        status = _wait(process, deadline, streams)
    finally:
        _kill(process)
        for name, reader in readers.items():
            reader.join(timeout=max(_MIN_READ_S, deadline.left_s))
            if (pipe := pipes[name]) is not None and not reader.is_alive():
                pipe.close()
    output = streams.get("output", b"")
    errors = streams.get("errors", b"").decode("utf-8", errors="replace").strip()
    return CommandResult(
        stdout=output[:MAX_BYTES],
        errors=errors[:2000],
        returncode=status,
        is_truncated=len(output) > MAX_BYTES,
    )


def _wait(process: subprocess.Popen[bytes], deadline: Deadline, streams: dict[str, bytes]) -> int:
    while True:
        try:
            return process.wait(timeout=min(_POLL_S, deadline.left_s))
        except subprocess.TimeoutExpired:
            if len(streams.get("output", b"")) > MAX_BYTES:
                return 0
            if deadline.is_over:
                raise TimeoutError("the command did not end in time") from None


def _kill(process: subprocess.Popen[bytes]) -> None:
    """
    End the command and what it started itself; it leads a session of its own.
    """
    with suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.poll()


def _read_pipe(streams: dict[str, bytes], name: str, pipe: IO[bytes] | None) -> None:
    """
    Read to the end, or to a little more than may be said.
    """
    streams[name] = b""
    while pipe is not None and len(streams[name]) <= MAX_BYTES:
        try:
            block = os.read(pipe.fileno(), _BLOCK_BYTES)
        except (OSError, ValueError):
            return
        if not block:
            return
        streams[name] += block


def command_gap(source: str, command: Sequence[str], problem: Exception | CommandResult) -> Gap:
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
    if isinstance(problem, CommandResult):
        detail = f"{command[0]} ended with status {problem.returncode}: {problem.errors}"[:500]
    else:
        detail = f"{command[0]}: {describe_error(problem)}"[:500]
    lower = detail.lower()
    reason: GapReason = "malformed"
    if any(each in lower for each in _DENIED_WORDS):
        reason = "forbidden"
    elif any(each in lower for each in _UNREACHABLE_WORDS):
        reason = "unreachable"
    return Gap(source=source, reason=reason, detail=detail, remedy=typed)
