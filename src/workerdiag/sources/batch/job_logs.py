"""
The files that the output of batch jobs goes to, and whose jobs they are by what stands in them.

dask-jobqueue (0.9.0) names them ``<job name>-%J.err`` (Slurm), ``<worker>-%J.err`` (LSF),
``worker-<id>.err`` (HTCondor) in its ``log_directory``, and leaves the name to the system
elsewhere: ``<job name>.o<number>``, ``<number>.<server>.OU``, ``slurm-<number>.out``,
``OAR.<job name>.<number>.stderr``. All of them hold the number of the job.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from attrs import evolve

from workerdiag.deadline import Deadline
from workerdiag.model.scene import Scene, Victim
from workerdiag.sources.batch.jobs import BatchJob, BatchJobs, BatchSystem

#: Where jobs that were given no place for their output have been submitted, by their environment.
_SUBMITTED_FROM = ("SLURM_SUBMIT_DIR", "PBS_O_WORKDIR", "LS_SUBCWD", "SGE_O_WORKDIR", "OAR_WORKDIR")
#: So many entries of a directory are looked at, and so many files opened for whose they are.
_MAX_ENTRIES = 20_000
_MAX_OPENED = 60
#: Where a worker says its address: at its start, which a restart by the nanny repeats.
_HEAD_BYTES = 64 * 1024
_TAIL_BYTES = 256 * 1024
_NUMBERED = re.compile(
    r"(?:^|[-_.])(?P<before>\d+(?:\.\d+)?)\.(?:out|err|log|stdout|stderr)$"
    r"|\.[oe](?P<after>\d+)(?:[.-]\d+)?$"
    r"|^(?P<first>\d+)(?:\[\d*\])?(?:\.[\w-]+)*\.(?:OU|ER)$"
)


def output_directories(scene: Scene) -> list[Path]:
    """
    Where the output of the cluster's jobs goes: the directory it was given, else where they were submitted.
    """
    given = dict.fromkeys(_configured_directories(scene))
    if given:
        return [Path(each).expanduser() for each in given]
    submitted = (place.environment.get(name) for place in scene.nearest() for name in _SUBMITTED_FROM)
    usual = dict.fromkeys(each for each in submitted if each)
    if not usual and scene.cluster_is("JobQueueCluster", "dask_jobqueue"):
        usual = {str(Path.cwd()): None}
    return [Path(each) for each in usual]


def _configured_directories(scene: Scene) -> Iterator[str]:
    options = getattr(scene.cluster, "_job_kwargs", None)
    if isinstance(options, Mapping) and isinstance(options.get("log_directory"), str):
        yield options["log_directory"]
    for job in list(getattr(scene.cluster, "_created", ())):
        directory = getattr(job, "log_directory", None)
        if isinstance(directory, str):
            yield directory


def output_files(directory: Path, number: str) -> list[Path]:
    """
    The output of one job in *directory*, errors first.

    Raises:
        OSError: The directory cannot be read.
    """
    wanted = number.partition(".")[0]
    found = [
        path for path in _job_output_files(directory) if _job_number_in(path.name).partition(".")[0] == wanted
    ]
    return sorted(found, key=lambda path: (_is_stdout_file(path.name), path.name))


def _job_number_in(name: str) -> str:
    """
    The number of the job in the name of a file that its output goes to; empty if it is none such.
    """
    found = _NUMBERED.search(name)
    return next((each for each in found.groups() if each), "") if found else ""


def _is_stdout_file(name: str) -> bool:
    return name.endswith((".out", ".OU", ".stdout")) or re.search(r"\.o\d+", name) is not None


def _job_output_files(directory: Path) -> Iterator[Path]:
    with os.scandir(directory) as entries:
        for count, entry in enumerate(entries):
            if count >= _MAX_ENTRIES:
                return
            if _job_number_in(entry.name) and entry.is_file():
                yield Path(entry.path)


def match_jobs_by_output(
    jobs: BatchJobs, scene: Scene, system: BatchSystem, deadline: Deadline
) -> tuple[BatchJob, ...]:
    """
    The known jobs, and those in whose output the address of a dead worker without a job stands.

    A job that a cluster object has let go of is found by this alone.

    Args:
        jobs: What is known without a look.
        scene: Where to look.
        system: The batch system, which says how its numbers look.
        deadline: For all of it.
    """
    known = {job.id: job for job in jobs.known}
    left = [victim for victim in jobs.unmatched if victim.identity.worker]
    for path in _recent_output(output_directories(scene), scene) if left else ():
        if deadline.is_over or not left:
            break
        content = _head_and_tail(path)
        here = [victim for victim in left if _contains_address(content, victim)]
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
    return [path for _, path in sorted(recent, reverse=True)[:_MAX_OPENED]]


def _known_job_number(number: str, known: Iterable[str], system: BatchSystem) -> str | None:
    """
    The number as it is known already, maybe with the name of its server, else as it is, if it can be one.
    """
    same = (each for each in known if each.partition(".")[0] == number.partition(".")[0])
    return (
        next(same, None)
        or system.valid_job_number(number)
        or system.valid_job_number(number.partition(".")[0])
    )


def _contains_address(content: bytes, victim: Victim) -> bool:
    """
    Whether a worker with the victim's address, and no longer one, stands in *content*.
    """
    address = re.escape(str(victim.identity.worker).encode())
    return re.search(address + rb"(?!\d)", content) is not None


def _head_and_tail(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
            file.seek(max(len(head), file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return head + b"\n" + file.read(_TAIL_BYTES)
    except OSError:
        return b""
