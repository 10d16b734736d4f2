"""
Whom to ask about: which workers died lately, and which nannies may know why. Arithmetic only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from attrs import evolve, frozen

from workerdiag.model.dask import Reply
from workerdiag.model.identity import Identity
from workerdiag.model.process_end import RECENT_S
from workerdiag.model.stop_reasons import is_dask_stop_request
from workerdiag.sources.addresses import host_of, identity_of
from workerdiag.sources.cluster.health import heartbeat_interval_s, is_healthy

#: A topic that holds this many events may have let go of earlier ones (``low-level-log-length``).
_FULL_TOPIC = 1000
#: A worker that goes so soon after it came could not do with what it was sent, in seconds.
SHORT_LIFE_S = 2.0
MAX_DEAD = 8
MAX_NANNIES = 4
_MAX_EVENTS = 100
#: Actions in the topic ``all`` that tell of workers that end (scheduler.py, worker.py; 2024.8.1 to 2026.8.0).
_ACTIONS = ("remove-worker", "closing-worker", "restart-workers", "retire-workers", "worker-status-change")

TimedEvents = Sequence[tuple[float, object]]


@frozen(kw_only=True)
class Removal:
    """
    A worker that the scheduler let go of.
    """

    worker: str
    when: float
    expected: bool
    tasks: frozenset[object]


def find_removals(entries: TimedEvents) -> list[Removal]:
    """
    The removals among the events of the topic ``all``, newest first.
    """
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
    """
    The removals from then on; those of workers that were *asked_to_close* were expected.
    """
    return [
        evolve(each, expected=each.expected or each.worker in asked_to_close)
        for each in find_removals(entries)
        if each.when >= since
    ]


def last_noted(workers: Mapping[str, Reply], entries: TimedEvents) -> float:
    """
    The scheduler's clock at the last thing that it noted, in seconds since the epoch; 0.0 if there is none.
    """
    last_seen = [worker.get("last_seen") for worker in workers.values()]
    return max(
        [*(float(each) for each in last_seen if each), *(when for when, _ in entries[-1:])], default=0.0
    )


def relevant_since(gone: Sequence[Removal], about: Sequence[Identity], *, now: float) -> float:
    """
    From when on events may belong to the removal of the workers in question, or to what happens *now*.
    """
    in_question = {each.worker for each in about}
    return min([now, *(each.when for each in gone if each.worker in in_question)]) - RECENT_S


def count_left_at_once(entries: TimedEvents, gone: Sequence[Removal]) -> int:
    """
    How many of the workers that are *gone*, on nobody's order, had only just come.
    """
    came = _joined(entries)
    return sum(
        not each.expected and 0 <= each.when - came.get(each.worker, float("-inf")) <= SHORT_LIFE_S
        for each in gone
    )


def was_asked_to_close(entries: TimedEvents) -> bool:
    """
    Whether a worker, by the events of its own topic, announced that it closes on an order.
    """
    return any(
        is_dask_stop_request(str(message.get("reason")))
        for _, message in with_action(entries, "closing-worker")
    )


def recently_dead(gone: Sequence[Removal], about: Sequence[Identity], *, now: float) -> list[Identity]:
    """
    The workers to ask about: those in question, and those lost with them or lately, unexpected ones first.

    A worker counts as lost with another one, however long before, if both had the same task.
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
    """
    The last events, as many as are worth telling.
    """
    return entries[-_MAX_EVENTS:]


def may_lack_events(entries: TimedEvents, *, since: float) -> bool:
    """
    Whether events from then on may have been dropped for newer ones.
    """
    return len(entries) >= _FULL_TOPIC and entries[0][0] > since


def relevant_events(entries: TimedEvents, dead: Collection[Identity], *, since: float) -> TimedEvents:
    """
    The first and the last events that tell of ends, since then or of the workers in question.
    """
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
    """
    The last events since then, without those of graphs that were taken up well.
    """
    routine = {id(each) for _, each in with_action(entries, "update-graph") if each.get("status") == "OK"}
    return last_events([each for each in entries if each[0] >= since and id(each[1]) not in routine])


def select_nannies(dead: Sequence[Identity], workers: Mapping[str, Reply], entries: TimedEvents) -> list[str]:
    """
    Addresses of at most four nannies: of the dead, else of workers that look like their successors.

    A nanny outlives its worker and starts another one on the same host, so that comes first which
    joined after a removal there; then the host's others; then what is not well; then any. One that only an
    exception names is asked where the scheduler knows, or knew, workers on its host.
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
    """
    When each worker came, by address.
    """
    return {message.get("worker"): when for when, message in with_action(entries, "add-worker")}


def with_action(entries: TimedEvents, *actions: str) -> Iterator[tuple[float, Reply]]:
    """
    Those of the *entries* that note one of these actions.
    """
    for when, message in entries:
        if isinstance(message, Mapping) and message.get("action") in actions:
            yield when, message
