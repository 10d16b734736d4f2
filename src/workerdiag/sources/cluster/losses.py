"""Counts the workers lost unexpectedly, inside the scheduler or from the events that it keeps.

The topic ``all`` holds a thousand events, so it has only the last of ten thousand losses. Each worker also
has its own topic, which the scheduler keeps for an hour: a function inside the scheduler counts those.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from attrs import frozen

from workerdiag.model.dask import Method, Reply, Scheduler
from workerdiag.model.stop_reasons import is_dask_stop_request
from workerdiag.sources.cluster.scheduler_functions import pauses
from workerdiag.sources.cluster.selection import (
    SHORT_LIFE_S,
    Removal,
    TimedEvents,
    count_left_at_once,
    may_lack_events,
    recent_removals,
)
from workerdiag.sources.internals import topics_reader

#: At most this many of the first and of the last removals are returned.
MAX_PER_END = 50
#: At most this many events are read of one worker's topic, and of all topics together.
_MAX_EVENTS_OF_ONE, _MAX_EVENTS = 50, 500_000
#: Maximum number of distinct kinds of removals; times in reasons are stripped first.
_MAX_KINDS = 100


@frozen(kw_only=True)
class Losses:
    """The workers lost unexpectedly during the relevant time."""

    count: int = 0
    #: Whether some removals may not have been counted.
    is_lower_bound: bool = False
    #: Seconds between the first and the last loss; None for fewer than two.
    within_s: float | None = None
    #: How many of them had joined at most `SHORT_LIFE_S` seconds before.
    left_at_once: int = 0


def count_losses(
    snapshot: Reply, entries: TimedEvents, *, since: float, asked_to_close: Collection[str]
) -> Losses:
    """Return the losses counted inside the scheduler, or else those in the events of the topic ``all``.

    Args:
        snapshot: The scheduler snapshot; empty without one.
        entries: Events of the topic ``all``.
        since: Earlier losses are irrelevant, in seconds since the epoch.
        asked_to_close: Addresses of workers that announced that they were asked to close.
    """
    if removals := snapshot.get("removals"):
        return losses_in_snapshot(removals)
    lost = recent_removals(entries, since=since, asked_to_close=asked_to_close)
    return losses_in_events(lost, entries, is_lower_bound=may_lack_events(entries, since=since))


def losses_in_snapshot(removals: Reply) -> Losses:
    """Return the losses counted inside the scheduler (`removals_reader`)."""
    lost = [
        numbers
        for expected, reason, *numbers in removals["kinds"]
        if not expected and not is_dask_stop_request(reason)
    ]
    return _losses(
        sum(int(number) for number, *_ in lost),
        [when for _, _, first, last in lost for when in (first, last)],
        left_at_once=sum(int(brief) for _, brief, _, _ in lost),
        is_lower_bound=not removals["whole"],
    )


def losses_in_events(removals: Sequence[Removal], entries: TimedEvents, *, is_lower_bound: bool) -> Losses:
    """Return the losses in the events of the topic ``all``.

    Args:
        removals: The removals of the relevant time.
        entries: The events, which also show when workers joined.
        is_lower_bound: Whether events may be missing.
    """
    lost = [each for each in removals if not each.expected]
    return _losses(
        len(lost),
        [each.when for each in lost],
        left_at_once=count_left_at_once(entries, lost),
        is_lower_bound=is_lower_bound,
    )


def _losses(count: int, moments: Sequence[float], *, left_at_once: int, is_lower_bound: bool) -> Losses:
    within_s = round(max(moments) - min(moments), 1) if count > 1 else None
    return Losses(count=count, is_lower_bound=is_lower_bound, within_s=within_s, left_at_once=left_at_once)


def removals_reader(cut: Method) -> Method:
    """Return a function for ``since``, ``kinds`` (counts by reason), ``some`` (first and last) and ``whole``.

    The function runs inside the scheduler. It is nested, so it is pickled by value.

    Args:
        cut: Truncates an event (`event_cutter`).
    """
    begin, of_topic, topics_of = pauses(), _topic_reader(), topics_reader()
    per_end, most_events, most_kinds = MAX_PER_END, _MAX_EVENTS, _MAX_KINDS

    def last_noted(scheduler: Scheduler, noted: Sequence[tuple[float, object]]) -> float:
        heard = (each.last_seen for each in scheduler.workers.values())
        return float(max([*heard, *(when for when, _ in [*noted][-1:])], default=0.0))

    def count(
        kinds: dict[tuple[bool, str], list[float]], removal: tuple[float, bool, str, bool, object]
    ) -> None:
        when, expected, reason, is_brief, _ = removal
        key = (expected, reason if len(kinds) < most_kinds else "")
        number, brief, first, last = kinds.get(key, (0, 0, when, when))
        kinds[key] = [number + 1, brief + is_brief, min(first, when), max(last, when)]

    async def removals(
        scheduler: Scheduler, addresses: list[str], recent_s: float, keys: list[object]
    ) -> dict[str, object] | None:
        topics = topics_of(scheduler)
        if topics is None:
            return None
        pause = begin()
        gone = [each[0] for name in addresses if name in topics for each in of_topic(topics[name].events)]
        noted = topics["all"].events if "all" in topics else ()
        since = min([last_noted(scheduler, noted), *gone]) - recent_s
        kinds: dict[tuple[bool, str], list[float]] = {}
        found: list[tuple[float, str, dict[str, object]]] = []
        left = most_events
        for name in [each for each in topics if "://" in each]:
            if left <= 0:
                break
            topic = topics.get(name)
            left -= 1 if topic is None else len(topic.events)
            for removal in () if topic is None else of_topic(topic.events):
                if removal[0] >= since:
                    count(kinds, removal)
                    if not removal[1]:
                        found.append((removal[0], name, removal[4]))
            await pause()
        found.sort(key=lambda each: each[0])
        some = found if len(found) <= 2 * per_end else [*found[:per_end], *found[-per_end:]]
        return {
            "since": since,
            "kinds": [(*key, *numbers) for key, numbers in kinds.items()],
            "some": [(when, *cut({**message, "worker": name}, keys, 20)) for when, name, message in some],
            "whole": left > 0,
        }

    return removals


def _topic_reader() -> Method:
    most = _MAX_EVENTS_OF_ONE
    short_life_s = SHORT_LIFE_S

    def of_topic(
        events: deque[tuple[float, Any]],
    ) -> Iterable[tuple[float, bool, str, bool, dict[str, object]]]:
        """Yield the removals in a worker's own topic: when, expected, close reason, whether brief, message."""
        from itertools import islice
        from re import sub

        reason, came = "", float("-inf")
        for when, message in [*islice(reversed(events), most)][::-1]:
            action = message.get("action") if isinstance(message, dict) else None
            if action == "add-worker":
                reason, came = "", when
            elif action == "closing-worker":
                reason = sub(r"-\d+(\.\d+)?$", "", str(message.get("reason"))[:100])
            elif action == "remove-worker":
                yield when, bool(message.get("expected")), reason, when - came <= short_life_s, message

    return of_topic
