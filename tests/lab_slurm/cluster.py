"""A ``SLURMCluster`` with one worker in one job, and what became of it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Self

import dask.config
import dask_jobqueue
from distributed import Client, Future

import workerdiag

from . import tasks
from .slurm import Slurm

PATIENCE_S = 60.0
_ROOT = Path(__file__).parents[1]


class Cluster(contextlib.ExitStack):
    """One job with one worker; the scheduler lives in this process.

    Args:
        slurm: Where the job runs.
        folder: For its output and its worker's scratch.
        options: More of ``SLURMCluster``'s.
    """

    def __init__(self, slurm: Slurm, folder: Path, **options: Any) -> None:
        super().__init__()
        self.slurm = slurm
        self.folder = folder
        given = {
            "cores": 1,
            "processes": 1,
            "memory": "600MB",
            "walltime": "00:10:00",
            "interface": "lo",
            "log_directory": str(folder / "logs"),
            "local_directory": str(folder / "scratch"),
            "shared_temp_directory": str(folder),
            "job_script_prologue": [f"export PYTHONPATH={_ROOT}"],
            "scheduler_options": {"dashboard_address": "127.0.0.1:0"},
            "death_timeout": 60,
            **options,
        }
        # the first death is enough
        self.enter_context(dask.config.set({"distributed.scheduler.allowed-failures": 0}))
        self._cluster = dask_jobqueue.SLURMCluster(**given)
        self.callback(self._close)
        self.client = self.enter_context(Client(self._cluster, set_as_default=False))
        self._cluster.scale(jobs=1)

    def _close(self) -> None:
        """Cancel the jobs; of one that was refused distributed complains (2026.8.0: deploy/spec.py)."""
        with contextlib.suppress(AssertionError):
            self._cluster.close()

    @property
    def jobs(self) -> list[str]:
        """The numbers of its jobs."""
        return [str(job.job_id) for job in self._cluster.workers.values() if job.job_id]

    @property
    def job(self) -> str:
        """The number of its one job."""
        (job,) = self.jobs
        return job

    def lost(self) -> dict[str, Any]:
        """Address and time of the worker that the scheduler lost last."""
        events = self.client.get_events("all")
        gone = [(when, fields) for when, fields in events if fields.get("action") == "remove-worker"]
        when, fields = gone[-1] if gone else (None, {})
        return {"worker": fields.get("worker"), "when": when}

    def wait(self, workers: int = 1) -> None:
        """Wait for the workers."""
        self.client.wait_for_workers(workers, timeout=PATIENCE_S)

    def by_address(self) -> Self:
        """The same with a client that has no cluster object."""
        address = self._cluster.scheduler_address
        self.client = self.enter_context(Client(address, set_as_default=False))
        return self

    def submit(self, function: Any, *arguments: Any) -> Future:
        """A task on the one worker."""
        return self.client.submit(function, *arguments, pure=False)

    def worker_pid(self) -> int:
        """Process id of the worker."""
        return int(self.submit(tasks.process).result(PATIENCE_S))

    def explain(self, exc: BaseException | None = None) -> workerdiag.Diagnosis:
        """What a user sees who asks at once."""
        return workerdiag.explain(exc, self.client, timeout="10s")
