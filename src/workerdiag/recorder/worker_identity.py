"""Where a worker runs, as its environment says: batch job, pod, container, releases."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from workerdiag.procfs import cgroup_lines, process_start_ms
from workerdiag.recorder.internals.workers import memory_thresholds

if TYPE_CHECKING:
    from workerdiag.model.dask import Worker

#: Variables that batch systems set in each job (their manuals on the environment of a job).
_JOB_VARIABLES = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "COBALT_JOBID", "JOB_ID")
#: Container ids of Docker, containerd and CRI-O in the path of a control group.
_CONTAINER = re.compile(r"[0-9a-f]{64}")
_T = TypeVar("_T")


def worker_identity(worker: Worker) -> Mapping[str, str]:
    """Who a worker is and where it runs, as text; what is not known is left out.

    ``worker``, ``name``, ``nanny`` (addresses and name), ``nanny_pid`` and ``nanny_started_ms`` (its
    parent, if that is a nanny), ``scheduler``, ``threads``, ``local_directory``, ``dask``,
    ``distributed``, ``memory_spill`` and ``memory_pause`` (shares of the memory limit), ``cgroup``,
    ``container``, ``job`` and ``pod``.
    """
    from dask import __version__ as of_dask  # type: ignore[attr-defined]
    from distributed import __version__ as of_distributed  # type: ignore[attr-defined]

    parent = os.getppid() if worker.nanny else None
    spill, pause = memory_thresholds(worker)
    known = {
        "worker": _value_or_none(lambda: worker.address),
        "name": _value_or_none(lambda: worker.name),
        "nanny": worker.nanny,
        "nanny_pid": parent,
        "nanny_started_ms": process_start_ms(parent) if parent else None,
        "scheduler": _value_or_none(lambda: worker.scheduler.address),
        "threads": _value_or_none(lambda: worker.state.nthreads),
        "local_directory": worker.local_directory,
        "dask": of_dask,
        "distributed": of_distributed,
        "memory_spill": spill,
        "memory_pause": pause,
        **platform_identity(),
    }
    return {name: str(value) for name, value in known.items() if value not in (None, "")}


def platform_identity() -> Mapping[str, str | None]:
    """Control group, container, job and pod of this process; None for what there is not."""
    groups = cgroup_lines()
    container = next((found[0] for line in groups if (found := _CONTAINER.search(line))), None)
    in_kubernetes = "KUBERNETES_SERVICE_HOST" in os.environ
    return {
        "cgroup": max((line.partition(":")[2] for line in groups), key=len, default=None),
        "container": container,
        "job": next((os.environ[name] for name in _JOB_VARIABLES if os.environ.get(name)), None),
        # Kubernetes names the host in a pod like the pod, unless configured otherwise.
        "pod": os.environ.get("POD_NAME") or (os.environ.get("HOSTNAME") if in_kubernetes else None),
    }


def _value_or_none(ask: Callable[[], _T]) -> _T | None:
    """What is known by now; None if asking raises, as an address does before there is one."""
    try:
        return ask()
    except (AttributeError, ValueError):
        return None
