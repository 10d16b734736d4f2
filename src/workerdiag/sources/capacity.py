"""What a cluster has for work that did not run yet: limits and threads of its workers, modules, free disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from workerdiag.deadline import Deadline
from workerdiag.guard import guarded
from workerdiag.model.dask import Client, Reply
from workerdiag.model.evidence import Event, Evidence, Gap
from workerdiag.model.normalize import EventValue
from workerdiag.sources.cluster.workers import cluster_object_events, fetch_workers
from workerdiag.sources.host.remote_call import probe_elsewhere
from workerdiag.sources.modules import ModuleQuestion, ModuleSource
from workerdiag.sources.scene import make_scene, setup_events


class CapacitySource:
    """Asks the scheduler for its workers, some of them for *modules*, and a machine for its disk if wanted.

    Its calls wait for the client's event loop, so they come from another thread.
    """

    name = "capacity"

    def __init__(self, client: Client, modules: Sequence[str] = (), *, with_disk: bool = False) -> None:
        self._client = client
        self._modules = tuple(modules)
        self._with_disk = with_disk

    def collect(self, *, budget_s: float) -> Iterator[Evidence]:
        """Yield an event for each worker and each module that differs, or gaps."""
        deadline = Deadline.of_budget(budget_s)
        yield from cluster_object_events(self._client)
        yield from setup_events(make_scene((), (), self._client))
        workers: dict[str, Reply] = {}
        with guarded("asking for the workers") as asking:
            until_s = deadline.share(0.4).left_s
            answer = self._client.sync(fetch_workers, self._client, asynchronous=False, callback_timeout=until_s)
            workers = answer["workers"]
        if asking.problem is not None:
            yield Gap(source="scheduler", place="scheduler", reason="unreachable", detail=str(asking.problem)[:500])
            return
        yield from (Event(topic="worker-state", fields=_fields(each)) for each in workers.values())
        nanny = next((each["nanny"] for each in workers.values() if each.get("nanny")), None)
        if self._with_disk and nanny is not None:
            with guarded("asking for the disk"):
                yield from self._disk_events(nanny, deadline.share(0.5))
        question = ModuleQuestion(named=self._modules, workers=tuple(workers)[:5])
        if self._modules:
            yield from ModuleSource(self._client, question).collect(budget_s=deadline.left_s)

    def _disk_events(self, nanny: str, deadline: Deadline) -> Iterator[Event]:
        ask = partial(probe_elsewhere, self._client, nanny, ("machine",), {"nannies": [nanny]}, deadline)
        answer = self._client.sync(ask, asynchronous=False, callback_timeout=deadline.left_s)
        disks = (each for each in answer["machine"]["disks"] if each["what"] == "local directory")
        free = [each["free_bytes"] for each in disks if "free_bytes" in each]
        if free:
            yield Event(topic="spill-disk", fields={"free_bytes": int(min(free))})


def _fields(worker: Reply) -> dict[str, EventValue]:
    metrics: Reply = worker.get("metrics") or {}
    return {
        "status": str(worker.get("status")),
        "memory_bytes": int(metrics.get("memory") or 0),
        "limit_bytes": int(worker.get("memory_limit") or 0) or None,
        "stored_bytes": int(metrics.get("managed_bytes") or 0),
        "nthreads": int(worker.get("nthreads") or 1),
        "executing_count": int((metrics.get("task_counts") or {}).get("executing", 0)),
    }
