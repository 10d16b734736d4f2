"""The process that judges deaths for a scheduler: ``python -m workerdiag.integrations.dashboard.judge_process``.

It reads recorded deaths as JSON lines from standard input, and writes JSON lines: all known causes, each case
with its report, and finally the deaths that it read.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import sys
import zlib
from collections.abc import Iterator, Mapping

from workerdiag.api.explain import DEFAULT_RULEBOOK
from workerdiag.deadline import Deadline
from workerdiag.incidents.incident import WatchedIncident, is_likely, title_of, watched_deaths
from workerdiag.incidents.judge import judge
from workerdiag.integrations.dashboard.judge import (
    BUDGET_S,
    DeadWorker,
    JudgedCase,
    KnownCause,
    ids_of,
    victim_of,
)
from workerdiag.wire.plain import BrokenValueError, from_plain, to_plain
from workerdiag.wire.recorded_death import RecordedDeath

#: Priority (nice) below that of the scheduler, which may have only one processor.
_NICENESS = 10
_MAX_REPORT_BYTES = 4 * 2**20


def main() -> None:
    """Judge the deaths on standard input. Only the judgement goes to standard output."""
    with contextlib.suppress(AttributeError, OSError):
        os.nice(_NICENESS)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # packs may print
    deaths = [each for line in sys.stdin.buffer if (each := _read(line)) is not None]
    with answers:
        for answer in conclude(deaths):
            answers.write(json.dumps(answer) + "\n")


def conclude(deaths: list[RecordedDeath]) -> Iterator[Mapping[str, object]]:
    """Yield the judgement of the deaths as plain data."""
    book = DEFAULT_RULEBOOK.within(Deadline.after(BUDGET_S))[0]
    for each in book.causes:
        yield {"kind": "cause"} | to_plain(KnownCause(cause=each.id, family=each.family, blame=each.blame))
    victims = {each.id: each for each in map(victim_of, deaths)}
    for incident in judge(watched_deaths(deaths), timeout_s=BUDGET_S):
        yield {"kind": "case"} | to_plain(_case_of(incident, victims))
    yield {"kind": "end", "deaths": sorted(ids_of(victims.values()))}


def _read(line: bytes) -> RecordedDeath | None:
    try:
        return from_plain(RecordedDeath, json.loads(line), [])
    except (ValueError, BrokenValueError):
        return None


def _case_of(incident: WatchedIncident, victims: Mapping[str, DeadWorker]) -> JudgedCase:
    diagnosis = incident.diagnosis
    top = diagnosis.top
    html = diagnosis.to_html().encode()
    return JudgedCase(
        id=incident.key,
        title=title_of(diagnosis),
        cause=top.id if top is not None else None,
        family=top.family if top is not None else None,
        probability=top.probability if top is not None else 0.0,
        is_likely=is_likely(diagnosis),
        blame=diagnosis.blame.verdict,
        victims=tuple(victims[each.id] for each in incident.deaths),
        report=base64.b64encode(zlib.compress(html)).decode() if len(html) <= _MAX_REPORT_BYTES else "",
    )


if __name__ == "__main__":
    main()
