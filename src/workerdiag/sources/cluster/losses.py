"""The workers that were lost: how many, which died recently, and which nannies may know why; without any I/O.

The topic ``all`` holds a thousand events, so it has only the last of ten thousand losses: a function inside the
scheduler counts all of the last hour.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from workerdiag.model.dask import Reply
from workerdiag.model.identity import Identity, host_of, identity_of
from workerdiag.model.normalize import EventValue
from workerdiag.model.process_end import RECENT_S
from workerdiag.model.stop_reasons import is_dask_stop_request
from workerdiag.sources.cluster.scheduler_functions import SHORT_LIFE_S
from workerdiag.values import evolve, frozen


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
    recent = [each for each in find_removals(entries) if each.when >= since]
    lost = [evolve(each, expected=each.expected or each.worker in asked_to_close) for each in recent]
    return losses_in_events(lost, entries, is_lower_bound=may_lack_events(entries, since=since))


def losses_in_snapshot(removals: Reply) -> Losses:
    """Return the losses counted inside the scheduler (`scheduler_functions.removals`)."""
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
            lost_results=getattr(results, "whole", len(results)),
        )
        for when, message in with_action(entries, "remove-worker")
        for results in [message.get("lost-computed-tasks") or ()]
    ]
    return sorted(found, key=lambda each: each.when, reverse=True)


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
    return [*about, *(identity_of(worker=each.worker) for each in others)][:8]


def may_lack_events(entries: TimedEvents, *, since: float) -> bool:
    """Whether the topic may have dropped events after *since*."""
    return len(entries) >= 1000 and entries[0][0] > since  # ``low-level-log-length``


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
    return [each for each in entries if each[0] >= since and id(each[1]) not in routine][-_MAX_KEPT_EVENTS:]


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
