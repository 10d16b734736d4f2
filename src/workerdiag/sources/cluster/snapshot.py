"""Reads a scheduler's events, log, workers and tasks with one function, in place of a dozen requests.

The function runs on the scheduler's event loop, which serves the whole cluster. So it yields to the loop
after each ms of work, pickles its answer piece by piece, and returns at most 100 tasks of a lost worker.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterable, Mapping, Sequence
from io import BytesIO
from typing import Any, TypedDict, cast

from workerdiag.model.dask import Client, Method, Reply, Scheduler
from workerdiag.model.process_end import RECENT_S
from workerdiag.sources.cluster.event_reader import CutEvent, event_cutter, events_reader
from workerdiag.sources.cluster.losses import removals_reader
from workerdiag.sources.cluster.scheduler_functions import forgetter, packer, pauses
from workerdiag.sources.cluster.tasks import states_reader
from workerdiag.sources.cluster.versions_and_settings import SETTINGS, versions_reader
from workerdiag.sources.cluster.workers import workers_reader
from workerdiag.sources.internals import log_handler_reader, topics_reader


class SnapshotRequest(TypedDict):
    """What a snapshot should hold."""

    keys: list[object]
    executing: list[object]
    addresses: list[str]
    recent_s: float
    topics: list[str]
    records: int
    settings: tuple[str, ...]
    most_members: int


#: At most this many tasks of a lost worker are returned; of other collections as many as evidence names.
MAX_MEMBERS = 100


class TruncatedList(list[object]):
    """The first members of a larger collection."""

    def __init__(self, members: Sequence[object], whole: int) -> None:
        super().__init__(members)
        #: Size of the whole collection.
        self.whole = whole


async def take_snapshot(
    client: Client,
    *,
    keys: Collection[object],
    executing: Collection[object] = (),
    addresses: Collection[str] = (),
    topics: Collection[str],
    records: int,
) -> Reply:
    """Return what `_snapshot_function` reads, by name.

    Args:
        client: A client of a scheduler with our release of Python (`tasks.has_same_python`).
        keys: Keys of tasks that the client waits for.
        executing: Keys of tasks that were executing when a worker was lost.
        addresses: The workers in question.
        topics: Event topics in addition to those of the workers in question and of the latest lost ones.
        records: Number of log records.
    """
    wanted: SnapshotRequest = {
        "keys": list(keys),
        "executing": list(executing),
        "addresses": list(addresses),
        "recent_s": RECENT_S,
        "topics": [*topics, *addresses],
        "records": records,
        "settings": SETTINGS,
        "most_members": MAX_MEMBERS,
    }
    return _unpacked(await client.run_on_scheduler(_snapshot_function(), wanted))


def _unpacked(pickled: bytes) -> Reply:
    """Return the reply, with its long parts unpickled too."""
    reply = pickle.loads(pickled)  # noqa: S301  trusted
    return {
        **reply,
        "events": {topic: unpickled(packed) for topic, packed in reply["events"].items()},
        "log": None if reply["log"] is None else unpickled(reply["log"]),
        "workers": dict(unpickled(reply["workers"])),
    }


def unpickled(packed: bytes) -> list[Any]:
    """Return the objects in concatenated pickles; like all replies of a scheduler, they are trusted."""
    found, file = [], BytesIO(packed)
    while file.tell() < len(packed):
        found.append(pickle.load(file))  # noqa: S301  trusted
    return found


async def look_at_topic(client: Client, topic: str) -> list[tuple[float, object]]:
    """Return the untruncated events of one topic; unlike ``get_events``, this never creates the topic."""
    return [(float(when), message) for when, message in await client.run_on_scheduler(_topic_looker(), topic)]


def snapshot_events(snapshot: Reply, topic: str) -> list[tuple[float, object]] | None:
    """Return the events of a topic; None if the snapshot lacks it."""
    found = snapshot.get("events", {}).get(topic)
    return None if found is None else _restored_events(found)


def early_removals(snapshot: Reply) -> list[tuple[float, object]]:
    """Return the first relevant removals that the topic ``all`` has already dropped."""
    removals = snapshot.get("removals")
    if not removals:
        return []
    kept_since = min((when for when, _, _ in snapshot["events"]["all"]), default=float("inf"))
    return [each for each in _restored_events(removals["some"]) if each[0] < kept_since]


def _restored_events(found: Iterable[CutEvent]) -> list[tuple[float, object]]:
    return [(float(when), _restore_counts(message, counts)) for when, message, counts in found]


def _restore_counts(message: object, counts: Mapping[str, int]) -> object:
    if not counts or not isinstance(message, dict):
        return message
    return {key: TruncatedList(each, counts[key]) if key in counts else each for key, each in message.items()}


def _snapshot_function() -> Method:
    """Return the snapshot function; it and its helpers are nested, so the scheduler needs no workerdiag."""
    forget, events, log = forgetter(), events_reader(), _log_function()
    states, workers, versions = states_reader(), workers_reader(), versions_reader()
    removals, packed = removals_reader(event_cutter()), packer()

    def host_of(address: str) -> str:
        return address.rpartition(":")[0].rpartition("/")[2]

    async def workerdiag_snapshot(wanted: SnapshotRequest, dask_scheduler: object = None) -> bytes:
        from asyncio import sleep
        from time import time

        from distributed.protocol.pickle import dumps

        forget(dask_scheduler)
        addresses, keys = wanted["addresses"], wanted["keys"]
        found, records = await events(dask_scheduler, wanted), await log(dask_scheduler, wanted["records"])
        lost = await removals(dask_scheduler, addresses, wanted["recent_s"], keys)
        known = await states(dask_scheduler, keys, wanted["executing"])
        busy = [str(task["worker"]) for task in known["tasks"] if task["awaited"]]
        gone = [str(message["worker"]) for _, message, _ in lost["some"]] if lost else []
        there = await workers(dask_scheduler, [*addresses, *busy], set(map(host_of, [*addresses, *gone])))
        reply = {
            "events": {topic: await packed(entries) for topic, entries in found.items()},
            "log": None if records is None else await packed(records),
            **known,
            **there,
            "workers": await packed(there["workers"].items()),
            "removals": lost,
            "now": time(),
            **await versions(dask_scheduler, wanted["settings"]),
        }
        await sleep(0)
        pickled: bytes = cast("Method", dumps)(reply)  # Dask serializes a dictionary value by value, in 5 ms
        return pickled

    return workerdiag_snapshot


def _topic_looker() -> Method:
    forget, topics_of = forgetter(), topics_reader()

    def workerdiag_looks_at_topic(topic: str, dask_scheduler: Scheduler) -> tuple[object, ...]:
        forget(dask_scheduler)
        topics = topics_of(dask_scheduler)
        if topics is not None and topic not in topics:
            return ()
        return tuple(dask_scheduler.get_events(topic=topic))

    return workerdiag_looks_at_topic


def _log_function() -> Method:
    begin, handler_of = pauses(), log_handler_reader()

    async def log(scheduler: Scheduler, records: int) -> list[tuple[float, str, str]] | None:
        """Return the last log records, newest first, like the scheduler's ``logs`` handler; None without a log."""
        handler = handler_of(scheduler)
        if handler is None:
            return None
        pause, found = begin(), []
        for each in list(handler.deque)[-records:]:
            found.append((each.created, each.levelname, handler.format(each)[:16384]))
            await pause()
        return found[::-1]

    return log
