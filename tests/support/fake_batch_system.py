"""A batch system made of scripts, with a job that has a dead worker."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import define

from workerdiag import explain
from workerdiag.model.evidence import Event, Evidence
from workerdiag.model.identity import Identity
from workerdiag.model.scene import Location, Scene, Victim

WORKER = "tcp://10.0.0.4:40331"
NANNY = "tcp://10.0.0.4:40330"
HOST = "10.0.0.4"


def install_command(folder: Path, name: str, script: str) -> None:
    """Install an executable in *folder* that runs *script* in a shell."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def install_answer(folder: Path, name: str, text: str, *, status: int = 0) -> None:
    """Install an executable in *folder* that always prints *text* and notes its arguments."""
    answer = folder / f"{name}.answer"
    answer.write_text(text)
    install_command(folder, name, f'echo "{name} $*" >> {folder}/asked\ncat {answer}\nexit {status}')


def commands_run(folder: Path) -> list[str]:
    """Return the commands that were run."""
    log = folder / "asked"
    return log.read_text().splitlines() if log.exists() else []


@define
class FakeJob:
    """A job, as dask-jobqueue's cluster objects hold it."""

    name: str
    job_id: str | None
    log_directory: str | None = None


class JobQueueCluster:
    """A cluster object like dask-jobqueue's."""

    def __init__(self, *jobs: FakeJob, living: Mapping[str, Any] | None = None) -> None:
        self.workers = {job.name: job for job in jobs}
        self.scheduler_info = {"workers": dict(living or {})}
        self._created = list(jobs)
        self._job_kwargs = {"log_directory": jobs[0].log_directory} if jobs else {}


def cluster(kind: str, *jobs: FakeJob, **options: Any) -> JobQueueCluster:
    """Return a cluster of a given class, e.g. ``SLURMCluster``."""
    return type(kind, (JobQueueCluster,), {})(*jobs, **options)


@define
class FakeClient:
    """A client, as far as sources use it."""

    cluster: Any = None


def victim(when: float | None, *, name: str | None = "w-0", worker: str = WORKER, nanny: str = NANNY) -> Victim:
    """Return the dead worker."""
    return Victim(identity=Identity(worker=worker, pid=4711, nanny=nanny, name=name, host=HOST), when=when)


def scene(*victims: Victim, of: Any = None, role: str = "nanny", **environment: str) -> Scene:
    """Return the scene of the dead workers; a nanny is alive if *environment* is given."""
    nanny = Location(role=role, identity=Identity(nanny=NANNY, host=HOST), environment=environment)
    return Scene(victims=victims, locations=(nanny,) if environment else (), client=FakeClient(of))


@define
class RemovalSource:
    """A source that says that the scheduler lost a worker."""

    dead: Victim
    name: str = "scheduler events"

    def collect(self, *, budget_s: float) -> Iterator[Evidence]:
        assert budget_s > 0
        fields = {"action": "remove-worker", "worker": self.dead.identity.worker, "expected": False}
        yield Event(topic="all", fields=fields, when=self.dead.when, identity=self.dead.identity)


def explain_by(source: Any, dead: Victim | None, *, budget_s: float = 5.0) -> Any:
    """Return the diagnosis of a death by *source* alone."""
    sources = [source] if dead is None else [RemovalSource(dead), source]
    return explain(sources=sources, timeout=budget_s)


def on_path(folder: Path, monkeypatch: Any) -> Path:
    """Put *folder* first on the search path for commands."""
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder
