"""``workerdiag.triage()``: from parts to outcomes, to cluster runs, to deaths, and to the tables with their report.

Deaths may be counted twice if two logs of one cluster run are in different time zones: the scheduler's log and
a worker's log then report the same death hours apart, and count as two runs.
"""

from __future__ import annotations

import logging
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

from workerdiag.deadline import monotonic_s
from workerdiag.errors import TriageError, describe_error
from workerdiag.guard import guarded
from workerdiag.model.dask import Method
from workerdiag.model.diagnosis import Findings, Match
from workerdiag.model.evidence import Evidence, Gap, Inspected
from workerdiag.model.identity import host_of
from workerdiag.model.process_end import ProcessEnd
from workerdiag.model.rules import Rulebook
from workerdiag.pipeline import judge_matches
from workerdiag.triage.jobs import INSTALL, Failed, JobRunner, check_workers
from workerdiag.triage.outcome import (
    PartOutcome,
    TriageFolder,
    Versions,
    pack,
    part_key,
    rules_key,
    unpack_found,
    unpack_outcome,
    workers_of,
)
from workerdiag.triage.parts import MIB, PART_BYTES, Part, cut, find_files
from workerdiag.triage.runs import Run, find_runs, folder_pattern
from workerdiag.triage.scan import ScanSettings, compiled_rules, moved, outermost_of, scan_part
from workerdiag.triage.tables import DeathRow, InputRow, TableFormat, check_form
from workerdiag.units import parse_bytes
from workerdiag.values import define, evolve, field, frozen

if TYPE_CHECKING:
    from distributed import Client

    from workerdiag.triage.fleet.report import FleetReport


_J = TypeVar("_J")
#: A part with its key.
Job: TypeAlias = tuple[str, Part]


@frozen(kw_only=True)
class Progress:
    """The progress of a triage."""

    parts: int
    parts_done: int = 0
    #: Bytes of files whose sizes are known.
    bytes: int
    bytes_done: int = 0
    #: Reports of deaths so far; several may be of one death.
    reports: int = 0
    #: Number of parts that could not be read completely.
    failed: int
    _judge: Callable[[], TriageResult] = field(repr=False, eq=False)

    def result(self) -> TriageResult:
        """Return what is known so far, judged here and now; this may take seconds, while reading continues."""
        return self._judge()

    def with_part(self, part: Part, outcome: PartOutcome) -> Progress:
        """Return the progress after one more part."""
        return evolve(
            self,
            parts_done=self.parts_done + 1,
            bytes_done=self.bytes_done + part.expected_bytes,
            reports=self.reports + outcome.reports,
            failed=self.failed + (outcome.row.status == "failed"),
        )


