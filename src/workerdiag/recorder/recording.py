"""The base of the recordings in workers and nannies, and where a worker runs, as its environment says."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from workerdiag.procfs_and_cgroups import cgroup_lines, process_start_ms
from workerdiag.recorder.internals import get_recording, memory_thresholds, set_recording

if TYPE_CHECKING:
    from workerdiag.model.dask import Server, Worker
    from workerdiag.wire.black_box import MissingPart


class Recording(ABC):
    """The recording in one worker or nanny, from `start` to `stop`."""

    logger: ClassVar[logging.Logger]
    #: Statuses of a closing server, whose end is recorded too.
    CLOSING: ClassVar[tuple[str, ...]] = ("closing", "closed", "failed")

    def __init__(self) -> None:
        #: Who started it: ``preload``, ``plugin``.
        self.owners: set[str] = set()
        #: What is not recorded, and why; the reason is for a person.
        self.missing: dict[MissingPart, str] = {}
        self._tasks: set[asyncio.Task[object]] = set()

    @property
    @abstractmethod
    def is_recording(self) -> bool:
        """Whether the main part records: the box of a worker, the exits of a nanny."""

    @abstractmethod
    def start(self) -> None:
        """Begin to record. Never raises."""

    @abstractmethod
    def stop(self) -> None:
        """Stop recording and undo every change."""

    def begin_closing(self) -> None:  # noqa: B027  a nanny has nothing to do
        """Continue to record until the server has closed."""

    def lack(self, part: MissingPart, why: str) -> None:
        """Note that *part* is not recorded."""
        self.missing[part] = "; ".join(filter(None, (self.missing.get(part), why)))
        self.logger.info("The flight recorder does without: %s", why)

    def spawn(self, work: Coroutine[object, object, object]) -> None:
        """Run *work* in the background, with a reference that keeps the task alive."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def report_orphans(self, server: Server) -> None:
        """Report orphaned boxes, once the first worker has had time to start."""
        await asyncio.sleep(2.0)
        if self.is_recording:
            from workerdiag.recorder.delivery import report_orphans

            await report_orphans(server)


def start_recording(server: object, make: Callable[[Any], Recording], owner: str) -> None:
    """Start a recording in a worker or nanny unless one is active, and add *owner* to it."""
    recording = get_recording(server)
    if recording is None:
        recording = make(server)
        set_recording(server, recording)
        recording.start()
    recording.owners.add(owner)


def stop_recording(server: Any, owner: str) -> None:
    """Stop recording once the last owner is gone; a closing server is recorded until it has closed."""
    recording = get_recording(server)
    if recording is None:
        return
    if server.status.name in recording.CLOSING:
        recording.begin_closing()
        return
    recording.owners.discard(owner)
    if not recording.owners:
        recording.stop()


def recorder_status(dask_worker: Worker) -> dict[str, object]:
    """The recorder status of a worker or nanny as plain data; ``Client.run`` requires the parameter's name."""
    recording = get_recording(dask_worker)
    return {
        "is_recording": recording is not None and recording.is_recording,
        "missing": dict(getattr(recording, "missing", {})),
    }


#: Variables that batch systems set in each job (their manuals on the environment of a job).
_JOB_VARIABLES = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "COBALT_JOBID", "JOB_ID")
#: Container ids of Docker, containerd and CRI-O in the path of a control group.
_CONTAINER = re.compile(r"[0-9a-f]{64}")
_T = TypeVar("_T")


def worker_identity(worker: Worker) -> Mapping[str, str]:
    """Who a worker is and where it runs, as text by the names of docs/black-box.md; unknown parts are left out."""
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
