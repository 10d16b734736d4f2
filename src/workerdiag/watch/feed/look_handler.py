"""The handler that the feed installs in a scheduler without the recorder, which needs no workerdiag for it.

The installing function runs once for each connection. A handler is better than running functions, since each
run of a function costs a line in the log, an event, and unpickling on the event loop. The scheduler counts
the events of each topic (``Topic.count`` in broker.py), and keeps the last thousand. The event of the
installing function in ``all`` is removed.

A plugin on the scheduler notes processes, nannies and names of workers as they join. Looks from outside would
miss a worker that dies within moments, and would take the next worker with its address for it.
"""

from __future__ import annotations

import time
from asyncio import CancelledError, sleep
from collections.abc import Mapping
from itertools import islice
from typing import Any, TypedDict

from workerdiag.model.dask import Method, Reply, Scheduler, Topic
from workerdiag.recorder.internals import closing_reason, cluster_figures
from workerdiag.sources.cluster.scheduler_functions import by_value, pauses, topics_of

#: Name of the handler, with the version of request and reply, as watchers of two releases may ask.
LOOK = "workerdiag_look_3"
#: Name of the plugin, with the version of its ``who_was``: it stays when a watcher goes, as others use it.
_IDENTITIES = "workerdiag_worker_identities_1"


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
    return by_value(workerdiag_looks_for_removals)


async def workerdiag_looks_for_removals(name: str, dask_scheduler: Scheduler) -> None:
    """Install the handler, and remove the event of this call."""
    from distributed.protocol.serialize import to_serialize

    pack: Method = to_serialize
    topic = topics_of(dask_scheduler)["all"]
    message = topic.events[-1][1] if topic.events else None
    function = message.get("function") if isinstance(message, dict) else None
    if isinstance(function, bytes) and b"workerdiag_looks_for" in function:
        # Nobody has counted it yet. Others stay, or a watcher that was away would receive earlier deaths again.
        topic.events.pop()
        topic.count -= 1
    plugin = await _identities(dask_scheduler)

    async def answer(wanted: LookRequest) -> object:
        return pack(await _look(wanted, dask_scheduler, plugin.who_was))

    dask_scheduler.handlers[name] = answer


async def _look(wanted: LookRequest, scheduler: Scheduler, who_was: Method) -> dict[str, object]:
    topic = topics_of(scheduler)["all"]
    is_known = wanted["scheduler_id"] == scheduler.id
    since = min(wanted["since"], topic.count) if is_known else 0
    until = time.monotonic() + min(wanted["wait_s"], 60.0)
    not_before = 0.0 if wanted["lookback_s"] is None else time.time() - wanted["lookback_s"]
    removals: list[tuple[float, Reply]] = []
    position, missed = since, 0
    try:
        while True:
            removals, position, missed = _read(topic, since, wanted["most"], not_before)
            if removals:
                await sleep(0)  # the scheduler serves a whole cluster
            is_over = "workerdiag_watch" in scheduler.handlers or time.monotonic() >= until
            if removals or is_over or closing_reason(scheduler) is not None:
                break
            await sleep(min(0.2, max(0.0, until - time.monotonic())))
    except CancelledError:  # a closing scheduler cancels all handlers: return its reason
        if closing_reason(scheduler) is None:
            raise
    return {
        "scheduler_id": scheduler.id,
        "position": position,
        "now": time.time(),
        "removals": [(when, _reason(scheduler, each), who_was(each), each) for when, each in removals],
        "missed_count": missed if is_known else 0,
        "figures": cluster_figures(scheduler),
        "closing_reason": closing_reason(scheduler),
        "has_recorder": "workerdiag_watch" in scheduler.handlers,
    }


def _read(topic: Topic, since: int, most: int, not_before: float) -> tuple[list[tuple[float, Reply]], int, int]:
    """Return removals after an event, the last number, and the number of overwritten events.

    Removed events of functions make numbers too high, never too low.
    """
    events = topic.events
    position = first = max(since, topic.count - len(events))
    found: list[tuple[float, Reply]] = []
    for when, message in list(islice(reversed(events), topic.count - first))[::-1]:
        if len(found) == most:
            break
        position += 1
        is_removal = isinstance(message, dict) and message.get("action") == "remove-worker"
        if is_removal and when >= not_before:
            found.append((when, _shortened(message)))
    was_full = len(events) >= (events.maxlen or 0) - 10
    return found, position, first - since if was_full else 0


def _shortened(message: Reply) -> Reply:
    """Return a removal with at most 20 keys of the tasks on the worker, and their number."""
    keys = message.get("processing-tasks") or ()
    return {
        **message,
        "processing_count": len(keys),
        "processing-tasks": [str(key)[:200] for key in islice(keys, 20)],
        **{lost: len(message.get(lost) or ()) for lost in ("lost-computed-tasks", "lost-scattered-tasks")},
    }


def _reason(scheduler: Scheduler, removal: Reply) -> str | None:
    """Return why the worker closes, in its own words; None if it did not say."""
    topic = topics_of(scheduler).get(str(removal.get("worker")))
    for _, message in reversed(topic.events if topic is not None else ()):
        if isinstance(message, dict) and message.get("action") == "closing-worker":
            return str(message.get("reason"))[:200]
    return None


async def _identities(scheduler: Scheduler) -> Any:
    """Return the scheduler's plugin, added if it is not there.

    Its ``who_was(removal)`` returns process, nanny and name of the worker in the event of a removal, or None.
    """
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

    if _IDENTITIES not in scheduler.plugins:
        plugin, pause = WorkerIdentities(), pauses()
        scheduler.add_plugin(plugin, name=_IDENTITIES)
        for worker in list(scheduler.workers):
            plugin.add_worker(scheduler, worker)
            await pause()
    return scheduler.plugins[_IDENTITIES]
