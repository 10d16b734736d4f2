"""Finds the cluster's batch jobs and the victims in each, for the batch systems of dask-jobqueue (0.9.0).

The job numbers come from the environment of processes that answered, from dask-jobqueue's cluster object
(core.py, ``Job.job_id``) and from worker names that contain one. Job names alone do not count: other people
may use the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import frozen

from workerdiag.model.scene import Location, Scene, Victim
from workerdiag.sources.internals import created_jobs

#: At most this many jobs are queried.
MAX_JOBS = 16
#: Worker names of dask-jobqueue before 0.7, and on HTCondor: ``dask-worker--7120344--``.
_ID_IN_NAME = re.compile(r"--(\d[\w.\[\]-]*?)--(?:-?\d+)?$")


@frozen(kw_only=True)
class BatchSystem:
    """How to recognise the jobs of one batch system."""

    name: str
    #: Cluster classes of dask-jobqueue.
    clusters: tuple[str, ...]
    #: Environment variables that hold a process's job number.
    variables: tuple[str, ...]
    #: Full pattern of a job number; nothing else goes into a command.
    number_pattern: re.Pattern[str]
    #: Where the names of `variables` are ambiguous: one of these must also be set.
    required_variables: tuple[str, ...] = ()

    def valid_job_number(self, number: object) -> str | None:
        """Return the number as text if it can be one of this system's, else None."""
        text = str(number or "").strip()
        return text if len(text) <= 100 and self.number_pattern.fullmatch(text) else None

    def job_of(self, environment: Mapping[str, str]) -> str | None:
        """Return the job number in a process's environment, or None."""
        if self.required_variables and not any(environment.get(each) for each in self.required_variables):
            return None
        found = (self.valid_job_number(environment.get(each)) for each in self.variables)
        return next((each for each in found if each), None)


@frozen(kw_only=True)
class BatchJob:
    """A batch job of this cluster."""

    id: str
    #: The victims known to have run in it.
    victims: tuple[Victim, ...] = ()
    #: False if they may have run in another job: a cluster object reuses the name of a lost job.
    is_certain: bool = True
    #: Whether other processes of the cluster still run in it.
    has_live_processes: bool = False


@frozen(kw_only=True)
class BatchJobs:
    """The jobs of one cluster in one batch system."""

    #: Jobs with victims first, the latest first.
    known: tuple[BatchJob, ...] = ()
    #: Victims without a known job.
    unmatched: tuple[Victim, ...] = ()
    #: Names of workers whose jobs the batch system rejected.
    rejected: tuple[str, ...] = ()


def find_jobs(scene: Scene, system: BatchSystem) -> BatchJobs | None:
    """Return the cluster's jobs as far as known without a query; None if the cluster does not use *system*."""
    objects = _job_objects(scene, system)
    if objects is None and not any(_jobs_with_processes(scene, system)):
        return None
    objects = objects or []
    victims: dict[str, list[Victim]] = {}
    unmatched, ambiguous = [], set()
    for victim in scene.victims:
        numbers = _job_numbers(victim, scene.locations, objects, system)
        for number in numbers:
            victims.setdefault(number, []).append(victim)
        ambiguous |= set(numbers) if len(numbers) > 1 else set()
        unmatched += [] if numbers else [victim]
    jobs = [
        BatchJob(id=number, victims=tuple(dead), is_certain=number not in ambiguous)
        for number, dead in victims.items()
    ]
    if unmatched or not scene.victims:
        jobs += _jobs_without_victims(scene, objects, system, known=set(victims))
    return BatchJobs(
        known=tuple(jobs[:MAX_JOBS]),
        unmatched=tuple(unmatched),
        rejected=_rejected_jobs(scene) if objects else (),
    )


def _job_objects(scene: Scene, system: BatchSystem) -> list[tuple[str, object]] | None:
    """Return the cluster object's jobs with their worker names, or None if it is of another kind."""
    if not scene.cluster_is(*system.clusters):
        return None
    objects = {
        id(each): each
        for each in (*_current_jobs(scene), *created_jobs(scene.cluster))
        if hasattr(each, "job_id")
    }
    return [(str(getattr(each, "name", "")), each) for each in objects.values()]


def _current_jobs(scene: Scene) -> list[object]:
    listed = getattr(scene.cluster, "workers", None)
    return list(listed.values()) if isinstance(listed, Mapping) else []


