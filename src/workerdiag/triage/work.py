"""
One triage: parts to outcomes, outcomes to runs, runs to deaths.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import evolve, field, frozen

from workerdiag.deadline import NO_DEADLINE, monotonic_s
from workerdiag.errors import TriageError, describe_error
from workerdiag.matching.scan.matcher import Matcher
from workerdiag.model.rules import Rulebook
from workerdiag.triage.engine import INSTALL, Done, Engine, Lost, check_workers
from workerdiag.triage.folder import TriageFolder, part_key, rules_key
from workerdiag.triage.judge import PartMarks, judge_run
from workerdiag.triage.outcome import PartOutcome, pack_outcome, unpack_matches, unpack_outcome
from workerdiag.triage.parts import PART_BYTES, Part, Unlisted, cut, find_files
from workerdiag.triage.rows import DeathRow, InputRow
from workerdiag.triage.runs import Run, find_runs
from workerdiag.triage.scan import ScanSettings, scan_part

if TYPE_CHECKING:
    from distributed import Client

#: While it runs, tables are written so often, in seconds, and take at most this share of the time.
_TABLES_S = 30.0
_TABLES_SHARE = 0.1

#: A part with its key.
Job: TypeAlias = tuple[str, Part]


@frozen(kw_only=True)
class Progress:
    """
    How far a triage is.
    """

    parts: int
    parts_done: int
    #: Bytes of files, as far as their sizes are known.
    bytes: int
    bytes_done: int
    #: Reports of deaths so far; several may be of one death.
    reports: int
    #: Parts that could not be read, or not wholly.
    failed: int


@frozen(kw_only=True)
class TriagePlan:
    """
    What is wanted of a triage.
    """

    given: tuple[str | os.PathLike[str], ...]
    #: What logs of one cluster run have in common (`find_runs`).
    folders: str | None = None
    #: None: the shipped knowledge and installed packs.
    rulebook: Rulebook | None = None
    part_bytes: int = PART_BYTES
    #: Of each worker's threads.
    share: float = 1.0
    #: What the process of a suspect may have.
    memory_bytes: int
    storage_options: Mapping[str, Any] = field(factory=dict, repr=False)
    on_progress: Callable[[Progress], object] = lambda _: None
    #: Whether tables are written while it runs, and at its end.
    writes_tables: bool = False


class TriageWork:
    """
    The parts of one triage, and what is known of them.
    """

    def __init__(self, plan: TriagePlan, folder: TriageFolder) -> None:
        self._plan = plan
        self._folder = folder
        self.settings = ScanSettings(rulebook=plan.rulebook, storage_options=plan.storage_options)
        self._book, self._matcher = _rules(plan.rulebook)
        #: By their keys, in the order of their files.
        self._parts: dict[str, Part] = {}
        self._unlisted: list[InputRow] = []
        rules = rules_key(self._book)
        for found in find_files(plan.given, plan.storage_options):
            if isinstance(found, Unlisted):
                self._unlisted.append(found.row(self._book.release))
            else:
                self._parts.update((part_key(part, rules), part) for part in cut(found, plan.part_bytes))
        kept = ((key, folder.finished(key)) for key in self._parts)
        self._outcomes = {key: outcome for key, outcome in kept if outcome is not None}

    def jobs(self) -> list[Job]:
        """
        The parts that have no outcome yet, with their keys.
        """
        return [(key, part) for key, part in self._parts.items() if key not in self._outcomes]

    def read(self, client: Client) -> None:
        """
        Read all parts that have no outcome yet, on the workers.

        Raises:
            TriageError: There are no workers, or they cannot do it.
            TableError: The folder cannot be written to.
        """
        check_workers(client)
        self._tell_progress()
        engine: Engine[Job] = Engine(client, share=self._plan.share, memory_bytes=self._plan.memory_bytes)
        began_s = written_s = monotonic_s()
        spent_s = 0.0
        for ended in engine.run(_scan_job, self.jobs(), self.settings):
            self.take(ended)
            now_s = monotonic_s()
            if now_s - written_s > _TABLES_S and spent_s <= _TABLES_SHARE * (now_s - began_s):
                self.judge()
                written_s = monotonic_s()
                spent_s += written_s - now_s

    def judge(self) -> tuple[tuple[DeathRow, ...], tuple[InputRow, ...], tuple[str, ...]]:
        """
        Judge all runs by what is known so far, and write the tables, if they are wanted.

        Returns:
            The rows of both tables, sorted, and a note for each run that could not be judged.

        Raises:
            TableError: They cannot be written.
        """
        runs = find_runs(self._outcomes.values(), self._plan.folders)
        deaths: list[DeathRow] = []
        notes: list[str] = []
        for run in runs:
            try:
                deaths += judge_run(run, self._marks_of(run), self._book, self._matcher)
            except Exception as problem:  # noqa: BLE001  no run costs the others
                notes.append(f"the run of {run.urls[0]} could not be judged: {describe_error(problem)}")
        run_of = {url: run.id for run in runs for url in run.urls}
        rows = (evolve(each.row, run=run_of.get(each.row.url)) for each in self._outcomes.values())
        inputs = tuple(sorted((*rows, *self._unlisted), key=lambda row: row.order))
        deaths.sort(key=lambda row: row.order)
        if self._plan.writes_tables:
            self._folder.write_tables(deaths, inputs)
        return tuple(deaths), inputs, tuple(notes)

    def forget_others(self) -> None:
        """
        Remove what is kept of other parts than these.
        """
        self._folder.forget_others(self._parts.keys())

    def _marks_of(self, run: Run) -> Iterable[PartMarks]:
        urls = set(run.urls)
        for key, part in self._parts.items():  # in the order of their bytes, whichever was read first
            outcome = self._outcomes.get(key)
            if outcome is not None and part.file.url in urls:
                packed = self._folder.kept(key) or b""
                yield PartMarks(outcome, unpack_matches(packed, outcome.row.url))

    def take(self, ended: Done[Job] | Lost[Job]) -> None:
        """
        Keep what became of a part.

        Raises:
            TriageError: The worker has another release of the knowledge.
            TableError: The folder cannot be written to.
        """
        key, part = ended.job
        if isinstance(ended, Lost):
            row = part.row(status="failed", reason=ended.reason, knowledge=self._book.release)
            packed = pack_outcome(PartOutcome(row=row))
        else:
            packed = ended.result
        outcome = unpack_outcome(packed)
        if outcome.row.knowledge != self._book.release:
            releases = f"{outcome.row.knowledge} there, {self._book.release} here"
            raise TriageError(f"the workers have another release of the knowledge: {releases}", INSTALL)
        self._folder.keep(key, packed)
        self._outcomes[key] = outcome
        self._tell_progress()

    def _tell_progress(self) -> None:
        done = self._outcomes
        self._plan.on_progress(
            Progress(
                parts=len(self._parts),
                parts_done=len(done),
                bytes=sum(each.expected_bytes for each in self._parts.values()),
                bytes_done=sum(self._parts[key].expected_bytes for key in done),
                reports=sum(each.reports for each in done.values()),
                failed=len(self._unlisted) + sum(each.row.status == "failed" for each in done.values()),
            )
        )


def _scan_job(job: Job, settings: ScanSettings) -> bytes:
    return scan_part(job[1], settings)


def _rules(rulebook: Rulebook | None) -> tuple[Rulebook, Matcher]:
    if rulebook is not None:
        return rulebook, Matcher(rulebook)
    from workerdiag.api.default_rulebook import DEFAULT_RULEBOOK

    return DEFAULT_RULEBOOK.within(NO_DEADLINE)
