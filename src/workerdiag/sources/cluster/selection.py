"""Selects the workers that died recently and the nannies that may know why, without any I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from attrs import evolve, frozen

from workerdiag.model.dask import Reply
from workerdiag.model.identity import Identity
from workerdiag.model.process_end import RECENT_S
from workerdiag.model.stop_reasons import is_dask_stop_request
from workerdiag.sources.addresses import host_of, identity_of
from workerdiag.sources.cluster.health import heartbeat_interval_s, is_healthy

#: A topic with this many events may have dropped earlier ones (``low-level-log-length``).
_FULL_TOPIC = 1000
#: A worker that leaves at most this many seconds after it joined failed on what the scheduler sent it.
SHORT_LIFE_S = 2.0
MAX_DEAD = 8
MAX_NANNIES = 4
_MAX_EVENTS = 100
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


def find_removals(entries: TimedEvents) -> list[Removal]:
    """Return the removals among the events of the topic ``all``, newest first."""
    found = [
        Removal(
            worker=str(message.get("worker")),
            when=when,
            expected=bool(message.get("expected")),
            tasks=frozenset(message.get("processing-tasks") or ()),
        )
        for when, message in with_action(entries, "remove-worker")
    ]
    return sorted(found, key=lambda each: each.when, reverse=True)


def recent_removals(entries: TimedEvents, *, since: float, asked_to_close: Collection[str]) -> list[Removal]:
    """Return the removals after *since*; those of workers in *asked_to_close* count as expected."""
    return [
        evolve(each, expected=each.expected or each.worker in asked_to_close)
        for each in find_removals(entries)
        if each.when >= since
    ]


def last_noted(workers: Mapping[str, Reply], entries: TimedEvents) -> float:
    """Return the time of the latest heartbeat or event, by the scheduler's clock; 0.0 without any."""
    last_seen = [worker.get("last_seen") for worker in workers.values()]
    return max(
        [*(float(each) for each in last_seen if each), *(when for when, _ in entries[-1:])], default=0.0
    )


def relevant_since(gone: Sequence[Removal], about: Sequence[Identity], *, now: float) -> float:
    """Return the time before which events cannot belong to the removals in question, or to the present."""
    in_question = {each.worker for each in about}
    return min([now, *(each.when for each in gone if each.worker in in_question)]) - RECENT_S


def count_left_at_once(entries: TimedEvents, gone: Sequence[Removal]) -> int:
    """Return how many unexpected removals in *gone* are of workers that had just joined."""
    came = _joined(entries)
    return sum(
        not each.expected and 0 <= each.when - came.get(each.worker, float("-inf")) <= SHORT_LIFE_S
        for each in gone
    )


def was_asked_to_close(entries: TimedEvents) -> bool:
    """Whether a worker's own topic says that the worker was asked to close."""
    return any(
        is_dask_stop_request(str(message.get("reason")))
        for _, message in with_action(entries, "closing-worker")
    )


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
    return entries[-_MAX_EVENTS:]


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
    if len(matching) <= _MAX_EVENTS:
        return matching
    half = _MAX_EVENTS // 2
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
        fields = {
            "status": worker.get("status"),
            "memory_bytes": (worker.get("metrics") or {}).get("memory"),
            "limit_bytes": worker.get("memory_limit"),
        }
        return (
            host_of(address) not in hosts,
            joined.get(address, 0.0) < first_lost,
            is_healthy(fields, interval_s=interval_s),
        )

    if unclear or not dead:
        found = (workers[each].get("nanny") for each in sorted(workers, key=rank))
        nannies |= dict.fromkeys(each for each in found if isinstance(each, str))
    return list(nannies)[:MAX_NANNIES]


def _joined(entries: TimedEvents) -> dict[object, float]:
    """Return when each worker joined, by address."""
    return {message.get("worker"): when for when, message in with_action(entries, "add-worker")}


def with_action(entries: TimedEvents, *actions: str) -> Iterator[tuple[float, Reply]]:
    """Yield the *entries* with one of these actions."""
    for when, message in entries:
        if isinstance(message, Mapping) and message.get("action") in actions:
            yield when, message
