"""Has deaths judged by a separate process, so that the scheduler does not run or import the reasoning.

In a thread of the scheduler it held the GIL for some 20 ms at a time and kept 17 to 28 MB (distributed
2026.8.0), and a crash of the regular expression engine would end the scheduler.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from attrs import frozen

from workerdiag.errors import describe_error
from workerdiag.integrations.dashboard.cases import JudgedCase, KnownCause
from workerdiag.wire.plain import from_plain

#: Seconds that the process may judge, and seconds after which it is killed: with its low priority it waits
#: for all others on a busy machine.
BUDGET_S, KILL_S = 60.0, 300.0
#: Maximum characters of its error output to show.
_PROBLEM_CHARS = 300

_T = TypeVar("_T")


@frozen(kw_only=True)
class Judgement:
    """The judgement of some deaths."""

    cases: tuple[JudgedCase, ...] = ()
    #: Ids of the judged deaths; those in no case were expected.
    death_ids: frozenset[str] = frozenset()
    #: All causes in the rules.
    causes: tuple[KnownCause, ...] = ()


class JudgingError(Exception):
    """Deaths could not be judged; the message says why, for a person."""


class Judge(Protocol):
    """Judges deaths, as lines of JSON."""

    def judge(self, deaths: Sequence[bytes]) -> Judgement:
        """Return the judgement, which may take minutes on a busy machine.

        Raises:
            JudgingError: The deaths could not be judged.
        """

    def stop(self) -> None:
        """Abort a running judgement."""


class JudgingProcess:
    """Starts a process for each judgement."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopped = threading.Event()

    def judge(self, deaths: Sequence[bytes]) -> Judgement:
        """Return the judgement. It blocks, so call it in a thread.

        Raises:
            JudgingError: The process cannot be started, failed, or took too long.
        """
        if getattr(sys, "frozen", False):
            raise JudgingError("a frozen program cannot start Python")
        try:
            output, complaints, status = self._run(b"\n".join(deaths))
        except (OSError, ValueError, subprocess.SubprocessError) as problem:
            raise JudgingError(describe_error(problem)) from problem
        judgement = parse_judgement(output.splitlines())
        if judgement is None:
            said = complaints.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise JudgingError(f"the process that judges ended with status {status}: {said[:_PROBLEM_CHARS]}")
        return judgement

    def stop(self) -> None:
        """Stop the process, if there is one, and start no further one."""
        self._is_stopped.set()
        if (process := self._process) is not None:
            process.kill()

    def _run(self, text: bytes) -> tuple[bytes, bytes, int]:
        command = [sys.executable, "-P", "-m", "workerdiag.integrations.dashboard.judge_process"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment) as process:  # noqa: S603  our own module
            self._process = process
            try:
                if self._is_stopped.is_set():
                    process.kill()
                output, complaints = process.communicate(text, timeout=KILL_S)
            finally:
                process.kill()
                self._process = None
        return output, complaints, process.returncode


def parse_judgement(lines: Iterable[bytes]) -> Judgement | None:
    """Parse the lines of `judge_process`; None if they are incomplete."""
    cases: list[JudgedCase] = []
    causes: list[KnownCause] = []
    for line in lines:
        try:
            found = json.loads(line)
            match found.pop("kind"):
                case "cause":
                    causes.append(_typed(KnownCause, found))
                case "case":
                    cases.append(_typed(JudgedCase, found))
                case "end":
                    ids = frozenset(map(str, found["deaths"]))
                    return Judgement(cases=tuple(cases), causes=tuple(causes), death_ids=ids)
        except (ValueError, KeyError, AttributeError, TypeError):
            return None
    return None


def _typed(kind: type[_T], content: object) -> _T:
    return from_plain(kind, content, [])
