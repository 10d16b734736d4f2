"""The workers that were lost: how many, which died recently, and which nannies may know why; without any I/O.

The topic ``all`` holds a thousand events, so it has only the last of ten thousand losses. Each worker also
has its own topic, which the scheduler keeps for an hour: a function inside the scheduler counts those.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from attrs import evolve, frozen

from workerdiag.model.dask import Method, Reply, Scheduler
from workerdiag.model.identity import Identity, host_of, identity_of
from workerdiag.model.normalize import EventValue
from workerdiag.model.process_end import RECENT_S
from workerdiag.model.stop_reasons import DASK_REQUESTS, DEFAULT_REASON, is_dask_stop_request
from workerdiag.sources.cluster.scheduler_functions import pauses
from workerdiag.sources.internals import topics_reader

#: At most this many of the first and of the last removals are returned.
MAX_PER_END = 50
#: At most this many events are read of one worker's topic, and of all topics together.
_MAX_EVENTS_OF_ONE, _MAX_EVENTS = 50, 500_000
#: A lost worker with more tasks than this is not asked about one by one.
_MAX_FATES = 1000
#: Maximum number of distinct kinds of removals; times in reasons are stripped first.
_MAX_KINDS = 100
#: When a worker was removed, whether expected, its close reason, when it had joined, and the event.
_RemovalInTopic = tuple[float, bool, str, float, dict[str, Any]]


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
    #: How many of them had joined after another of them was lost: they had taken its place.
    replacements: int = 0
    #: How many finished results were lost with them.
    results: int = 0
    #: When the last of them was lost, by the scheduler's clock; None without one.
    last_when: float | None = None
    #: Threads of one of them, at most; None if not known.
    threads: int | None = None


def count_losses(snapshot: Reply, entries: TimedEvents, *, since: float, asked_to_close: Collection[str]) -> Losses:
    """Return the losses counted inside the scheduler, or else those after *since* in the topic ``all``.

    *asked_to_close* are addresses of workers that announced that they were asked to close.
    """
    if removals := snapshot.get("removals"):
        return losses_in_snapshot(removals)
    lost = recent_removals(entries, since=since, asked_to_close=asked_to_close)
    return losses_in_events(lost, entries, is_lower_bound=may_lack_events(entries, since=since))


def losses_in_snapshot(removals: Reply) -> Losses:
    """Return the losses counted inside the scheduler (`removals_reader`)."""
    unexpected = (kind[1:] for kind in removals["kinds"] if not kind[0])
    lost = [numbers for reason, *numbers in unexpected if not is_dask_stop_request(reason)]
    return _losses(
        sum(int(number) for number, *_ in lost),
        [when for _, _, first, last, *_ in lost for when in (first, last)],
        left_at_once=sum(int(brief) for _, brief, *_ in lost),
        is_lower_bound=not removals["whole"],
        replacements=sum(int(each[4]) for each in lost),
        results=sum(int(each[5]) for each in lost),
        threads=removals["threads"] or None,
    )


def losses_in_events(removals: Sequence[Removal], entries: TimedEvents, *, is_lower_bound: bool) -> Losses:
    """Return the losses among *removals*; *entries* of the topic ``all`` also show when workers joined."""
    lost = [each for each in removals if not each.expected]
    came, first = _joined(entries), min((each.when for each in lost), default=0.0)
    return _losses(
        len(lost),
        [each.when for each in lost],
        left_at_once=count_left_at_once(entries, lost),
        is_lower_bound=is_lower_bound,
        replacements=sum(first < came.get(each.worker, first) <= each.when for each in lost),
        results=sum(each.lost_results for each in lost),
    )


def _losses(count: int, moments: Sequence[float], **numbers: Any) -> Losses:
    within_s = round(max(moments) - min(moments), 1) if count > 1 else None
    return Losses(count=count, within_s=within_s, last_when=max(moments, default=None), **numbers)


def removals_reader(cut: Method) -> Method:
    """Return a function for ``since``, ``kinds`` (counts by reason), ``some`` (first and last) and ``whole``.

    The function runs inside the scheduler. It is nested, so it is pickled by value. *cut* truncates an event
    (`event_cutter`).
    """
    begin, of_topic, topics_of, fate = pauses(), _topic_reader(), topics_reader(), _fate_reader()
    per_end, most_events, most_kinds = MAX_PER_END, _MAX_EVENTS, _MAX_KINDS
    short_life_s, requests, default_reason = SHORT_LIFE_S, DASK_REQUESTS, DEFAULT_REASON

    def last_noted(scheduler: Scheduler, noted: Sequence[tuple[float, object]]) -> float:
        heard = (each.last_seen for each in scheduler.workers.values())
        return float(max([*heard, *(when for when, _ in [*noted][-1:])], default=0.0))

    def count(kinds: dict[tuple[bool, str], list[float]], removal: _RemovalInTopic, begun: float) -> None:
        when, expected, reason, came, message = removal
        key = (expected, reason if len(kinds) < most_kinds else "")
        number, brief, first, last, replacements, results = kinds.get(key, (0, 0, when, when, 0, 0))
        kinds[key] = [
            number + 1,
            brief + (when - came <= short_life_s),
            min(first, when),
            max(last, when),
            replacements + (came > begun),
            results + len(message.get("lost-computed-tasks") or ()),
        ]

    def threads_of_removed(scheduler: Scheduler) -> int:
        """Return how many threads went with one worker, at most: the scheduler forgets the worker itself."""
        from itertools import islice, pairwise

        totals = [total for _, total in islice(reversed(getattr(scheduler, "total_nthreads_history", ())), 200)]
        return max((before - after for after, before in pairwise(totals)), default=0)

    def is_loss(removal: _RemovalInTopic) -> bool:
        is_asked = removal[2] != default_reason and removal[2].startswith(requests)
        return not removal[1] and not is_asked

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
        gone_since: list[tuple[str, _RemovalInTopic]] = []
        left = most_events
        for name in [each for each in topics if "://" in each]:
            if left <= 0:
                break
            topic = topics.get(name)
            left -= 1 if topic is None else len(topic.events)
            of_this = () if topic is None else of_topic(topic.events)
            gone_since += ((name, removal) for removal in of_this if removal[0] >= since)
            await pause()
        begun = min((removal[0] for _, removal in gone_since if is_loss(removal)), default=float("inf"))
        for _, removal in gone_since:
            count(kinds, removal, begun)
            await pause()
        found = [(removal[0], name, removal[4]) for name, removal in gone_since if not removal[1]]
        found.sort(key=lambda each: each[0])
        some = found if len(found) <= 2 * per_end else [*found[:per_end], *found[-per_end:]]
        return {
            "since": since,
            "kinds": [(*key, *numbers) for key, numbers in kinds.items()],
            "some": [(when, *cut({**message, "worker": name}, keys, 20)) for when, name, message in some],
            "fates": [(name, *await fate(scheduler, message)) for _, name, message in some],
            "whole": left > 0,
            "threads": threads_of_removed(scheduler),
        }

    return removals


def _fate_reader() -> Method:
    begin, most = pauses(), _MAX_FATES

    async def fate(scheduler: Scheduler, message: dict[str, object]) -> tuple[int, int | None]:
        """Return how many tasks a lost worker had, and how many of them are still to be done; None if too many."""
        assigned = message.get("processing-tasks")
        if not isinstance(assigned, dict | list | tuple | set | frozenset) or len(assigned) > most:
            return len(assigned) if isinstance(assigned, dict) else 0, None
        pause, unfinished = begin(), 0
        for key in assigned:
            task = scheduler.tasks.get(key)
            if task is not None and task.state not in ("memory", "forgotten"):
                unfinished += task.state != "released" or bool(task.waiters or task.who_wants)
            await pause()
        return len(assigned), unfinished

    return fate


def _topic_reader() -> Method:
    most = _MAX_EVENTS_OF_ONE

    def of_topic(events: deque[tuple[float, Any]]) -> Iterable[_RemovalInTopic]:
        """Yield the removals in a worker's own topic."""
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
                yield when, bool(message.get("expected")), reason, came, message

    return of_topic


