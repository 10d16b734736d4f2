"""Reads a scheduler's events, log, workers and tasks with one function, in place of a dozen requests."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from io import BytesIO
from typing import Any

from workerdiag.model.dask import Client, Reply
from workerdiag.sources.cluster.scheduler_functions import (
    CutEvent,
    SnapshotRequest,
    by_value,
    workerdiag_looks_at_all,
    workerdiag_looks_at_topic,
    workerdiag_looks_for_losses,
)


class TruncatedList(list[object]):
    """The first members of a larger collection."""

    def __init__(self, members: Sequence[object], whole: int) -> None:
        super().__init__(members)
        #: Size of the whole collection.
        self.whole = whole


async def take_snapshot(client: Client, wanted: SnapshotRequest) -> Reply:
    """Return what is *wanted*, by name, from a scheduler with our release of Python."""
    reply = pickle.loads(await client.run_on_scheduler(by_value(workerdiag_looks_at_all), wanted))  # noqa: S301  trusted
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
    found = await client.run_on_scheduler(by_value(workerdiag_looks_at_topic), topic)
    return [(float(when), message) for when, message in found]


async def count_recent_losses(client: Client) -> int:
    """Return how many unexpected removals the last thousand events have, of a scheduler with our release of Python.

    It takes the scheduler less than a millisecond.
    """
    return int(await client.run_on_scheduler(by_value(workerdiag_looks_for_losses)))


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
