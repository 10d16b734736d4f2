"""Several processes that fuzz at once, each on its own seeds."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.connection import Connection, wait
from typing import Any

from attrs import define, evolve

from fuzz.running import Tally, Task, current_path, keep, tallies

_SPAWN = multiprocessing.get_context("spawn")
#: Between the seeds of two processes, so that no two try the same.
_APART = 1_000_000
#: As Dask starts its workers (``distributed.nanny.pre-spawn-environ``). Without it glibc keeps ever larger
#: freed blocks among small ones that live: after 3,200 inputs a process had 245 MB, of which 122 were free.
_ENVIRONMENT = {"MALLOC_TRIM_THRESHOLD_": "65536"}


def fuzzed(task: Task, jobs: int) -> Tally:
    """What so many processes found; one that dies of an input is started again behind it."""
    os.environ |= _ENVIRONMENT  # glibc reads it where a process starts
    share = -(-task.inputs // jobs)
    return _told([_started(evolve(task, seed=task.seed + _APART * each, inputs=share)) for each in range(jobs)])


@define(eq=False)
class _Job:
    """A process, and what it has told so far."""

    task: Task
    process: Any
    told: Connection
    count: int = 0


def _started(task: Task) -> _Job:
    told, tell = _SPAWN.Pipe(duplex=False)
    process = _SPAWN.Process(target=_run, args=(task, tell))
    process.start()
    tell.close()
    return _Job(task, process, told)


def _run(task: Task, tell: Connection) -> None:
    for tally in tallies(task):
        tell.send(tally)
    tell.send(None)


def _told(jobs: list[_Job]) -> Tally:
    total = Tally()
    try:
        _count(jobs, total)
    except KeyboardInterrupt:
        print("interrupted: only what was counted until now", flush=True)
        for job in jobs:
            job.process.terminate()
    return total


def _count(jobs: list[_Job], total: Tally) -> None:
    while jobs:
        for ready in wait([job.told for job in jobs]):
            job = next(each for each in jobs if each.told is ready)
            try:
                tally = job.told.recv()
            except EOFError:
                jobs.append(_started(_after_death(job, total)))
                tally = None
            if tally is None:
                job.process.join()
                jobs.remove(job)
            else:
                total.add(tally)
                job.count += tally.tried.total()


def _after_death(job: _Job, total: Tally) -> Task:
    """Keep the input of which a process died, and say what is left to try."""
    job.process.join()
    tried = current_path(job.task.folder, job.task.seed)
    if not tried.is_file():
        raise RuntimeError(f"a process died before it tried anything: exit code {job.process.exitcode}")
    kind, _, data = tried.read_bytes().partition(b"\n")
    total.failed[kind.decode(), "died"] += 1
    path = keep(job.task.folder, kind.decode(), "died", data)
    print(f"{kind.decode()}: died: exit code {job.process.exitcode}: {path}", flush=True)
    return evolve(job.task, seed=job.task.seed + _APART // 10, inputs=job.task.inputs - job.count)