#: A topic with this many events may have dropped earlier ones (``low-level-log-length``).
_FULL_TOPIC = 1000
#: A worker that leaves at most this many seconds after it joined failed on what the scheduler sent it.
SHORT_LIFE_S = 2.0
MAX_DEAD = 8
MAX_NANNIES = 4
_MAX_KEPT_EVENTS = 100
#: Actions in the topic ``all`` that report ends of workers (scheduler.py, worker.py; 2024.8.1 to 2026.8.0).
_ACTIONS = ("remove-worker", "closing-worker", "restart-workers", "retire-workers", "worker-status-change")

TimedEvents = Sequence[tuple[float, object]]


@frozen(kw_only=True)
class Removal:
    """The scheduler's removal of one worker."""

    worker: str
    when: float
    expected: bool
    tasks: frozenset[object]
    lost_results: int = 0


def find_removals(entries: TimedEvents) -> list[Removal]:
    """Return the removals among the events of the topic ``all``, newest first."""
    found = [
        Removal(
            worker=str(message.get("worker")),
            when=when,
            expected=bool(message.get("expected")),
            tasks=frozenset(message.get("processing-tasks") or ()),
            lost_results=_whole_size(message.get("lost-computed-tasks") or ()),
        )
        for when, message in with_action(entries, "remove-worker")
    ]
    return sorted(found, key=lambda each: each.when, reverse=True)


