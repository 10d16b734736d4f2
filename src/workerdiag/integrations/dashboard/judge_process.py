"""The deaths of one scheduler for the dashboard, and the process that judges them.

The scheduler does not run or import the reasoning. In a thread of the scheduler it held the GIL for some 20 ms at
a time and kept 17 to 28 MB (distributed 2026.8.0), and a crash of the regular expression engine would end it.

The process, ``python -m workerdiag.integrations.dashboard.judge_process``, reads recorded deaths as JSON lines
from standard input, and writes a `Judgement` as JSON.
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
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from collections.abc import Set as AbstractSet
from heapq import nlargest
from operator import attrgetter
from typing import Final

from attrs import Factory, asdict, evolve, field
from attrs.filters import exclude

from workerdiag.deadline import Deadline
from workerdiag.model.vocabulary import Verdict
from workerdiag.values import frozen
from workerdiag.wire.messages import Heartbeat
from workerdiag.wire.plain import from_plain, to_plain
from workerdiag.wire.recorded_death import RecordedDeath

#: Schema number of the JSON, increased with each change that readers could notice.
JSON_SCHEMA: Final = 1
#: Maximum number of cases; those without a death for longest are dropped.
MAX_CASES = 100
#: Numbers of dead workers of a case to keep and to list, the newest first; others are only counted.
MAX_VICTIMS, MAX_NAMED = 50, 10
#: Limits of the reports to keep, of the cases with the newest deaths: number and total characters, compressed.
MAX_REPORTS, MAX_REPORT_CHARS = 50, 16 * 2**20
#: Number of counted deaths to remember: ten times what the recorder keeps.
_MAX_KNOWN = 10_000
#: Maximum number of points of a curve: as many as fit into a drawing.
MAX_POINTS = 120
_NAME_CHARS = 100
#: Id of the case for deaths that could not be judged.
UNJUDGED = "unjudged"

#: Labels of the counts: cause, family and blame.
Labels = tuple[str, ...]
_UNKNOWN: Final = "unknown"


@frozen(kw_only=True)
class MemoryCurve:
    """The memory of a worker until it died."""

    #: Relative to the death: negative.
    seconds: tuple[float, ...] = ()
    rss_bytes: tuple[int, ...] = ()
    limit_bytes: int | None = None


@frozen(kw_only=True)
class DeadWorker:
    """A worker that died."""

    #: As `RecordedDeath.id`, and its id while only a report is known: the scheduler may notice a death later.
    id: str
    report_id: str | None = None
    #: Address of the worker, or its process id if the address is not known.
    worker: str
    name: str = ""
    #: When the scheduler noticed the death, in seconds since the epoch.
    when: float
    memory: MemoryCurve = MemoryCurve()


_when = attrgetter("when")


@frozen(kw_only=True)
class ShownCase:
    """One row: a problem and its victims, those of one judgement or of all."""

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
    #: In the order of judgement.
    victims: tuple[DeadWorker, ...]
    death_count: int = field(default=Factory(lambda case: len(case.victims), takes_self=True))
    first_at: float = field(default=Factory(lambda case: min(map(_when, case.victims)), takes_self=True))
    last_at: float = field(default=Factory(lambda case: max(map(_when, case.victims)), takes_self=True))
    #: The report: HTML, compressed with zlib, in base64; empty if there is none.
    report: str = ""

    @property
    def labels(self) -> Labels:
        """The labels under which its deaths are counted."""
        if self.cause is None or self.family is None or not self.is_likely:
            return (_UNKNOWN, _UNKNOWN, self.blame)
        return (self.cause, self.family, self.blame)

    def after(self, earlier: ShownCase) -> ShownCase:
        """Return the case with the deaths of an *earlier* judgement."""
        return evolve(
            self,
            death_count=earlier.death_count + self.death_count,
            first_at=min(earlier.first_at, self.first_at),
            last_at=max(earlier.last_at, self.last_at),
            victims=(*earlier.victims, *self.victims),
            report=self.report or earlier.report,
        )

    def to_plain(self, drawn: Container[str]) -> dict[str, object]:
        """Return the row as plain data, with the memory of the deaths in *drawn*."""
        return asdict(self, filter=exclude("victims")) | {
            "workers": [
                {"worker": each.worker, "name": each.name, "when": each.when}
                | ({"memory": asdict(each.memory, recurse=False)} if each.id in drawn else {})
                for each in nlargest(MAX_NAMED, self.victims, key=_when)
            ],
            "report": f"workerdiag/deaths/{self.id}.html" if self.report else None,
        }


@frozen(kw_only=True)
class Judgement:
    """The judgement of some deaths."""

    cases: tuple[ShownCase, ...] = ()
    #: Ids of the judged deaths; those in no case were expected.
    death_ids: tuple[str, ...]
    #: Labels of all causes in the rules.
    causes: tuple[Labels, ...] = ()


class DeathBook:
    """Cases by id, and counts that only grow."""

    def __init__(self) -> None:
        #: Those with the newest deaths first.
        self._cases: dict[str, ShownCase] = {}
        #: The case of each death, empty for none, the newest last.
        self._case_of: dict[str, str] = {}
        #: Number of deaths by cause, family and blame, with zero for other known causes.
        self.counts: Counter[Labels] = Counter({(_UNKNOWN,) * 3: 0})
        #: Whether causes without deaths are counted too.
        self.knows_causes = False
        self._json: str | None = None
        #: Number of deaths that wait to be judged.
        self.settling_count = 0
        #: Number of deaths that the recorder dropped unread.
        self.missed_count = 0

    @property
    def death_count(self) -> int:
        """The number of deaths counted."""
        return self.counts.total()

    def report(self, case_id: str) -> bytes | None:
        """Return the HTML report of a case; None if there is no such case, or its report was dropped."""
        case = self._cases.get(case_id)
        return zlib.decompress(base64.b64decode(case.report)) if case is not None and case.report else None

    def to_json(self) -> str:
        """Return everything shown, as docs/dashboard.md describes it. It is kept until the next change."""
        if self._json is None:
            cases = self._cases.values()
            victims = (victim for case in cases for victim in case.victims)
            drawn = {each.id for each in nlargest(20, victims, key=_when)}
            self._json = json.dumps(
                {
                    "schema": JSON_SCHEMA,
                    "death_count": self.death_count,
                    "settling_count": self.settling_count,
                    "missed_count": self.missed_count,
                    "cases": [each.to_plain(drawn) for each in cases],
                }
            )
        return self._json

    def settle(self, count: int, missed_count: int = 0) -> None:
        """Note the number of waiting deaths, and of further missed ones."""
        if count != self.settling_count or missed_count:
            self.settling_count = count
            self.missed_count += missed_count
            self._json = None

    def add(self, judgement: Judgement) -> None:
        """Add a judgement. A death that was judged before moves to its new case, and stays counted as it was."""
        self.knows_causes = self.knows_causes or bool(judgement.causes)
        self.counts.update(dict.fromkeys(judgement.causes, 0))
        self._remove({id_ for id_ in judgement.death_ids if self._case_of.get(id_)})
        for case in judgement.cases:
            for victim in case.victims:
                id_ = victim.report_id if victim.report_id in self._case_of else victim.id
                self.counts[case.labels] += id_ not in self._case_of
                self._case_of[id_] = case.id
            earlier = self._cases.get(case.id)
            self._cases[case.id] = case.after(earlier) if earlier is not None else case
        self._enforce_limits()
        self._json = None

    def _remove(self, death_ids: AbstractSet[str | None]) -> None:
        for id_, count in Counter(case_id for each, case_id in self._case_of.items() if each in death_ids).items():
            if (case := self._cases.get(id_)) is not None:
                others = tuple(each for each in case.victims if death_ids.isdisjoint((each.id, each.report_id)))
                self._cases[id_] = evolve(case, victims=others, death_count=case.death_count - count)

    def _enforce_limits(self) -> None:
        newest = sorted(self._cases.values(), key=attrgetter("last_at"), reverse=True)
        self._cases = {}
        left = MAX_REPORT_CHARS
        for case in [each for each in newest if each.death_count][:MAX_CASES]:
            left -= len(case.report)
            report = case.report if len(self._cases) < MAX_REPORTS and left >= 0 else ""
            self._cases[case.id] = evolve(case, report=report, victims=case.victims[-MAX_VICTIMS:])
        known = list(self._case_of.items())[-_MAX_KNOWN:]
        self._case_of = {id_: case_id if case_id in self._cases else "" for id_, case_id in known}


def read_deaths(lines: Iterable[bytes]) -> list[RecordedDeath]:
    """Return the deaths in lines of JSON, without those that cannot be read."""
    deaths = []
    for line in lines:
        with contextlib.suppress(ValueError):
            deaths.append(from_plain(RecordedDeath, json.loads(line), []))
    return deaths


def unjudged(lines: Iterable[bytes], problem: str) -> Judgement:
    """Return a case without a cause for the unexpected deaths."""
    deaths = read_deaths(lines)
    victims = tuple(victim_of(each) for each in deaths if not each.is_expected)
    title = f"not diagnosed: {problem}"
    return Judgement(
        cases=(ShownCase(id=UNJUDGED, title=title, victims=victims),) if victims else (),
        death_ids=ids_of(map(victim_of, deaths)),
    )


def ids_of(victims: Iterable[DeadWorker]) -> tuple[str, ...]:
    """Return all ids of these deaths."""
    return tuple(id_ for each in victims for id_ in (each.id, each.report_id) if id_ is not None)


def victim_of(death: RecordedDeath) -> DeadWorker:
    """Return the worker of a recorded death, with the memory in its box or its last heartbeat."""
    who, record, report = death.identity, death.record, death.report
    box = report.box if report is not None else None
    known = [(each.at, each.process_rss_bytes) for each in (box.samples if box is not None else ())]
    if not known:
        heartbeat = record.last_heartbeat if record is not None else Heartbeat()
        known = [(heartbeat.at or death.time, heartbeat.rss_bytes)]
    points = _decimated([(at, count) for at, count in known if count is not None])
    limits = [each.memory_limit_bytes for each in (record, report) if each is not None]
    return DeadWorker(
        id=death.id,
        report_id=evolve(death, record=None).id if report is not None else None,
        worker=(who.worker or f"pid {who.pid or 'unknown'}")[:_NAME_CHARS],
        name=(who.name or "")[:_NAME_CHARS],
        when=death.time,
        memory=MemoryCurve(
            seconds=tuple(round(at - death.time, 2) for at, _ in points),
            rss_bytes=tuple(count for _, count in points),
            limit_bytes=next((each for each in limits if each), None),
        ),
    )


def _decimated(points: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """Return at most `MAX_POINTS` of the points: the highest of each stretch, and always the last."""
    if len(points) <= MAX_POINTS:
        return list(points)
    step = -(-len(points) // (MAX_POINTS - 1))
    stretches = (points[begin : begin + step] for begin in range(0, len(points), step))
    return [*(max(each, key=lambda point: point[1]) for each in stretches), points[-1]]


#: Seconds that the process may judge, and seconds after which it is killed: with its low priority it waits
#: for all others on a busy machine.
BUDGET_S, KILL_S = 60.0, 300.0


class JudgingError(Exception):
    """Deaths could not be judged; the message says why, for a person."""


class JudgingProcess:
    """Starts a process for each judgement."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopped = threading.Event()

    def judge(self, deaths: Sequence[bytes]) -> Judgement:
        """Return the judgement of deaths, as lines of JSON. It may take minutes, so call it in a thread.

        Raises JudgingError, OSError if the process cannot be started, and subprocess.TimeoutExpired.
        """
        if getattr(sys, "frozen", False):
            raise JudgingError("a frozen program cannot start Python")
        command = [sys.executable, "-P", "-m", __name__]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment) as process:  # noqa: S603  our own module
            self._process = process
            try:
                if self._is_stopped.is_set():
                    process.kill()
                output, complaints = process.communicate(b"\n".join(deaths), timeout=KILL_S)
            finally:
                process.kill()
                self._process = None
        if (judgement := parse_judgement(output)) is None:
            said = complaints.decode("utf-8", "replace").strip().rpartition("\n")[2][:300]
            raise JudgingError(f"the judging process ended with status {process.returncode}: {said}")
        return judgement

    def stop(self) -> None:
        """Stop the process, if there is one, and start no further one."""
        self._is_stopped.set()
        if (process := self._process) is not None:
            process.kill()


