"""Has deaths judged by a separate process, so that the scheduler does not run or import the reasoning.

In a thread of the scheduler it held the GIL for some 20 ms at a time and kept 17 to 28 MB (distributed
2026.8.0), and a crash of the regular expression engine would end the scheduler. So the cases on the dashboard,
with their victims and the memory of these, convert to plain data and back.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from typing import Protocol

from attrs import evolve, frozen

from workerdiag.errors import describe_error
from workerdiag.model.vocabulary import Verdict
from workerdiag.wire.messages import Heartbeat
from workerdiag.wire.plain import from_plain
from workerdiag.wire.recorded_death import RecordedDeath

#: Seconds that the process may judge, and seconds after which it is killed: with its low priority it waits
#: for all others on a busy machine.
BUDGET_S, KILL_S = 60.0, 300.0
_PROBLEM_CHARS = 300


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
            raise JudgingError(f"the judging process ended with status {status}: {said[:_PROBLEM_CHARS]}")
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
                    causes.append(from_plain(KnownCause, found, []))
                case "case":
                    cases.append(from_plain(JudgedCase, found, []))
                case "end":
                    ids = frozenset(map(str, found["deaths"]))
                    return Judgement(cases=tuple(cases), causes=tuple(causes), death_ids=ids)
        except (ValueError, KeyError, AttributeError, TypeError):
            return None
    return None


#: Maximum number of points of a curve: as many as fit into a drawing.
MAX_POINTS = 120
_NAME_CHARS = 100


@frozen(kw_only=True)
class DeadWorker:
    """A worker that died, with its memory until then."""

    #: As `RecordedDeath.id`.
    id: str
    #: Its id while only a report is known: the scheduler may notice a death later.
    report_id: str | None = None
    #: Address of the worker, or its process id if the address is not known.
    worker: str
    name: str = ""
    #: When the scheduler noticed the death, in seconds since the epoch.
    when: float
    #: Times of the memory below, in seconds relative to the death: negative.
    seconds: tuple[float, ...] = ()
    rss_bytes: tuple[int, ...] = ()
    limit_bytes: int | None = None


@frozen(kw_only=True)
class KnownCause:
    """A cause with its family, and who usually has to act."""

    cause: str
    family: str
    blame: Verdict


@frozen(kw_only=True)
class JudgedCase:
    """Deaths of one trouble, with their judgement."""

    #: The fingerprint of the diagnosis.
    id: str
    title: str
    cause: str | None = None
    family: str | None = None
    #: Probability of the cause, from 0 to 1.
    probability: float = 0.0
    #: Whether the cause is more than a guess.
    is_likely: bool = False
    blame: Verdict = "unknown"
    victims: tuple[DeadWorker, ...] = ()
    #: The report: HTML, compressed with zlib, in base64; empty if there is none.
    report: str = ""


def ids_of(victims: Iterable[DeadWorker]) -> frozenset[str]:
    """Return all ids of these deaths."""
    return frozenset(id_ for each in victims for id_ in (each.id, each.report_id) if id_ is not None)


def victim_of(death: RecordedDeath) -> DeadWorker:
    """Return the worker of a recorded death, with the memory in its box or its last heartbeat."""
    who, record, report = death.identity, death.record, death.report
    points = _decimated(_memory(death))
    limits = [each.memory_limit_bytes for each in (record, report) if each is not None]
    return DeadWorker(
        id=death.id,
        report_id=evolve(death, record=None).id if report is not None else None,
        worker=(who.worker or f"pid {who.pid or 'unknown'}")[:_NAME_CHARS],
        name=(who.name or "")[:_NAME_CHARS],
        when=death.time,
        seconds=tuple(round(at - death.time, 2) for at, _ in points),
        rss_bytes=tuple(count for _, count in points),
        limit_bytes=next((each for each in limits if each), None),
    )


def _memory(death: RecordedDeath) -> list[tuple[float, int]]:
    box = death.report.box if death.report is not None else None
    samples = box.samples if box is not None else ()
    known = [(each.at, each.process_rss_bytes) for each in samples]
    if not known:
        heartbeat = death.record.last_heartbeat if death.record is not None else Heartbeat()
        known = [(heartbeat.at or death.time, heartbeat.rss_bytes)]
    return [(at, count) for at, count in known if count is not None]


def _decimated(points: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """Return at most `MAX_POINTS` of the points: the highest of each stretch, and always the last."""
    if len(points) <= MAX_POINTS:
        return list(points)
    step = -(-len(points) // (MAX_POINTS - 1))
    stretches = (points[begin : begin + step] for begin in range(0, len(points), step))
    return [*(max(each, key=lambda point: point[1]) for each in stretches), points[-1]]