def recent_removals(entries: TimedEvents, *, since: float, asked_to_close: Collection[str]) -> list[Removal]:
    """Return the removals after *since*; those of workers in *asked_to_close* count as expected."""
    recent = (each for each in find_removals(entries) if each.when >= since)
    return [evolve(each, expected=each.expected or each.worker in asked_to_close) for each in recent]


def last_noted(workers: Mapping[str, Reply], entries: TimedEvents) -> float:
    """Return the time of the latest heartbeat or event, by the scheduler's clock; 0.0 without any."""
    last_seen = (worker.get("last_seen") for worker in workers.values())
    events = (when for when, _ in entries[-1:])
    return max([*(float(each) for each in last_seen if each), *events], default=0.0)


def relevant_since(gone: Sequence[Removal], about: Sequence[Identity], *, now: float) -> float:
    """Return the time before which events cannot belong to the removals in question, or to the present."""
    in_question = {each.worker for each in about}
    return min([now, *(each.when for each in gone if each.worker in in_question)]) - RECENT_S


def count_left_at_once(entries: TimedEvents, gone: Sequence[Removal]) -> int:
    """Return how many unexpected removals in *gone* are of workers that had just joined."""
    came = _joined(entries)
    return sum(
        not each.expected and 0 <= each.when - came.get(each.worker, float("-inf")) <= SHORT_LIFE_S for each in gone
    )


def was_asked_to_close(entries: TimedEvents) -> bool:
    """Whether a worker's own topic says that the worker was asked to close."""
    reasons = (str(message.get("reason")) for _, message in with_action(entries, "closing-worker"))
    return any(map(is_dask_stop_request, reasons))


def recently_dead(gone: Sequence[Removal], about: Sequence[Identity], *, now: float) -> list[Identity]:
    """Return the workers to ask about: those in question, then those lost recently, unexpected ones first.

    A worker that had the same task as one in question counts however long ago it was lost.
    """
    in_question = {each.worker for each in about}
    moment = max((each.when for each in gone if each.worker in in_question), default=now)
    tasks = frozenset().union(*(each.tasks for each in gone if each.worker in in_question))
    others = [
        each
        for each in gone
        if each.worker not in in_question
        and (each.when >= moment - RECENT_S or (not each.expected and each.tasks & tasks))
    ]
    others.sort(key=lambda each: (each.expected, -each.when))
    return [*about, *(identity_of(worker=each.worker) for each in others)][:MAX_DEAD]


def last_events(entries: TimedEvents) -> TimedEvents:
    """Return the last 100 events."""
    return entries[-_MAX_KEPT_EVENTS:]


