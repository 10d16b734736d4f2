"""The handler that the feed installs in a scheduler without the recorder, which needs no workerdiag for it.

The installing function runs once for each connection. A handler is better than running functions, since each
run of a function costs a line in the log, an event, and unpickling on the event loop. The scheduler counts
the events of each topic (``Topic.count`` in broker.py), and keeps the last thousand. The event of the
installing function in ``all`` is removed.

A plugin on the scheduler notes processes, nannies and names of workers as they join. Looks from outside would
miss a worker that dies within moments, and would take the next worker with its address for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict, cast

from workerdiag.model.dask import Method, Reply, Scheduler, Topic
from workerdiag.recorder import internals
from workerdiag.sources.cluster.scheduler_functions import pauses
from workerdiag.sources.internals import topics_reader

#: Name of the handler, with the version of request and reply, as watchers of two releases may ask.
LOOK = "workerdiag_look_3"


class LookRequest(TypedDict):
    """The request of a look."""

    #: Number of the last known event, and the id of its scheduler; empty: none.
    since: int
    scheduler_id: str
    #: Longest wait, at most 60 seconds.
    wait_s: float
    #: Maximum number of removals.
    most: int
    #: Maximum age of removals, in seconds; None: any age.
    lookback_s: float | None


class LookReply(TypedDict):
    """The reply of a look."""

    scheduler_id: str
    #: Number of the last event read.
    position: int
    #: The scheduler's clock, in seconds since the epoch.
    now: float
    #: Oldest first: time; reason of the worker if it gave one; its process, nanny and name if they are known;
    #: the scheduler's event.
    removals: list[tuple[float, str | None, tuple[object, object, object] | None, Reply]]
    missed_count: int
    #: Fields of `ClusterFigures`.
    figures: Mapping[str, int]
    #: Why the scheduler closes; None: it does not.
    closing_reason: str | None
    has_recorder: bool


def look_installer() -> Method:
    """Return what installs the handler of `LOOK`, from `LookRequest` to `LookReply`, in the scheduler."""
    look, remember, topics_of = _looker(), worker_identities(), topics_reader()

    async def workerdiag_looks_for_removals(name: str, dask_scheduler: Scheduler) -> None:
        from distributed.protocol.serialize import to_serialize

        pack = cast("Method", to_serialize)
        topic = topics_of(dask_scheduler)["all"]
        message = topic.events[-1][1] if topic.events else None
        function = message.get("function") if isinstance(message, dict) else None
        if isinstance(function, bytes) and b"workerdiag_looks_for" in function:
            # Nobody has counted it yet. Others stay, or a watcher that was away would receive earlier deaths again.
            topic.events.pop()
            topic.count -= 1
        plugin = await remember("workerdiag_worker_identities_1", dask_scheduler)

        async def answer(wanted: LookRequest) -> object:
            return pack(await look(wanted, dask_scheduler, plugin.who_was))

        dask_scheduler.handlers[name] = answer

    return workerdiag_looks_for_removals


def _looker() -> Method:
    read, reason_of = _event_reader(), _reason_reader()
    figures, closing = internals.figures_reader(), internals.closing_reader()
    topics_of = topics_reader()

    async def look(wanted: LookRequest, dask_scheduler: Scheduler, who_was: Method) -> dict[str, object]:
        from asyncio import CancelledError, sleep
        from time import monotonic, time

        topic = topics_of(dask_scheduler)["all"]
        is_known = wanted["scheduler_id"] == dask_scheduler.id
        since = min(wanted["since"], topic.count) if is_known else 0
        until = monotonic() + min(wanted["wait_s"], 60.0)
        not_before = 0.0 if wanted["lookback_s"] is None else time() - wanted["lookback_s"]
        removals, position, missed = [], since, 0
        try:
            while True:
                removals, position, missed = read(topic, since, wanted["most"], not_before)
                if removals:
                    await sleep(0)  # the scheduler serves a whole cluster
                is_over = "workerdiag_watch" in dask_scheduler.handlers or monotonic() >= until
                if removals or is_over or closing(dask_scheduler) is not None:
                    break
                await sleep(min(0.2, max(0.0, until - monotonic())))
        except CancelledError:  # a closing scheduler cancels all handlers: return its reason
            if closing(dask_scheduler) is None:
                raise
        return {
            "scheduler_id": dask_scheduler.id,
            "position": position,
            "now": time(),
            "removals": [(when, reason_of(dask_scheduler, each), who_was(each), each) for when, each in removals],
            "missed_count": missed if is_known else 0,
            "figures": figures(dask_scheduler),
            "closing_reason": closing(dask_scheduler),
            "has_recorder": "workerdiag_watch" in dask_scheduler.handlers,
        }

    return look


def _event_reader() -> Method:
    def shorten(message: Reply) -> dict[str, object]:
        """Return a removal with at most 20 keys of the tasks on the worker, and their number."""
        keys = message.get("processing-tasks") or ()
        shortened = {**message, "processing_count": len(keys)}
        shortened["processing-tasks"] = [str(key)[:200] for _, key in zip(range(20), keys, strict=False)]
        for lost in ("lost-computed-tasks", "lost-scattered-tasks"):
            shortened[lost] = len(message.get(lost) or ())
        return shortened

    def read(topic: Topic, since: int, most: int, not_before: float) -> tuple[list[object], int, int]:
        """Return removals after an event, the last number, and the number of overwritten events.

        Removed events of functions make numbers too high, never too low.
        """
        from itertools import islice

        events = topic.events
        position = first = max(since, topic.count - len(events))
        found: list[object] = []
        for when, message in list(islice(reversed(events), topic.count - first))[::-1]:
            if len(found) == most:
                break
            position += 1
            is_removal = isinstance(message, dict) and message.get("action") == "remove-worker"
            if is_removal and when >= not_before:
                found.append((when, shorten(message)))
        was_full = len(events) >= (events.maxlen or 0) - 10
        return found, position, first - since if was_full else 0

    return read


def _reason_reader() -> Method:
    topics_of = topics_reader()

    def reason_of(scheduler: Scheduler, removal: Reply) -> str | None:
        """Return why the worker closes, in its own words; None if it did not say."""
        topics = topics_of(scheduler)
        worker = str(removal.get("worker"))
        if worker not in topics:
            return None  # reading it would create it
        for _, message in reversed(topics[worker].events):
            if isinstance(message, dict) and message.get("action") == "closing-worker":
                return str(message.get("reason"))[:200]
        return None

    return reason_of


def worker_identities() -> Method:
    """Return a function that runs in the scheduler and returns the plugin, which it adds if it is not there.

    The plugin stays when a watcher goes: others use it, so its name has the version of ``who_was(removal)``, which
    returns process, nanny and name of the worker in a removal, an event of the scheduler, or None.
    """
    create, begin = _plugin_factory(), pauses

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
