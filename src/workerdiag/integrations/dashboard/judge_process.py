"""Has deaths judged by a separate process, so that the scheduler does not run or import the reasoning.

In a thread of the scheduler it held the GIL for some 20 ms at a time and kept 17 to 28 MB (distributed
2026.8.0), and a crash of the regular expression engine would end the scheduler.

The process, ``python -m workerdiag.integrations.dashboard.judge_process``, reads recorded deaths as JSON lines
from standard input, and writes JSON lines: each case with its report, and finally the rest of the `Judgement`.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence

from attrs import evolve

from workerdiag.deadline import Deadline
from workerdiag.integrations.dashboard.death_history import (
    Judgement,
    ShownCase,
    ids_of,
    read_deaths,
    victim_of,
)
from workerdiag.wire.plain import BrokenValueError, from_plain, to_plain
from workerdiag.wire.recorded_death import RecordedDeath

#: Seconds that the process may judge, and seconds after which it is killed: with its low priority it waits
#: for all others on a busy machine.
BUDGET_S, KILL_S = 60.0, 300.0
#: Priority (nice) below that of the scheduler, which may have only one processor.
_NICENESS = 10
_MAX_REPORT_BYTES = 4 * 2**20
_PROBLEM_CHARS = 300


class JudgingError(Exception):
    """Deaths could not be judged; the message says why, for a person."""


class JudgingProcess:
    """Starts a process for each judgement."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopped = threading.Event()

    def judge(self, deaths: Sequence[bytes]) -> Judgement:
        """Return the judgement of deaths, as lines of JSON. It may take minutes, so call it in a thread.

        Raises:
            JudgingError: The process failed.
            OSError: It cannot be started.
            subprocess.TimeoutExpired: It took too long.
        """
        if getattr(sys, "frozen", False):
            raise JudgingError("a frozen program cannot start Python")
        output, complaints, status = self._run(b"\n".join(deaths))
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
        command = [sys.executable, "-P", "-m", __name__]
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


def parse_judgement(lines: Sequence[bytes]) -> Judgement | None:
    """Parse the lines of the process; None if they are incomplete."""
    try:
        *cases, rest = map(json.loads, lines)
        judgement = from_plain(Judgement, rest, [])
        return evolve(judgement, cases=tuple(from_plain(ShownCase, each, []) for each in cases))
    except (ValueError, BrokenValueError):
        return None


def main() -> None:
    """Judge the deaths on standard input. Only the judgement goes to standard output."""
    with contextlib.suppress(AttributeError, OSError):
        os.nice(_NICENESS)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # packs may print
    with answers:
        for answer in conclude(read_deaths(sys.stdin.buffer)):
            answers.write(json.dumps(answer) + "\n")


def conclude(deaths: Sequence[RecordedDeath]) -> Iterator[Mapping[str, object]]:
    """Yield the judgement of the deaths as plain data: each case, and then the rest."""
    from workerdiag.api.explain import DEFAULT_RULEBOOK
    from workerdiag.incidents.incident import is_likely, title_of, watched_deaths
    from workerdiag.incidents.judge import judge

    victims = {each.id: each for each in map(victim_of, deaths)}
    for incident in judge(watched_deaths(deaths), timeout_s=BUDGET_S):
        diagnosis, top = incident.diagnosis, incident.diagnosis.top
        html = diagnosis.to_html().encode()
        case = ShownCase(
            id=incident.key,
            title=title_of(diagnosis),
            cause=top.id if top is not None else None,
            family=top.family if top is not None else None,
            probability=round(top.probability, 3) if top is not None else 0.0,
            is_likely=is_likely(diagnosis),
            blame=diagnosis.blame.verdict,
            victims=tuple(victims[each.id] for each in incident.deaths),
            report=base64.b64encode(zlib.compress(html)).decode() if len(html) <= _MAX_REPORT_BYTES else "",
        )
        yield to_plain(case)
    book = DEFAULT_RULEBOOK.within(Deadline.after(BUDGET_S))[0]
    causes = tuple((each.id, each.family, each.blame) for each in book.causes)
    yield to_plain(Judgement(death_ids=ids_of(victims.values()), causes=causes))


if __name__ == "__main__":
    main()
