"""The cluster's batch jobs, the victims in each, and records of a job's runs, which may explain a death.

The batch systems are those of dask-jobqueue (0.9.0). Job numbers come from the environment of processes that
answered, from dask-jobqueue's cluster object (core.py, ``Job.job_id``) and from worker names that contain one.
Job names alone do not count: other people may use the same.
"""

from __future__ import annotations

import calendar
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any

from workerdiag.model.scene import Location, Scene, Victim
from workerdiag.sources.internals import created_jobs
from workerdiag.values import frozen

#: At most this many jobs are queried.
MAX_JOBS = 16
#: Worker names of dask-jobqueue before 0.7, and on HTCondor: ``dask-worker--7120344--``.
_ID_IN_NAME = re.compile(r"--(\d[\w.\[\]-]*?)--(?:-?\d+)?$")


@frozen(kw_only=True)
class BatchSystem:
    """How to recognise the jobs of one batch system."""

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
    without_number = (each for each in _current_jobs(scene) if getattr(each, "job_id", "") is None)
    rejected = tuple(str(getattr(each, "name", "")) for each in without_number)
    return BatchJobs(known=tuple(jobs[:MAX_JOBS]), unmatched=tuple(unmatched), rejected=rejected if objects else ())


def _job_objects(scene: Scene, system: BatchSystem) -> list[tuple[str, object]] | None:
    """Return the cluster object's jobs with their worker names, or None if it is of another kind."""
    if not scene.cluster_is(*system.clusters):
        return None
    jobs = (*_current_jobs(scene), *created_jobs(scene.cluster))
    objects = {id(each): each for each in jobs if hasattr(each, "job_id")}
    return [(str(getattr(each, "name", "")), each) for each in objects.values()]


def _current_jobs(scene: Scene) -> list[object]:
    listed = getattr(scene.cluster, "workers", None)
    return list(listed.values()) if isinstance(listed, Mapping) else []


def _job_numbers(
    victim: Victim, places: Iterable[Location], objects: Iterable[tuple[str, Any]], system: BatchSystem
) -> list[str]:
    identity = victim.identity
    for place in places:
        if place.is_of(identity) and (found := system.job_of(place.environment)):
            return [found]
    if identity.name is None:
        return []
    if match := _ID_IN_NAME.search(identity.name):
        found = system.valid_job_number(match[1])
        return [found] if found else []
    own_jobs = (each for name, each in objects if _is_worker_of_job(identity.name, name))
    numbers = (system.valid_job_number(each.job_id) for each in own_jobs)
    return list(dict.fromkeys(each for each in numbers if each))


def _is_worker_of_job(worker: str, job: str) -> bool:
    return worker == job or re.fullmatch(re.escape(job) + r"-\d+", worker) is not None


def _jobs_without_victims(
    scene: Scene, objects: Iterable[tuple[str, object]], system: BatchSystem, *, known: set[str]
) -> list[BatchJob]:
    """Return jobs without a known victim, the latest first; those without a live worker come first."""
    info = getattr(scene.cluster, "scheduler_info", None) or {}
    living = [str(each.get("name")) for each in list(info.get("workers", {}).values())]
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


SLURM = BatchSystem(
    clusters=("SLURMCluster",),
    variables=("SLURM_JOB_ID", "SLURM_JOBID"),
    number_pattern=re.compile(r"\d{1,12}(?:_\d{1,9})?"),
)
PBS = BatchSystem(
    clusters=("PBSCluster", "MoabCluster"),
    variables=("PBS_JOBID",),
    number_pattern=re.compile(r"(?:Moab\.)?\d{1,12}(?:\[\d{0,9}\])?(?:\.[A-Za-z0-9](?:[\w.-]{0,80}))?"),
)
LSF = BatchSystem(
    clusters=("LSFCluster",), variables=("LSB_JOBID",), number_pattern=re.compile(r"\d{1,12}(?:\[\d{1,9}\])?")
)
GRID_ENGINE = BatchSystem(
    clusters=("SGECluster",),
    variables=("JOB_ID",),
    number_pattern=re.compile(r"\d{1,12}(?:\.\d{1,9})?"),
    required_variables=("SGE_ROOT", "SGE_CELL", "SGE_TASK_ID", "SGE_O_HOST", "SGE_O_WORKDIR"),
)
HTCONDOR = BatchSystem(
    clusters=("HTCondorCluster",),
    variables=("HTCONDOR_JOBID", "CONDOR_ID"),
    number_pattern=re.compile(r"\d{1,12}(?:\.\d{1,9})?"),
)
OAR = BatchSystem(
    clusters=("OARCluster",), variables=("OAR_JOB_ID", "OAR_JOBID"), number_pattern=re.compile(r"\d{1,12}")
)
SYSTEMS: tuple[BatchSystem, ...] = (SLURM, PBS, LSF, GRID_ENGINE, HTCONDOR, OAR)