def _rejected_jobs(scene: Scene) -> tuple[str, ...]:
    without = (each for each in _current_jobs(scene) if getattr(each, "job_id", "") is None)
    return tuple(str(getattr(each, "name", "")) for each in without)


def _job_numbers(
    victim: Victim, places: Iterable[Location], objects: Iterable[tuple[str, Any]], system: BatchSystem
) -> list[str]:
    identity = victim.identity
    for place in places:
        own = place.role in ("worker", "nanny") and (
            _equal_and_known(place.identity.nanny, identity.nanny)
            or _equal_and_known(place.identity.worker, identity.worker)
        )
        if own and (found := system.job_of(place.environment)):
            return [found]
    if identity.name is None:
        return []
    if match := _ID_IN_NAME.search(identity.name):
        found = system.valid_job_number(match[1])
        return [found] if found else []
    numbers = (
        system.valid_job_number(each.job_id)
        for name, each in objects
        if _is_worker_of_job(identity.name, name)
    )
    return list(dict.fromkeys(each for each in numbers if each))


def _is_worker_of_job(worker: str, job: str) -> bool:
    return worker == job or re.fullmatch(re.escape(job) + r"-\d+", worker) is not None


def _equal_and_known(one: str | None, two: str | None) -> bool:
    return one is not None and one == two


def _jobs_without_victims(
    scene: Scene, objects: Iterable[tuple[str, object]], system: BatchSystem, *, known: set[str]
) -> list[BatchJob]:
    """Return jobs without a known victim, the latest first; those without a live worker come first."""
    living = _live_worker_names(scene)
    empty: list[str] = []
    occupied: list[str] = []
    for name, each in objects:
        if number := system.valid_job_number(getattr(each, "job_id", None)):
            (occupied if any(_is_worker_of_job(one, name) for one in living) else empty).append(number)
    occupied += _jobs_with_processes(scene, system)
    numbers = dict.fromkeys(each for each in [*reversed(empty), *occupied] if each not in known)
    return [BatchJob(id=each, has_live_processes=each in occupied) for each in numbers]


def _jobs_with_processes(scene: Scene, system: BatchSystem) -> list[str]:
    found = (system.job_of(place.environment) for place in scene.locations if place.role != "client")
    return [each for each in found if each]


def _live_worker_names(scene: Scene) -> Sequence[str]:
    info = getattr(scene.cluster, "scheduler_info", None)
    workers = info.get("workers") if isinstance(info, Mapping) else None
    listed = list(workers.values()) if isinstance(workers, Mapping) else []
    return [str(each.get("name")) for each in listed if isinstance(each, Mapping)]


SLURM = BatchSystem(
    name="Slurm",
    clusters=("SLURMCluster",),
    variables=("SLURM_JOB_ID", "SLURM_JOBID"),
    number_pattern=re.compile(r"\d{1,12}(?:_\d{1,9})?"),
)
PBS = BatchSystem(
    name="PBS",
    clusters=("PBSCluster", "MoabCluster"),
    variables=("PBS_JOBID",),
    number_pattern=re.compile(r"(?:Moab\.)?\d{1,12}(?:\[\d{0,9}\])?(?:\.[A-Za-z0-9](?:[\w.-]{0,80}))?"),
)
LSF = BatchSystem(
    name="LSF",
    clusters=("LSFCluster",),
    variables=("LSB_JOBID",),
    number_pattern=re.compile(r"\d{1,12}(?:\[\d{1,9}\])?"),
)
GRID_ENGINE = BatchSystem(
    name="Grid Engine",
    clusters=("SGECluster",),
    variables=("JOB_ID",),
    number_pattern=re.compile(r"\d{1,12}(?:\.\d{1,9})?"),
    required_variables=("SGE_ROOT", "SGE_CELL", "SGE_TASK_ID", "SGE_O_HOST", "SGE_O_WORKDIR"),
)
HTCONDOR = BatchSystem(
    name="HTCondor",
    clusters=("HTCondorCluster",),
    variables=("HTCONDOR_JOBID", "CONDOR_ID"),
    number_pattern=re.compile(r"\d{1,12}(?:\.\d{1,9})?"),
)
OAR = BatchSystem(
    name="OAR",
    clusters=("OARCluster",),
    variables=("OAR_JOB_ID", "OAR_JOBID"),
    number_pattern=re.compile(r"\d{1,12}"),
)
SYSTEMS: tuple[BatchSystem, ...] = (SLURM, PBS, LSF, GRID_ENGINE, HTCONDOR, OAR)
