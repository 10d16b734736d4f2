"""Reads the output files of batch jobs, often the only source for slurmstepd and for workers that never joined.

dask-jobqueue (0.9.0) names the files ``<job name>-%J.err`` (Slurm), ``<worker>-%J.err`` (LSF),
``worker-<id>.err`` (HTCondor) in its ``log_directory``, and leaves the name to the system
elsewhere: ``<job name>.o<number>``, ``<number>.<server>.OU``, ``slurm-<number>.out``,
``OAR.<job name>.<number>.stderr``. Each name contains the job number.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self

from attrs import evolve

from workerdiag.deadline import MORE_TIME, Deadline
from workerdiag.model.evidence import Evidence, Gap, Inspected, LogChunk
from workerdiag.model.identity import Identity
from workerdiag.model.scene import Scene, Terms, Victim
from workerdiag.model.vocabulary import GapReason
from workerdiag.sources.batch.jobs import SYSTEMS, BatchJob, BatchJobs, BatchSystem, find_jobs
from workerdiag.sources.internals import created_jobs, job_options

#: Variables with the directory a job was submitted from, where output goes by default.
_SUBMITTED_FROM = ("SLURM_SUBMIT_DIR", "PBS_O_WORKDIR", "LS_SUBCWD", "SGE_O_WORKDIR", "OAR_WORKDIR")
#: A worker logs its address at its start, which a restart by the nanny repeats.
_HEAD_BYTES = 64 * 1024
_TAIL_BYTES = 256 * 1024
_NUMBERED = re.compile(
    r"(?:^|[-_.])(?P<before>\d+(?:\.\d+)?)\.(?:out|err|log|stdout|stderr)$"
    r"|\.[oe](?P<after>\d+)(?:[.-]\d+)?$"
    r"|^(?P<first>\d+)(?:\[\d*\])?(?:\.[\w-]+)*\.(?:OU|ER)$"
)
_STDOUT = re.compile(r"\.(?:out|OU|stdout)$|\.o\d+")
#: At most this many bytes are read from the end of one file.
_MAX_FILE_BYTES = 512 * 1024


def output_directories(scene: Scene) -> list[Path]:
    """Return the configured output directories of the cluster's jobs, or else those they were submitted from."""
    of_jobs = (getattr(each, "log_directory", None) for each in created_jobs(scene.cluster))
    configured = dict.fromkeys((job_options(scene.cluster).get("log_directory"), *of_jobs))
    if given := [each for each in configured if isinstance(each, str)]:
        return [Path(each).expanduser() for each in given]
    submitted = (place.environment.get(name) for place in scene.nearest() for name in _SUBMITTED_FROM)
    usual = dict.fromkeys(each for each in submitted if each)
    if not usual and scene.cluster_is("JobQueueCluster", "dask_jobqueue"):
        usual = {str(Path.cwd()): None}
    return [Path(each) for each in usual]


def output_files(directory: Path, number: str) -> list[Path]:
    """Return the output files of one job in *directory*, stderr first; raises OSError if it cannot be read."""
    wanted, files = number.partition(".")[0], _job_output_files(directory)
    own = (each for each in files if _job_number_in(each.name).partition(".")[0] == wanted)
    return sorted(own, key=lambda path: (_STDOUT.search(path.name) is not None, path.name))


def _job_number_in(name: str) -> str:
    found = _NUMBERED.search(name)
    return next((each for each in found.groups() if each), "") if found else ""


def _job_output_files(directory: Path) -> Iterator[Path]:
    with os.scandir(directory) as entries:
        for count, entry in enumerate(entries):
            if count >= 20_000:
                return
            if _job_number_in(entry.name) and entry.is_file():
                yield Path(entry.path)


def match_jobs_by_output(
    jobs: BatchJobs, scene: Scene, system: BatchSystem, deadline: Deadline
) -> tuple[BatchJob, ...]:
    """Return the known jobs, and those whose output contains the address of a victim without a job.

    Only this finds a job that the cluster object has dropped.
    """

    def address_of(victim: Victim) -> re.Pattern[bytes]:  # not as a part of a longer one
        return re.compile(re.escape(str(victim.identity.worker).encode()) + rb"(?!\d)")

    known = {job.id: job for job in jobs.known}
    left = [victim for victim in jobs.unmatched if victim.identity.worker]
    for path in _recent_output(output_directories(scene), scene) if left else ():
        if deadline.is_over or not left:
            break
        content = _head_and_tail(path)
        here = [victim for victim in left if address_of(victim).search(content)]
        number = _known_job_number(_job_number_in(path.name), known, system) if here else None
        if number is not None:
            job = known.get(number, BatchJob(id=number))
            known[number] = evolve(job, victims=(*job.victims, *here), has_live_processes=False)
            left = [victim for victim in left if victim not in here]
    return tuple(sorted(known.values(), key=lambda job: not job.victims))