@define(eq=False, kw_only=True)
class TriageWork:
    """The parts of one triage, and their outcomes so far."""

    folder: TriageFolder
    given: tuple[str | os.PathLike[str], ...]
    #: The pattern that logs of one cluster run have in common (`find_runs`).
    folders: str | None = None
    settings: ScanSettings = field(factory=ScanSettings)
    part_bytes: int = PART_BYTES
    #: Fraction of each worker's threads to use.
    share: float = 1.0
    #: Memory limit of a suspect's process.
    memory_bytes: int
    on_progress: Callable[[Progress], object] = lambda _: None
    #: Whether to write tables while it runs, and at its end.
    writes_tables: bool = False
    _book: Rulebook = field(init=False)
    #: The parts by key, in the order of their files.
    parts: dict[str, Part] = field(factory=dict, init=False)
    #: The keys of each input's parts, in the order of their bytes.
    _keys: dict[str, tuple[str, ...]] = field(factory=dict, init=False)
    _unlisted: list[InputRow] = field(factory=list, init=False)
    _outcomes: dict[str, PartOutcome] = field(init=False)
    _progress: Progress = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._book, _ = compiled_rules(self.settings)
        rules = rules_key(self._book)
        for found in find_files(self.given, self.settings.storage_options, self._book.release):
            if isinstance(found, InputRow):
                self._unlisted.append(found)
            else:
                parts = {part_key(part, rules): part for part in cut(found, self.part_bytes)}
                self.parts |= parts
                self._keys[found.url] = (*self._keys.get(found.url, ()), *parts)
        kept = ((key, self.folder.finished(key)) for key in self.parts)
        self._outcomes = {key: outcome for key, outcome in kept if outcome is not None}
        self._progress = Progress(
            parts=len(self.parts),
            bytes=sum(each.expected_bytes for each in self.parts.values()),
            failed=len(self._unlisted),
            judge=self._result,
        )
        for key, outcome in self._outcomes.items():
            self._progress = self._progress.with_part(self.parts[key], outcome)

    def jobs(self) -> list[Job]:
        """Return the parts that have no outcome yet, with their keys."""
        return [(key, part) for key, part in self.parts.items() if key not in self._outcomes]

    def read(self, client: Client) -> None:
        """Read all parts that have no outcome yet, on the workers; raises TriageError, TableError."""
        check_workers(client)
        self.on_progress(self._progress)
        runner: JobRunner[Job] = self._runner(client, itemgetter(1), _part_share)
        began_s = written_s = monotonic_s()
        spent_s = 0.0
        for job, packed in runner.run(scan_part, self.jobs(), self.settings):
            self.take(job, packed)
            now_s = monotonic_s()
            # tables are written twice a minute, but for no more than a tenth of the time
            is_due = now_s - written_s > 30 and spent_s <= 0.1 * (now_s - began_s)
            if self.writes_tables and is_due:
                self.judge()
                written_s = monotonic_s()
                spent_s += written_s - now_s

    def judge(self, client: Client | None = None) -> TriageResult:
        """Judge all runs by what is known so far, on a cluster or here, and write the tables if that is wanted."""
        result = self._result(client)
        if self.writes_tables:
            self.folder.write_tables(result.deaths, result.inputs)
        return result

    def _result(self, client: Client | None = None) -> TriageResult:
        """Return the sorted rows of both tables, with a note for each run that could not be judged."""
        runs = find_runs(self._outcomes.values(), self.folders)
        deaths: list[DeathRow] = []
        notes: list[str] = []
        for run, rows in self._judged_there(client, runs) if client is not None else self._judged_here(runs):
            if isinstance(rows, Failed):
                notes.append(f"the run of {run.urls[0]} could not be judged: {rows.reason}")
            else:
                deaths += rows
        run_of = {url: run.id for run in runs for url in run.urls}
        if self.folders and run_of and not any(map(folder_pattern(self.folders).match, run_of)):
            notes.append(f"no input matches {self.folders}: each is judged as a separate cluster run")
        if dropped := [each for each in self._outcomes.values() if each.dropped_ends]:
            count, urls = sum(each.dropped_ends for each in dropped), sorted({each.row.url for each in dropped})
            where = f"{urls[0]} and {len(urls) - 1} others" if urls[1:] else urls[0]
            more = f"{count:,} more reports in {where} are left out"
            notes.append(f"there are at least as many deaths as listed: {more}")
        inputs = (evolve(each.row, run=run_of.get(each.row.url)) for each in self._outcomes.values())
        return TriageResult(
            deaths=tuple(sorted(deaths, key=lambda row: row.order)),
            inputs=tuple(sorted((*inputs, *self._unlisted), key=lambda row: row.order)),
            output=self.folder.path if self.writes_tables else None,
            notes=tuple(sorted(notes)),
            book=self._book,
        )

    def _judged_here(self, runs: Iterable[Run]) -> Iterator[tuple[Run, list[DeathRow] | Failed]]:
        for run in runs:
            with guarded("judging a cluster run") as judging:
                rows = judge_run(self._marks_of(run), self.settings)
            yield run, rows if judging.problem is None else Failed(describe_error(judging.problem))

    def _judged_there(self, client: Client, runs: Iterable[Run]) -> Iterator[tuple[Run, list[DeathRow] | Failed]]:
        runner: JobRunner[Run] = self._runner(client, self._marks_of, self._run_share)
        is_read = {key: each.row.status in ("done", "failed") for key, each in self._outcomes.items()}
        wanted = (run for run in runs if any(map(is_read.__getitem__, self._read_keys(run))))
        return runner.run(judge_run, wanted, self.settings)

    def _runner(
        self, client: Client, given: Callable[[_J], object], batch_share: Callable[[_J], float]
    ) -> JobRunner[_J]:
        return JobRunner(client, given, batch_share, share=self.share, memory_bytes=self.memory_bytes)

    def _marks_of(self, run: Run) -> tuple[Run, list[bytes]]:
        """Return the run with the packed outcomes of its parts, in the order of their bytes."""
        return run, [self.folder.kept(key) or b"" for key in self._read_keys(run)]

    def _run_share(self, run: Run) -> float:
        """Return the fraction of a batch, of 256 KiB of marks, that judging a run takes."""
        return sum(map(self.folder.kept_bytes, self._read_keys(run))) / (MIB // 4)

    def _read_keys(self, run: Run) -> list[str]:
        return [key for url in run.urls for key in self._keys[url] if key in self._outcomes]

    def take(self, job: Job, packed: bytes | Failed) -> None:
        """Save the outcome of a part; raises TriageError if the worker has a different release of the knowledge."""
        key, part = job
        if isinstance(packed, Failed):
            row = part.row(status="failed", reason=packed.reason, knowledge=self._book.release)
            packed = pack(PartOutcome(row=row))
        outcome = unpack_outcome(packed)
        if outcome.row.knowledge != self._book.release:
            releases = f"{outcome.row.knowledge} there, {self._book.release} here"
            raise TriageError(f"the workers have a different release of the knowledge: {releases}", INSTALL)
        self.folder.keep(key, packed)
        self._outcomes[key] = outcome
        self._progress = self._progress.with_part(part, outcome)
        self.on_progress(self._progress)


def _part_share(job: Job) -> float:
    """Return the fraction of a batch, of 8 MiB of text, that reading a part takes: one or two seconds.

    A part of unknown size takes a whole batch. Packed logs grow about tenfold.
    """
    part = job[1]
    if part.end_byte is None and part.file.size_bytes is None:
        return 1.0
    return (10 if part.file.is_packed else 1) * part.expected_bytes / (8 * MIB)


def judge_run(work: tuple[Run, Sequence[bytes]], settings: ScanSettings) -> list[DeathRow]:
    """Return the deaths of one run, given with its packed parts, each judged by the evidence of all logs."""
    run, packed = work
    book, matcher = compiled_rules(settings)
    #: The first and last matches of each kind, and all near ends, by input.
    found: dict[str, tuple[list[Match], list[Match]]] = {}
    evidence: list[Evidence] = []
    lines: dict[str, int] = {}
    versions: dict[str, Versions] = {}
    #: Which container reports a worker.
    places: dict[str, str] = {}
    for each_part in packed:
        outcome = unpack_outcome(each_part)
        row = outcome.row
        above = lines.get(row.url, 0)
        outermost, near_ends, pieces = unpack_found(each_part, row.url)
        earlier, near = found.get(row.url, ([], []))
        outer = outermost_of([*earlier, *(moved(each, above) for each in outermost)])
        found[row.url] = outer, [*near, *(moved(each, above) for each in near_ends)]
        evidence += pieces
        places |= dict.fromkeys(workers_of(pieces), row.url)
        lines[row.url] = above + outcome.newlines
        versions[row.url] = versions.get(row.url, Versions()).or_else(outcome.index.versions)
        if row.status == "failed":
            why, remedy = row.reason, "read it again"
            evidence.append(Gap(source=row.url, place="log", reason="unreachable", detail=why, remedy=remedy))
        elif row.status == "done":
            evidence.append(Inspected(place="log"))
    ordered = (sorted((*outer, *near), key=lambda each: each.offset or 0) for outer, near in found.values())
    matches = list(chain.from_iterable(ordered))
    offsets = {(each.origin, each.line): each.offset or 0 for each in reversed(matches)}
    common = Versions.common(versions.values())
    rows = (
        _death_row(end, findings, run, offsets, places, book.release)
        for end, findings in judge_matches(matches, evidence, book, matcher)
    )
    known = ((row, versions.get(row.url, common).or_else(common)) for row in rows)
    return [evolve(row, distributed_version=its.distributed, python_version=its.python) for row, its in known]


def _death_row(
    end: ProcessEnd,
    findings: Findings,
    run: Run,
    offsets: Mapping[tuple[str, int], int],
    places: Mapping[str, str],
    knowledge: str,
) -> DeathRow:
    (death,), cause = findings.deaths, findings.top
    marks = (mark for mark in end.marks if (mark.origin, mark.line) in offsets)
    first = min(marks, key=lambda mark: (mark.origin, mark.line), default=None)
    return DeathRow(
        case=findings.fingerprint,
        cause=cause.id if cause else None,
        family=cause.family if cause else None,
        probability=cause.probability if cause else 0.0,
        outcome=findings.outcome,
        blame=findings.blame.verdict,
        stop_requested=death.stop_requested,
        host=death.identity.host or host_of(death.identity.worker) or host_of(death.identity.nanny),
        worker=death.identity.worker,
        nanny=death.identity.nanny,
        name=death.identity.name,
        pid=death.identity.pid,
        died_at=None if death.when is None else round(death.when, 6),
        exit_code=death.status,
        signal=death.signal,
        scheduler=run.schedulers[0] if run.schedulers else None,
        run=run.id,
        url=first.origin if first else places.get(death.identity.worker or "", run.urls[0]),
        offset=offsets[first.origin, first.line] if first else 0,
        rss_bytes=death.rss_bytes,
        limit_bytes=death.limit_bytes,
        evidence=cause.evidence[0].text[:300] if cause and cause.evidence else "",
        knowledge=knowledge,
    )


@frozen(kw_only=True)
class TriageResult:
    """The result of a triage; ``str(result)`` is the summary."""

    deaths: tuple[DeathRow, ...]
    inputs: tuple[InputRow, ...]
    #: The folder of the tables, if one was given.
    output: Path | None = None
    #: Sentences about runs that could not be judged, and deaths that are left out.
    notes: tuple[str, ...] = ()

    _book: Rulebook = field(repr=False, eq=False)

    @property
    def summary(self) -> FleetReport:
        """What `workerdiag.fleet` reports of both tables."""
        from workerdiag.triage.fleet.fleet import report_triage

        return report_triage(self.output or Path("triage"), self.deaths, self.inputs, self._book)

    def __str__(self) -> str:
        return str(self.summary)


def triage(  # noqa: PLR0913  all but one have defaults
    urls: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    client: Client | None = None,
    *,
    output: str | os.PathLike[str] | None = None,
    form: TableFormat = "parquet",
    runs: str | None = None,
    rulebook: Rulebook | None = None,
    share: float = 0.5,
    part_bytes: int = PART_BYTES,
    suspect_memory: str = "2 GiB",
    storage_options: Mapping[str, object] | None = None,
    on_progress: Callable[[Progress], object] | None = None,
) -> TriageResult:
    """Find all deaths of workers in many logs, on the workers of a Dask cluster.

    A part that cannot be read becomes a row of the inputs and affects nothing else. With *output* the work
    can be killed at any time. The same call resumes it, and reads again only what failed or has changed.

    Args:
        urls: Paths, folders with all below them, patterns, and URLs that fsspec opens on the workers.
        client: A client of the cluster that does the work; its workers need workerdiag. None starts a
            temporary cluster on this machine.
        output: A folder for the tables ``deaths`` and ``inputs``, which are updated while the work runs.
        form: The format of the tables: ``parquet`` (needs pyarrow), ``csv`` or ``jsonl``.
        runs: The beginning of URLs with ``*`` for a name, e.g. ``s3://logs/*/``. Logs for which ``*`` matches
            the same text belong to one cluster run. None groups logs that name one scheduler at overlapping
            times.
        rulebook: The rules to use. None uses the shipped knowledge and installed packs.
        share: The fraction of each worker's threads, from 0 to 1, that triage may use; at least one thread.
        part_bytes: Bytes of a file that one task reads.
        suspect_memory: The memory limit of the process in which a part is read again after its worker died. A
            search takes 200 MiB, a file that unpacks badly some more.
        storage_options: Options for fsspec.
        on_progress: Called with a `Progress` after each part; its `result()` returns what is known by then.

    Returns:
        The rows of both tables, sorted, with their summary.

    Raises:
        TriageError: The client is closed, there are no workers, or their workerdiag differs.
        TableError: The tables cannot be written.
        TypeError: The client is asynchronous, or *urls* are not paths.
        ValueError: An argument has an invalid value.
    """
    memory_bytes = parse_bytes(suspect_memory)
    if not 0 < share <= 1 or part_bytes < 1 or memory_bytes is None:
        raise ValueError(
            "share is above 0 and at most 1, part_bytes at least 1, suspect_memory a size like '2 GiB'"
        )
    if getattr(client, "asynchronous", False):
        raise TypeError("triage needs a client that is not asynchronous: run it in a thread with a separate client")
    if getattr(client, "status", "") == "closed":
        raise TriageError("the client is closed", "give an open one, or none for a cluster on this machine")
    if output is not None:
        check_form(form)
    if not isinstance(urls, str | os.PathLike | Iterable):
        raise TypeError(f"urls must be paths, folders, patterns or URLs of logs, got {type(urls).__name__}")
    given = [urls] if isinstance(urls, str | os.PathLike) else list(urls)
    if not given:
        raise ValueError("there is nothing to read: give paths, folders, patterns or URLs of logs")
    with ExitStack() as stack:
        kept = output or stack.enter_context(tempfile.TemporaryDirectory(prefix="workerdiag-triage-"))
        work = TriageWork(
            folder=TriageFolder(Path(kept), form),
            given=tuple(given),
            folders=runs,
            settings=ScanSettings(rulebook=rulebook, storage_options=dict(storage_options or {})),
            part_bytes=part_bytes,
            share=share if client is not None else 1.0,
            memory_bytes=memory_bytes,
            on_progress=on_progress or (lambda _: None),
            writes_tables=output is not None,
        )
        if work.jobs():
            client = client or stack.enter_context(_local_client())
            work.read(client)
        result = work.judge(client)
        work.folder.forget_others(work.parts.keys())
        return result


@contextmanager
def _local_client() -> Iterator[Client]:
    """Yield a client of a cluster on this machine, with a process for each core."""
    import distributed

    start, connect = cast("Method", distributed.LocalCluster), cast("Method", distributed.Client)
    try:
        # hide what its workers log when they end; triage reports why they die
        with _interrupts_ignored():
            cluster = start(threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=logging.CRITICAL)
    except RuntimeError as problem:
        remedy = 'call it below `if __name__ == "__main__":`, or give a client'
        raise TriageError(f"no cluster could be started on this machine: {problem}", remedy) from problem
    with cluster, connect(cluster, set_as_default=False) as client:
        yield client


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Make processes that start meanwhile ignore Ctrl-C: this process handles it for all."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler or signal.SIG_DFL)
