"""
One look inside a scheduler, in place of a dozen questions: its events, log, workers and tasks, cut to size.

It runs on the scheduler's event loop, which has a whole cluster to serve: so it rests after each ms of
work, packs its answer piece by piece, and brings no more than is worth telling. An event of a worker that was
lost with 100,000 tasks names them all; 100 are brought.

A scheduler notes each function that it runs, with its code, among the last thousand events of ``all``. The
look takes our own notes out, so that asking often does not push out what the scheduler remembers.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Mapping, Sequence
from io import BytesIO
from typing import Any, TypedDict

from workerdiag.model.dask import Client, Method, Reply, Scheduler
from workerdiag.sources.cluster.environment import SETTINGS
from workerdiag.sources.cluster.snapshot_readers import (
    packer,
    pauses,
    states_reader,
    versions_reader,
    workers_reader,
)

#: Time and message of an event, and how many members its long collections have.
CutEvent = tuple[float, object, dict[str, int]]


class SnapshotRequest(TypedDict):
    """
    What a snapshot is to hold.
    """

    keys: list[object]
    executing: list[object]
    topics: list[str]
    records: int
    settings: tuple[str, ...]
    most_members: int


#: Of the tasks of a worker that was lost, so many are brought; of other collections as many as are told.
MAX_MEMBERS = 100


class TruncatedList(list[object]):
    """
    The first members of a collection that has more.
    """

    def __init__(self, members: Sequence[object], whole: int) -> None:
        super().__init__(members)
        #: How many the collection has.
        self.whole = whole


async def take_snapshot(
    client: Client,
    *,
    keys: Collection[object],
    executing: Collection[object] = (),
    topics: Collection[str],
    records: int,
) -> Reply:
    """
    Everything that `_looker` brings, by name.

    Args:
        client: Of a scheduler that runs our release of Python (`tasks.same_python`).
        keys: Tasks to look up that the client waits for.
        executing: Tasks to look up that were executing when a worker was lost.
        topics: Topics whose events to bring, beside those of the workers that were lost last.
        records: How many records of its log.
    """
    wanted: SnapshotRequest = {
        "keys": list(keys),
        "executing": list(executing),
        "topics": list(topics),
        "records": records,
        "settings": SETTINGS,
        "most_members": MAX_MEMBERS,
    }
    return _unpacked(await client.run_on_scheduler(_snapshot_function(), wanted))


def _unpacked(reply: Reply) -> Reply:
    """
    The answer, of which the long parts are pickles one after the other.
    """
    return {
        **reply,
        "events": {topic: _unpickled(packed) for topic, packed in reply["events"].items()},
        "log": None if reply["log"] is None else _unpickled(reply["log"]),
        "workers": dict(_unpickled(reply["workers"])),
    }


def _unpickled(packed: bytes) -> list[Any]:
    """
    The things that were pickled; they come from the scheduler, whose answers all are pickles.
    """
    found, file = [], BytesIO(packed)
    while file.tell() < len(packed):
        found.append(pickle.load(file))  # noqa: S301  as said
    return found


async def look_at_topic(client: Client, topic: str) -> list[tuple[float, object]]:
    """
    The events of one topic, whole; unlike a question for them, this does not make the topic.
    """
    return [(float(when), message) for when, message in await client.run_on_scheduler(_topic_looker(), topic)]


def snapshot_events(snapshot: Reply, topic: str) -> list[tuple[float, object]] | None:
    """
    The events of a topic; None if the look did not bring them.
    """
    found = snapshot.get("events", {}).get(topic)
    if found is None:
        return None
    return [(float(when), _restore_counts(message, counts)) for when, message, counts in found]


def _restore_counts(message: object, counts: Mapping[str, int]) -> object:
    if not counts or not isinstance(message, dict):
        return message
    return {key: TruncatedList(each, counts[key]) if key in counts else each for key, each in message.items()}


def _snapshot_function() -> Method:
    """
    The function that looks: nested, as all that it calls, so that the scheduler needs no workerdiag.
    """
    forget, events, log = _forgetter(), _events_function(), _log_function()
    states, workers, versions = states_reader(), workers_reader(), versions_reader()
    packed = packer()

    async def workerdiag_snapshot(wanted: SnapshotRequest, dask_scheduler: object = None) -> Reply:
        from time import time

        forget(dask_scheduler)
        found, records = await events(dask_scheduler, wanted), await log(dask_scheduler, wanted["records"])
        return {
            "events": {topic: await packed(entries) for topic, entries in found.items()},
            "log": None if records is None else await packed(records),
            **await states(dask_scheduler, wanted["keys"], wanted["executing"]),
            "workers": await packed((await workers(dask_scheduler)).items()),
            "now": time(),
            **await versions(dask_scheduler, wanted["settings"]),
        }

    return workerdiag_snapshot


def _topic_looker() -> Method:
    forget = _forgetter()

    def workerdiag_looks_at_topic(topic: str, dask_scheduler: Any = None) -> tuple[object, ...]:
        forget(dask_scheduler)
        topics = getattr(getattr(dask_scheduler, "_broker", None), "_topics", None)
        if topics is not None and topic not in topics:
            return ()
        return tuple(dask_scheduler.get_events(topic=topic))

    return workerdiag_looks_at_topic


def _forgetter() -> Callable[..., None]:
    def is_ours(message: object, *, most_bytes: int) -> bool:
        """
        Whether an event notes a look of ours, or a probe (``sources/host/asking.py``), which is short.
        """
        if not isinstance(message, dict) or message.get("action") != "run-function":
            return False
        function = message.get("function")
        if not isinstance(function, bytes) or len(function) > most_bytes:
            return False
        return b"workerdiag_looks" in function or b"asyncio.threads" in function

    def forget(scheduler: Scheduler) -> None:
        """
        Take the note of this very look out of the events, and those of earlier probes.
        """
        topics: Reply = getattr(getattr(scheduler, "_broker", None), "_topics", None) or {}
        noted: Any = getattr(topics.get("all"), "events", ())
        last = len(noted) - 1
        ours = [
            number
            for number, (_, message) in enumerate(noted)
            if is_ours(message, most_bytes=100_000 if number == last else 200)
        ]
        for number in reversed(ours):
            del noted[number]
        if last in ours and hasattr(topics["all"], "count"):
            topics["all"].count -= 1  # whoever counts the events has not seen this one yet

    return forget


def _truncate_function() -> Method:
    def sendable(value: object) -> object:
        """
        The value, with the address or name of each thing in it that only the scheduler has.

        ``Client.replicate`` and ``scatter(broadcast=True)`` put states of workers into the events, which
        cannot be pickled: the scheduler would close the connection in place of an answer.
        """
        if isinstance(value, str | bytes | int | float | None):
            return value
        if isinstance(value, dict):
            return {key: sendable(each) for key, each in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return type(value)(map(sendable, value))
        return str(getattr(value, "address", value))[:200]

    def cut(message: object, keys: Sequence[object], most: int) -> tuple[object, dict[str, int]]:
        """
        The message without most of long collections, and how long they were; tasks in question come first.

        Of other collections than a lost worker's tasks 20 members are brought, as many as evidence names.
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
        return sendable(truncated), counts

    return cut


def _events_function() -> Method:
    cut, begin = _truncate_function(), pauses()

    async def of_topic(scheduler: Scheduler, topic: str, wanted: SnapshotRequest) -> list[CutEvent]:
        topics = getattr(getattr(scheduler, "_broker", None), "_topics", None)
        if topics is not None and topic not in topics:
            return []  # asking for it would make it
        pause = begin()
        found: list[CutEvent] = []
        for when, message in scheduler.get_events(topic=topic):
            truncated, counts = cut(message, wanted["keys"], wanted["most_members"])
            found.append((when, truncated, counts))
            await pause()
        return found

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


def _log_function() -> Method:
    begin = pauses()

    async def log(scheduler: Scheduler, records: int) -> list[tuple[float, str, str]] | None:
        """
        Its last records, newest first, as its handler ``logs`` gives them; None if it keeps none.
        """
        handler = getattr(scheduler, "_deque_handler", None)
        if handler is None:
            return None
        pause, found = begin(), []
        for each in list(handler.deque)[-records:]:
            found.append((each.created, each.levelname, handler.format(each)[:16384]))
            await pause()
        return found[::-1]

    return log
