"""What a cluster has for work that did not run yet: limits and threads of its workers, modules, free disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from workerdiag.deadline import Deadline
from workerdiag.guard import guarded
from workerdiag.model.dask import Reply
from workerdiag.model.evidence import Event, Evidence, Gap
from workerdiag.sources.cluster.event_evidence import state_fields
from workerdiag.sources.cluster.state import ClusterState
from workerdiag.sources.cluster.workers import cluster_object_events, fetch_workers
from workerdiag.sources.host.remote_call import probe_elsewhere
from workerdiag.sources.modules import ModuleQuestion, ModuleSource
from workerdiag.sources.scene import make_scene, setup_events


class CapacitySource:
    """Asks the scheduler for its workers, some of these for *modules*, and a machine for its disk; in a thread."""

    def __init__(self, client: Any, modules: Sequence[str] = (), *, with_disk: bool = False) -> None:
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
        state = ClusterState(workers=workers, counts={}, now=None)
        yield from (Event(topic="worker-state", fields=state_fields(each, state)) for each in workers)
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
