"""Who the removed workers of a scheduler were: their processes, nannies and names, which it forgets.

A plugin on the scheduler notes them as they join. Looks from outside would miss a worker that dies within
moments, and would take the next worker with its address for it.
"""

from __future__ import annotations

from typing import Any

from workerdiag.model.dask import Method, Reply, Scheduler
from workerdiag.sources.cluster.scheduler_functions import pauses

#: Name of the plugin, with the version of `who_was`, as watchers of two releases may share it.
WORKER_IDENTITIES = "workerdiag_worker_identities_1"


def worker_identities() -> Method:
    """Return a function that runs in the scheduler and returns the plugin, which it adds if it is not there.

    The plugin stays when a watcher goes: others use it. Its ``who_was(removal)`` returns process, nanny and
    name of the worker in a removal, an event of the scheduler, or None.
    """
    create, begin = _plugin_factory(), pauses()

    async def remember(name: str, scheduler: Scheduler) -> Any:
        if name not in scheduler.plugins:
            plugin, pause = create(), begin()
            scheduler.add_plugin(plugin, name=name)
            for worker in list(scheduler.workers):
                plugin.add_worker(scheduler, worker)
                await pause()
        return scheduler.plugins[name]

    return remember


def _plugin_factory() -> Method:
    def create() -> Any:
        from distributed.diagnostics.plugin import SchedulerPlugin

        class WorkerIdentities(SchedulerPlugin):
            def __init__(self) -> None:
                self._joined: dict[str, tuple[object, ...]] = {}
                self._removed: dict[tuple[object, object], tuple[object, ...]] = {}

            def add_worker(self, scheduler: Any, worker: str) -> None:
                state = scheduler.workers.get(worker)
                if state is not None:
                    self._joined[worker] = (state.pid, state.nanny, str(state.name)[:200])

            def remove_worker(self, scheduler: Any, worker: str, *, stimulus_id: str, **more: object) -> None:
                del scheduler, more
                who = self._joined.pop(worker, None)
                if who is not None:
                    self._removed[worker, stimulus_id] = who
                if len(self._removed) > 1000:  # the scheduler keeps no more events
                    del self._removed[next(iter(self._removed))]

            def who_was(self, removal: Reply) -> tuple[object, ...] | None:
                return self._removed.get((removal.get("worker"), removal.get("stimulus_id")))

        return WorkerIdentities()

    return create
