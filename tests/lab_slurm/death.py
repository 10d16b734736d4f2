"""A task whose worker is about to die, and what a user then has in hand."""

from __future__ import annotations

from typing import Any, Self

from attrs import define
from distributed import Future

import workerdiag

from . import tasks
from .cluster import Cluster
from .slurm import wait_until

PATIENCE_S = 120.0


@define
class Death:
    """A cluster and the task that will be given up with its worker."""

    cluster: Cluster
    task: Future | None = None
    exc: BaseException | None = None

    @classmethod
    def of_waiting(cls, cluster: Cluster) -> Self:
        """With a task that runs, and does nothing."""
        task = cluster.submit(tasks.wait)
        processing = cluster.client.processing
        wait_until(lambda: any(processing().values()), "the task to begin")
        return cls(cluster, task)

    @classmethod
    def of(cls, cluster: Cluster, function: Any, *arguments: Any) -> Self:
        """With a task that kills its worker itself."""
        return cls(cluster, cluster.submit(function, *arguments))

    def explain(self) -> workerdiag.Diagnosis:
        """What a user is told who asks as soon as the task was given up."""
        try:
            if self.task is None:
                self.cluster.client.wait_for_workers(1, timeout=3)
            else:
                self.task.result(PATIENCE_S)
        except Exception as problem:
            self.exc = problem
        assert self.exc is not None, "nothing went wrong"
        return self.cluster.explain(self.exc)