def parse_judgement(output: bytes) -> Judgement | None:
    """Return what the process wrote; None if that is incomplete."""
    try:
        plain = json.loads(output)
        judgement = from_plain(Judgement, plain, [])
        return judgement if len(judgement.cases) == len(plain["cases"]) else None
    except (KeyError, ValueError):
        return None


def main() -> None:
    """Judge the deaths on standard input. Only the judgement goes to standard output."""
    with contextlib.suppress(AttributeError, OSError):
        os.nice(10)  # below the scheduler, which may have only one processor
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # packs may print
    with answers:
        json.dump(to_plain(conclude(read_deaths(sys.stdin.buffer))), answers)


def conclude(deaths: Sequence[RecordedDeath]) -> Judgement:
    """Return the judgement of the deaths."""
    from workerdiag.api.explain import DEFAULT_RULEBOOK
    from workerdiag.incidents import is_likely, judge, title_of, watched_deaths

    victims = {each.id: each for each in map(victim_of, deaths)}
    cases = []
    for incident in judge(watched_deaths(deaths), timeout_s=BUDGET_S):
        diagnosis, top = incident.diagnosis, incident.diagnosis.top
        case = ShownCase(
            id=incident.key,
            title=title_of(diagnosis),
            cause=top.id if top is not None else None,
            family=top.family if top is not None else None,
            probability=round(top.probability, 3) if top is not None else 0.0,
            is_likely=is_likely(diagnosis),
            blame=diagnosis.blame.verdict,
            victims=tuple(victims[each.id] for each in incident.deaths),
            report=base64.b64encode(zlib.compress(diagnosis.to_html().encode())).decode(),
        )
        cases.append(case)
    book = DEFAULT_RULEBOOK.within(Deadline.after(BUDGET_S))[0]
    causes = tuple((each.id, each.family, each.blame) for each in book.causes)
    return Judgement(cases=tuple(cases), death_ids=ids_of(victims.values()), causes=causes)


if __name__ == "__main__":
    main()
