"""Readers of a scheduler's events for the snapshot, cut to size.

The event of a worker lost with 100,000 tasks names them all. A snapshot carries at most 100 of them, and
fewer if there are a thousand such events. Each function here returns a nested function that runs on the
scheduler: nested functions are pickled by value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from workerdiag.model.dask import Method, Scheduler
from workerdiag.sources.cluster.scheduler_functions import pauses
from workerdiag.sources.internals import topics_reader

#: Time and message of an event, and the sizes of its truncated collections by field.
CutEvent = tuple[float, object, dict[str, int]]

#: The events of one topic carry at most this many collection members, newest event first; then one each.
MAX_MEMBERS_IN_ALL = 10_000


class EventRequest(TypedDict):
    """Which events to return, and how much of each."""

    keys: list[object]
    topics: list[str]
    most_members: int


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
            return type(value)(map(sendable, value))
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

    async def of_topic(scheduler: Scheduler, topic: str, wanted: EventRequest) -> list[CutEvent]:
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

    async def events(scheduler: Scheduler, wanted: EventRequest) -> dict[str, list[CutEvent]]:
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
