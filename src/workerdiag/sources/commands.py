"""Runs commands of the operating system and of batch systems, in bounded time."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress

from workerdiag.deadline import Deadline
from workerdiag.errors import describe_error
from workerdiag.model.evidence import Gap
from workerdiag.model.vocabulary import GapReason
from workerdiag.values import frozen

#: Makes commands print times and states in the documented format.
_PLAIN_ENVIRONMENT = {"LC_ALL": "C", "TZ": "UTC", "SLURM_TIME_FORMAT": "standard"}
#: Patterns of error messages; the first match gives the reason.
_REASONS: Mapping[GapReason, str] = {
    "forbidden": r"permission denied|not permitted|access denied|not authorized|unauthorized",
    "unreachable": r"unable to contact|connection refused|cannot connect|could not connect|timed out",
}


@frozen(kw_only=True)
class CommandResult:
    """The output and exit status of one command."""

    stdout: bytes
    errors: str
    returncode: int


def run_command(command: Sequence[str], deadline: Deadline) -> CommandResult:
    """Return the result of *command*, run without a shell, without input, in the C locale and in UTC.

    Raises FileNotFoundError without such a command, and TimeoutError if it did not end in time and was killed.
    """
    path = shutil.which(command[0])
    if path is None:
        raise FileNotFoundError(command[0])
    process = subprocess.Popen(  # noqa: S603  fixed commands, and ids that sources have validated
        [path, *command[1:]],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **_PLAIN_ENVIRONMENT},
        start_new_session=True,
    )
    with process:
        try:
            output, errors = process.communicate(timeout=deadline.left_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError("the command did not end in time") from None
        finally:
            with suppress(OSError):  # its children, too: it leads a session
                os.killpg(process.pid, signal.SIGKILL)
    text = errors.decode("utf-8", errors="replace").strip()
    return CommandResult(stdout=output, errors=text[:2000], returncode=process.returncode)


def command_gap(
    source: str,
    command: Sequence[str],
    problem: Exception | CommandResult,
    *,
    words: Mapping[GapReason, str] | None = None,
) -> Gap:
    """Return the gap of a command that could not be run, or that reported a failure.

    *words* are the command's own patterns by reason, tried before those of all commands.
    """
    reason: GapReason
    remedy = shlex.join(command)
    match problem:
        case FileNotFoundError():
            reason, detail = "not-installed", f"{command[0]} is not installed here"
            remedy = f"where it is installed: {remedy}"
        case TimeoutError():
            reason, detail = "timed-out", f"{command[0]} did not answer in time"
        case CommandResult():
            detail = f"{command[0]} ended with status {problem.returncode}: {problem.errors}"[:500]
            own = (words or {}) if problem.returncode != 127 else {}  # no such command
            reason = _reason_in(detail, {**own, **_REASONS})
        case _:
            detail = f"{command[0]}: {describe_error(problem)}"[:500]
            reason = _reason_in(detail, _REASONS)
    return Gap(source=source, reason=reason, detail=detail, remedy=remedy)


def _reason_in(text: str, words: Mapping[GapReason, str]) -> GapReason:
    found = (reason for reason, pattern in words.items() if re.search(pattern, text, re.IGNORECASE))
    return next(found, "malformed")