def may_lack_events(entries: TimedEvents, *, since: float) -> bool:
    """Whether the topic may have dropped events after *since*."""
    return len(entries) >= _FULL_TOPIC and entries[0][0] > since


def relevant_events(entries: TimedEvents, dead: Collection[Identity], *, since: float) -> TimedEvents:
    """Return the first and last events that report ends, after *since* or of the *dead*; at most 100."""
    addresses = {each.worker for each in dead}
    matching = [
        (when, message)
        for when, message in with_action(entries, *_ACTIONS)
        if when >= since or message.get("worker") in addresses
    ]
    if len(matching) <= _MAX_KEPT_EVENTS:
        return matching
    half = _MAX_KEPT_EVENTS // 2
    return [*matching[:half], *matching[-half:]]


def recent_events(entries: TimedEvents, *, since: float) -> TimedEvents:
    """Return the last events after *since*, without those of graphs submitted without an error."""
    routine = {id(each) for _, each in with_action(entries, "update-graph") if each.get("status") == "OK"}
    return last_events([each for each in entries if each[0] >= since and id(each[1]) not in routine])


def select_nannies(dead: Sequence[Identity], workers: Mapping[str, Reply], entries: TimedEvents) -> list[str]:
    """Return at most four nanny addresses: those of the dead, or else of workers that may be their successors.

    A nanny outlives its worker and starts another one on the same host. So workers that joined there after
    a removal come first, then other workers of the host, then unhealthy ones, then any. A nanny that only
    an exception names counts if the scheduler knows, or knew, workers on its host.
    """
    heard_from = [str(message.get("worker")) for _, message in entries if isinstance(message, Mapping)]
    known_hosts = {host_of(each) for each in (*workers, *heard_from)} - {None}
    nannies = dict.fromkeys(each.nanny for each in dead if each.nanny and host_of(each.nanny) in known_hosts)
    unclear = [each for each in dead if each.nanny not in nannies]
    hosts = {host_of(each.worker) for each in unclear}
    joined = _joined(entries)
    first_lost = min((each.when for each in find_removals(entries)), default=float("inf"))
    interval_s = heartbeat_interval_s(len(workers))

    def rank(address: str) -> tuple[bool, bool, bool]:
        worker = workers[address]
        memory, limit = (worker.get("metrics") or {}).get("memory"), worker.get("memory_limit")
        fields = {"status": worker.get("status"), "memory_bytes": memory, "limit_bytes": limit}
        joined_before = joined.get(address, 0.0) < first_lost
        return host_of(address) not in hosts, joined_before, is_healthy(fields, interval_s=interval_s)

    if unclear or not dead:
        found = (workers[each].get("nanny") for each in sorted(workers, key=rank))
        nannies |= dict.fromkeys(each for each in found if isinstance(each, str))
    return list(nannies)[:MAX_NANNIES]


def _whole_size(members: Collection[object]) -> int:
    return getattr(members, "whole", len(members))


def _joined(entries: TimedEvents) -> dict[object, float]:
    return {message.get("worker"): when for when, message in with_action(entries, "add-worker")}


def with_action(entries: TimedEvents, *actions: str) -> Iterator[tuple[float, Reply]]:
    """Yield the *entries* with one of these actions."""
    for when, message in entries:
        if isinstance(message, Mapping) and message.get("action") in actions:
            yield when, message


def is_healthy(fields: Mapping[str, EventValue], *, interval_s: float) -> bool:
    """Whether a worker is running, below 70 % of its memory limit, and has sent a heartbeat recently."""
    memory, limit = fields.get("memory_bytes") or 0, fields.get("limit_bytes") or 0
    silent_s = fields.get("seconds_since_heartbeat") or 0.0
    full = bool(limit) and float(memory) > 0.7 * float(limit)
    return fields.get("status") == "running" and not full and float(silent_s) <= max(10.0, 5 * interval_s)


def heartbeat_interval_s(count: int) -> float:
    """Return the heartbeat interval in seconds among *count* workers (``heartbeat_interval`` in scheduler.py)."""
    if count <= 10:
        return 0.5
    if count < 50:
        return 1.0
    return 2.0 if count < 200 else count / 200 + 1
