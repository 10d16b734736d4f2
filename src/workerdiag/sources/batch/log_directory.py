"""
What batch jobs wrote: often the only place with the words of slurmstepd, and of a worker that never came.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

from workerdiag.deadline import MORE_TIME, Deadline
from workerdiag.model.evidence import Evidence, Gap, Inspected, LogChunk
from workerdiag.model.identity import Identity
from workerdiag.model.scene import Scene, Terms
from workerdiag.sources.batch.job_logs import match_jobs_by_output, output_directories, output_files
from workerdiag.sources.batch.jobs import BatchJob, BatchJobs, BatchSystem, find_jobs
from workerdiag.sources.batch.systems import SYSTEMS

#: Of all files together, and of one, so much is read: its end.
_MAX_BYTES = 4 * 2**20
_MAX_FILE_BYTES = 512 * 1024
#: Without the start of the victim's life in it, so much of an end is of interest.
_WITHOUT_START_BYTES = 64 * 1024
#: So many jobs without a known victim are looked at: those that never came, or that ended.
_MAX_OTHERS = 4
#: Finding out whose output it is may take this share.
_FILES_SHARE = 0.45


class LogDirectorySource:
    """
    The output of the jobs that the dead ran in, from the start of their lives on.

    Args:
        jobs: Whom to look for.
        system: The batch system, which says how its numbers look.
        scene: Where to look.
    """

    name = "log directory"
    terms = Terms(
        permission="reading the files that the jobs' output goes to", cost="at most 4 MiB read from disk"
    )

    def __init__(self, jobs: BatchJobs, system: BatchSystem, scene: Scene) -> None:
        self._jobs = jobs
        self._system = system
        self._scene = scene

    @classmethod
    def of(cls, scene: Scene) -> Self | None:
        """
        A source for the batch jobs of *scene*; None if there are none.
        """
        for system in SYSTEMS:
            if (jobs := find_jobs(scene, system)) is not None:
                return cls(jobs, system, scene)
        return None

    def collect(self, *, budget_s: float) -> Iterator[Evidence]:
        """
        The output of the dead's jobs, then of those that have no worker, within *budget_s* seconds.
        """
        deadline = Deadline.of_budget(budget_s)
        jobs = match_jobs_by_output(self._jobs, self._scene, self._system, deadline.share(_FILES_SHARE))
        dead = [job for job in jobs if job.victims]
        others = [job for job in jobs if not job.victims and not job.has_live_processes][:_MAX_OTHERS]
        left = _MAX_BYTES
        for job in dead or others:
            if deadline.is_over or left <= 0:
                yield Gap(
                    source=self.name,
                    reason="timed-out",
                    detail=f"the output of job {job.id} was not read",
                    remedy=MORE_TIME,
                )
                return
            found, gaps = self._files(job)
            yield from gaps
            for path in found:
                for chunk in self._read(path, job, min(left, _MAX_FILE_BYTES)):
                    left -= len(chunk.data) if isinstance(chunk, LogChunk) else 0
                    yield chunk

    def _files(self, job: BatchJob) -> tuple[list[Path], list[Gap]]:
        found: list[Path] = []
        searched = output_directories(self._scene)
        for directory in searched:
            try:
                found += output_files(directory, job.id)
            except OSError as problem:
                return [], [self._unreadable(directory, problem)]
        if found:
            return found, []
        where = ", ".join(map(str, searched)) or "any directory known here"
        gap = Gap(
            source=self.name,
            reason="never-recorded",
            detail=f"no output of job {job.id} in {where}",
            remedy=f"{self._system.clusters[0]}(..., log_directory='logs')   # on a shared file system",
        )
        return [], [gap]

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
            return  # that of another job with the same name
        data = _since_worker_start(data, workers)
        hosts = {each.identity.host for each in job.victims}
        identity = Identity(container=job.id, host=hosts.pop() if len(hosts) == 1 else None)
        if data:
            yield LogChunk(origin=str(path), data=data, identity=identity)
        yield Inspected(identity=identity)

    def _unreadable(self, path: Path, problem: OSError) -> Gap:
        denied = isinstance(problem, PermissionError)
        return Gap(
            source=self.name,
            reason="forbidden" if denied else "unreachable",
            detail=f"{path}: {problem.strerror or type(problem).__name__}",
            remedy=f"ls -l {shlex.quote(str(path))}   # where the jobs ran, if it is not shared",
        )


def _since_worker_start(data: bytes, workers: Sequence[str]) -> bytes:
    """
    From the first of *workers* coming to life on; if none does, the end alone.

    What earlier processes of the same job died of is another story.
    """
    starts = [
        found.start()
        for worker in workers
        if (found := re.search(rb"Start worker at: +" + re.escape(worker.encode()) + rb"\s", data))
    ]
    at = min(starts, default=max(0, len(data) - _WITHOUT_START_BYTES))
    return data[data.rfind(b"\n", 0, at) + 1 :]
