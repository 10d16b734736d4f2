"""Reads a scheduler's events, log, workers and tasks with one function, in place of a dozen requests.

The function runs on the scheduler's event loop, which serves the whole cluster. So it yields to the loop
after each ms of work, pickles its answer piece by piece, and cuts events to size: that of a worker lost with
100,000 tasks names them all, and the answer carries at most 100 of them, and fewer if there are a thousand
such events. The functions that run there are nested in others, so that they are pickled by value.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterable, Sequence
from io import BytesIO
from typing import Any, TypedDict, cast

from workerdiag.model.dask import Client, Method, Reply, Scheduler
from workerdiag.model.process_end import RECENT_S
from workerdiag.sources.cluster.losses import removals_reader
from workerdiag.sources.cluster.scheduler_functions import forgetter, packer, pauses
from workerdiag.sources.cluster.state import states_reader
from workerdiag.sources.cluster.synchronization import contention_reader
from workerdiag.sources.cluster.task_needs import needs_reader
from workerdiag.sources.cluster.workers import SETTINGS, versions_reader, workers_reader
from workerdiag.sources.internals import log_handler_reader, topics_reader


class SnapshotRequest(TypedDict):
    """What a snapshot should hold."""

    keys: list[object]
    executing: list[object]
    tasks: list[object]
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


async def take_snapshot(  # noqa: PLR0913  what a snapshot should hold
    client: Client,
    *,
    keys: Collection[object],
    executing: Collection[object] = (),
    tasks: Collection[object] = (),
    addresses: Collection[str] = (),
    topics: Collection[str],
    records: int,
) -> Reply:
    """Return what `_snapshot_function` reads, by name, from a scheduler with our release of Python.

    Args:
        client: A client of that scheduler.
        keys: Keys of tasks that the client waits for.
        executing: Keys of tasks that were executing when a worker was lost.
        tasks: Keys of the tasks that the exception names.
        addresses: The workers in question.
        topics: Event topics in addition to those of the workers in question and of the latest lost ones.
        records: Number of log records.
    """
    wanted: SnapshotRequest = {
        "keys": list(keys),
        "executing": list(executing),
        "tasks": list(tasks),
        "addresses": list(addresses),
        "recent_s": RECENT_S,
        "topics": [*topics, *addresses],
        "records": records,
        "settings": SETTINGS,
        "most_members": MAX_MEMBERS,
    }
    reply = pickle.loads(await client.run_on_scheduler(_snapshot_function(), wanted))  # noqa: S301  trusted
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


async def count_recent_losses(client: Client) -> int:
    """Return how many unexpected removals the last thousand events have, of a scheduler with our release of Python.

    It takes the scheduler less than a millisecond.
    """
    return int(await client.run_on_scheduler(_loss_counter()))


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
    restored = []
    for when, message, counts in found:
        whole = message
        if counts and isinstance(message, dict):
            whole = {**message, **{key: TruncatedList(message[key], counts[key]) for key in counts}}
        restored.append((float(when), whole))
    return restored


def _snapshot_function() -> Method:
    """Return the snapshot function; it and its helpers are nested, so the scheduler needs no workerdiag."""
    forget, events, log = forgetter(), events_reader(), _log_function()
    states, workers, versions = states_reader(), workers_reader(), versions_reader()
    removals, packed, contention = removals_reader(event_cutter()), packer(), contention_reader()
    needs = needs_reader()

    def host_of(address: str) -> str:
        return address.rpartition(":")[0].rpartition("/")[2]

    async def workerdiag_snapshot(wanted: SnapshotRequest, dask_scheduler: object = None) -> bytes:
        from asyncio import sleep
        from contextlib import suppress
        from time import time

        from distributed.protocol.pickle import dumps

        forget(dask_scheduler)
        addresses, keys = wanted["addresses"], wanted["keys"]
        needed: list[dict[str, object]] = []
        with suppress(Exception):  # first, as failed tasks are forgotten soonest; the rest does not depend on it
            needed = await needs(dask_scheduler, [*wanted["tasks"], *wanted["executing"], *keys[:10]])
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
            "contention": await contention(dask_scheduler),
            "needs": needed,
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


def _loss_counter() -> Method:
    forget, topics_of = forgetter(), topics_reader()

    def workerdiag_looks_for_losses(dask_scheduler: Scheduler) -> int:
        forget(dask_scheduler)
        noted = getattr((topics_of(dask_scheduler) or {}).get("all"), "events", ())
        messages = (message for _, message in noted if isinstance(message, dict))
        return sum(each.get("action") == "remove-worker" and not each.get("expected") for each in messages)

    return workerdiag_looks_for_losses


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


#: Time and message of an event, and the sizes of its truncated collections by field.
CutEvent = tuple[float, object, dict[str, int]]

#: The events of one topic carry at most this many collection members, newest event first; then one each.
MAX_MEMBERS_IN_ALL = 10_000


def event_cutter() -> Method:
    """Return a function that truncates an event."""

    def sendable(value: object, most_chars: int = 500) -> object:
        """Return the value with its texts clipped, and scheduler objects replaced by their addresses or names.

        ``Client.replicate`` and ``scatter(broadcast=True)`` put worker states into events. Those cannot be
        pickled: the scheduler would close the connection instead of answering.
        """
        if isinstance(value, str | bytes):
            return value[:most_chars]
        if isinstance(value, int | float | None):
            return value
        if isinstance(value, dict):
            return {key: sendable(each) for key, each in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            # A tuple with names, of a transition log, takes its members one by one.
            return (tuple if isinstance(value, tuple) else type(value))(map(sendable, value))
        return str(getattr(value, "address", value))[:200]

    def cut(message: object, keys: Sequence[object], most: int) -> tuple[object, dict[str, int]]:
        """Return the message with long collections truncated, and their sizes; tasks in question come first.

        Only a lost worker's tasks may have more than 20 members, which is the number that evidence names.
        """
        from itertools import islice

        if not isinstance(message, dict):
            return message, {}
        truncated, counts = dict(message), {}
        for name, each in message.items():
            if isinstance(each, set | frozenset | list | tuple | dict) and len(each) > 20:
                named = [] if isinstance(each, list | tuple) else [key for key in keys if key in each]
                members = most if name == "processing-tasks" else min(most, 20)
                truncated[name] = list(dict.fromkeys([*named, *islice(each, members)]))[:members]
                counts[name] = len(each)
        return {name: sendable(each, 16384) for name, each in truncated.items()}, counts

    return cut


def events_reader() -> Method:
    """Return a function for events by topic: ``all``, the requested ones, and those of the latest lost workers."""
    cut, begin, topics_of = event_cutter(), pauses(), topics_reader()
    most_in_all = MAX_MEMBERS_IN_ALL

    async def of_topic(scheduler: Scheduler, topic: str, wanted: SnapshotRequest) -> list[CutEvent]:
        topics = topics_of(scheduler)
        if topics is not None and topic not in topics:
            return []  # get_events would create the topic
        pause = begin()
        found: list[CutEvent] = []
        left = most_in_all
        for when, message in reversed(scheduler.get_events(topic=topic)):
            most = wanted["most_members"] if left > 0 else 1
            truncated, counts = cut(message, wanted["keys"], most)
            left -= sum(min(most, each) for each in counts.values())
            found.append((when, truncated, counts))
            await pause()
        return found[::-1]

    async def events(scheduler: Scheduler, wanted: SnapshotRequest) -> dict[str, list[CutEvent]]:
        found = {"all": await of_topic(scheduler, "all", wanted)}
        lost = [
            str(message.get("worker"))
            for _, message, _ in reversed(found["all"])
            if isinstance(message, dict) and message.get("action") == "remove-worker"
        ]
        for topic in dict.fromkeys([*wanted["topics"], *lost[:8]]):
            found[topic] = await of_topic(scheduler, topic, wanted)
        return found

    return events