def _recent_output(places: Iterable[Path], scene: Scene) -> list[Path]:
    dated = []
    for directory in places:
        try:
            dated += [(path.stat().st_mtime, path) for path in _job_output_files(directory)]
        except OSError:  # the log directory's own source has the gap
            continue
    recent = [each for each in dated if scene.since is None or each[0] >= scene.since - 86400]
    return [path for _, path in sorted(recent, reverse=True)[:60]]


def _known_job_number(number: str, known: Iterable[str], system: BatchSystem) -> str | None:
    """Return the known form of the number, which may include its server's name, or else a valid number."""
    bare = number.partition(".")[0]
    same = next((each for each in known if each.partition(".")[0] == bare), None)
    return same or system.valid_job_number(number) or system.valid_job_number(bare)


def _head_and_tail(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
            file.seek(max(len(head), file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return head + b"\n" + file.read(_TAIL_BYTES)
    except OSError:
        return b""


class LogDirectorySource:
    """Reads the output of the victims' jobs, from each victim's start."""

    name = "log directory"
    terms = Terms(permission="reading the files that the jobs' output goes to", cost="at most 4 MiB read from disk")

    def __init__(self, jobs: BatchJobs, system: BatchSystem, scene: Scene) -> None:
        self._jobs = jobs
        self._system = system
        self._scene = scene

    @classmethod
    def of(cls, scene: Scene) -> Self | None:
        """Return a source for the batch jobs of *scene*, or None if there are none."""
        for system in SYSTEMS:
            if (jobs := find_jobs(scene, system)) is not None:
                return cls(jobs, system, scene)
        return None

    def collect(self, *, budget_s: float) -> Iterator[Evidence]:
        """Yield the output of the victims' jobs, then of jobs without a worker, within *budget_s* seconds."""
        deadline = Deadline.of_budget(budget_s)
        jobs = match_jobs_by_output(self._jobs, self._scene, self._system, deadline.share(0.45))
        dead = [job for job in jobs if job.victims]
        others = [job for job in jobs if not job.victims and not job.has_live_processes][:4]
        left = 4 * 2**20  # bytes, of all files
        for job in dead or others:
            if deadline.is_over or left <= 0:
                yield self._gap("timed-out", f"the output of job {job.id} was not read", MORE_TIME)
                return
            found = self._files(job)
            if isinstance(found, Gap):
                yield found
                continue
            for path in found:
                for chunk in self._read(path, job, min(left, _MAX_FILE_BYTES)):
                    left -= len(chunk.data) if isinstance(chunk, LogChunk) else 0
                    yield chunk

    def _files(self, job: BatchJob) -> list[Path] | Gap:
        found: list[Path] = []
        searched = output_directories(self._scene)
        for directory in searched:
            try:
                found += output_files(directory, job.id)
            except OSError as problem:
                return self._unreadable(directory, problem)
        if found:
            return found
        where = ", ".join(map(str, searched)) or "any directory known here"
        remedy = f"{self._system.clusters[0]}(..., log_directory='logs')   # on a shared file system"
        return self._gap("never-recorded", f"no output of job {job.id} in {where}", remedy)

    def _read(self, path: Path, job: BatchJob, most: int) -> Iterator[Evidence]:
        try:
            with path.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - most))
                data = file.read(most)
        except OSError as problem:
            yield self._unreadable(path, problem)
            return
        workers = [str(each.identity.worker) for each in job.victims if each.identity.worker]
        if not job.is_certain and not any(worker.encode() in data for worker in workers):
            return  # the output of another job with the same name
        data = _since_worker_start(data, workers)
        hosts = {each.identity.host for each in job.victims}
        identity = Identity(container=job.id, host=hosts.pop() if len(hosts) == 1 else None)
        if data:
            yield LogChunk(origin=str(path), data=data, identity=identity)
        yield Inspected(identity=identity)

    def _unreadable(self, path: Path, problem: OSError) -> Gap:
        reason: GapReason = "forbidden" if isinstance(problem, PermissionError) else "unreachable"
        remedy = f"ls -l {shlex.quote(str(path))}   # where the jobs ran, if it is not shared"
        return self._gap(reason, f"{path}: {problem.strerror or type(problem).__name__}", remedy)

    def _gap(self, reason: GapReason, detail: str, remedy: str) -> Gap:
        return Gap(source=self.name, reason=reason, detail=detail, remedy=remedy)


def _since_worker_start(data: bytes, workers: Sequence[str]) -> bytes:
    starts = [
        found.start()
        for worker in workers
        if (found := re.search(rb"Start worker at: +" + re.escape(worker.encode()) + rb"\s", data))
    ]
    at = min(starts, default=max(0, len(data) - 64 * 1024))
    return data[data.rfind(b"\n", 0, at) + 1 :]