#: A death at most this many seconds outside a run belongs to it: clocks differ by up to five minutes, and
#: both Dask and batch systems take minutes to notice a silent node.
_NEAR_S = 900.0
#: A run that starts more than this many seconds after a death is another one: dask-jobqueue's replacement job
#: starts 15 s later.
_BEFORE_S = 10.0
#: A cancellation this many seconds after a death did not cause it: dask-jobqueue itself cancels the job of a
#: lost worker 15 s later (distributed 2026.8.0: ``deploy.lost-worker-timeout``).
_CANCELLED_LATE_S = 10.0
#: Any other end of a job this many seconds after a death did not cause it; Slurm's KillWait is 30 s.
_ENDED_LATE_S = 60.0

_MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)")
_AMERICAN = re.compile(r"(\d\d)/(\d\d)/(\d{4}) (\d\d):(\d\d):(\d\d)")
_CTIME = re.compile(r"([A-Z][a-z]{2}) +(\d{1,2}) (\d\d):(\d\d):(\d\d)(?:\.\d+)?(?: (\d{4}))?")


@frozen(kw_only=True)
class JobRecord:
    """One run of one job, as the batch system recorded it."""

    job: str
    text: str
    #: Seconds since the epoch; None if the run has not started or ended.
    started: float | None = None
    ended: float | None = None
    #: Whether somebody cancelled the job.
    cancelled: bool = False
    #: Whether the cause of the end is recorded late or applies to the whole run, such as a lost node or an
    #: OOM kill within the job.
    holds_late: bool = False
    waiting: bool = False
    #: Memory limit of the job and its peak memory, in bytes.
    limit_bytes: int | None = None
    rss_bytes: int | None = None
    #: Used share of the time limit, in percent.
    percent_of_time: float | None = None

    def may_explain(self, missed: float | None) -> bool:
        """Whether the end of this run can explain a death noticed at *missed*; not if the job outlived it."""
        if missed is None or self.ended is None or self.holds_late:
            return True
        return self.ended - missed <= (_CANCELLED_LATE_S if self.cancelled else _ENDED_LATE_S)

    def distance_s(self, missed: float) -> float:
        """Return the seconds by which *missed* lies outside this run; 0 within it."""
        before = self.started - missed if self.started is not None else 0.0
        after = missed - self.ended if self.ended is not None else 0.0
        return max(0.0, before, after)


def run_of_death(records: Iterable[JobRecord], missed: float | None) -> JobRecord | None:
    """Return the run in which a worker died, or None if no run is near; a requeued job has several.

    Without a time it is the last run.
    """
    runs = list(records)
    if missed is None:
        return runs[-1] if runs else None
    begun = [each for each in runs if not each.waiting and (each.started or missed) <= missed + _BEFORE_S]
    near = min(begun, key=lambda each: each.distance_s(missed), default=None)
    return near if near is not None and near.distance_s(missed) <= _NEAR_S else None


def parse_batch_time(text: str) -> float | None:
    """Parse a UTC time as batch systems write it; return seconds since the epoch, or None.

    A time without a year (LSF) is in this year, or in the last one if it would lie in the future.
    """
    if found := _ISO.search(text):
        return _utc_time(*map(int, found.groups()))
    if found := _AMERICAN.search(text):
        month, day, year, *time_of_day = map(int, found.groups())
        return _utc_time(year, month, day, *time_of_day)
    found = _CTIME.search(text)
    if found is None or found[1] not in _MONTHS:
        return None
    month, day, *time_of_day = _MONTHS.index(found[1]) + 1, *(int(found[part]) for part in (2, 3, 4, 5))
    tomorrow = time.gmtime(time.time() + 86400)
    year = int(found[6] or tomorrow.tm_year)
    if not found[6] and (month, day) > (tomorrow.tm_mon, tomorrow.tm_mday):
        year -= 1
    return _utc_time(year, month, day, *time_of_day)


def _utc_time(*parts: int) -> float | None:
    try:
        return float(calendar.timegm((*parts, 0, 0, 0)))
    except ValueError:  # a thirteenth month: some sites write the day first
        return None


def parse_size(text: str, *, unit: str = "") -> int | None:
    """Return the bytes of ``364528K``, ``2412340kb``, ``151.734MB`` or ``4G``, in powers of 1024.

    A number without a unit has *unit*.
    """
    found = re.fullmatch(r"\s*(\d{1,15}(?:\.\d+)?)\s*([bkmgtp]?)(?:i?b|n)?(?:ytes)?\s*", text, re.IGNORECASE)
    if found is None:
        return None
    power = "bkmgtp".find((found[2] or unit[:1] or "b").lower())
    return int(float(found[1]) * 1024 ** max(0, power)) or None


def percent_used(used: str, given: str) -> float | None:
    """Return the percentage *used* of a *given* time, or None if either is unknown."""
    spent, whole = parse_batch_duration(used), parse_batch_duration(given)
    return None if spent is None or not whole else round(100.0 * spent / whole, 1)


def parse_batch_duration(text: str) -> float | None:
    """Return the seconds of ``1-02:03:04``, ``02:03:04``, ``03:04``, ``21s`` or ``20``, or None."""
    found = re.fullmatch(r"\s*(?:(\d{1,9})[-+])?((?:\d+:){1,2}\d+(?:\.\d+)?|\d+(?:\.\d+)?)s?\s*", text)
    if found is None:
        return None
    total = 0.0
    for part in found[2].split(":"):
        total = 60 * total + float(part)
    return total + 86400 * int(found[1] or 0)
