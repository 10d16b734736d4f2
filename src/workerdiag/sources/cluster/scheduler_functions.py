"""All functions that run inside a scheduler, on the event loop that serves the whole cluster.

They travel by value, so the scheduler needs no workerdiag, but our release of Python: byte code of another can
crash it. They yield to the loop after each ms of work, pickle a large answer piece by piece, and cut events to
size: that of a worker lost with 100,000 tasks names them all, and the answer carries at most 100 of them, and
fewer if there are a thousand such events.
"""

from __future__ import annotations

import sys
import time
from asyncio import sleep
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from heapq import nlargest, nsmallest
from itertools import islice, pairwise
from pickle import dumps
from re import sub
from sys import getsizeof
from typing import Any, TypedDict

from workerdiag.model.dask import Method, Scheduler, TaskPrefix, TaskState, Topic, WorkerState
from workerdiag.model.stop_reasons import DASK_REQUESTS, DEFAULT_REASON
from workerdiag.sources.internals import log_handler, parts_of, topics_reader, waiters_at_events, waiters_at_queue

topics_of = topics_reader()


def by_value(function: Method) -> Method:
    """Return *function* such that it is pickled by value, with what it uses of this module and of its own."""
    from distributed.protocol.pickle import cloudpickle  # type: ignore[attr-defined]

    for name in ("workerdiag.sources.internals", __name__, function.__module__):
        cloudpickle.register_pickle_by_value(sys.modules[name])
    return function


def _pauses() -> Method:
    def pauses() -> Callable[[], Awaitable[None]]:
        """Return a coroutine function to await after each item of a round of work: it lets others on after 1 ms."""
        begun = time.perf_counter()

        async def pause() -> None:
            nonlocal begun
            if time.perf_counter() - begun > 0.001:
                await sleep(0)
                begun = time.perf_counter()

        return pause

    return pauses


#: Nested, as `topics_of` is: the watcher sends both with functions of its own.
pauses = _pauses()


async def packed(things: Iterable[object]) -> bytes:
    """Pickle items one by one: pickling a large answer at once would block the loop."""
    pause, found = pauses(), []
    for each in things:
        found.append(dumps(each))
        await pause()
    return b"".join(found)


def host_in(address: str) -> str:
    """Return the host in a worker's address."""
    return address.rpartition(":")[0].rpartition("/")[2]


def forget(scheduler: Scheduler) -> None:
    """Remove the event of this call from the scheduler's events, and those of earlier probes.

    A scheduler logs each function that it runs, with its code, among the last thousand events of ``all``.
    Without removal, frequent requests would push out the events that matter.
    """
    topics = topics_of(scheduler) or {}
    noted: Any = getattr(topics.get("all"), "events", ())
    last = len(noted) - 1
    ours = [
        number
        for number, (_, message) in enumerate(noted)
        if _is_ours(message, most_bytes=100_000 if number == last else 200)
    ]
    for number in reversed(ours):
        del noted[number]
    if last in ours and hasattr(topics["all"], "count"):
        topics["all"].count -= 1  # no reader of the count has seen this event yet


def _is_ours(message: object, *, most_bytes: int) -> bool:
    """Whether an event logs a function of ours, or a probe (``sources/host/remote_call.py``, short code)."""
    if not isinstance(message, dict) or message.get("action") != "run-function":
        return False
    function = message.get("function")
    if not isinstance(function, bytes) or len(function) > most_bytes:
        return False
    return b"workerdiag_looks" in function or b"asyncio.threads" in function


class SnapshotRequest(TypedDict):
    """What a snapshot should hold."""

    #: Keys of tasks that the client waits for.
    keys: list[object]
    #: Keys of tasks that were executing when a worker was lost.
    executing: list[object]
    #: Keys of the tasks that the exception names.
    tasks: list[object]
    #: The workers in question.
    addresses: list[str]
    recent_s: float
    #: Event topics besides ``all`` and those of the latest lost workers.
    topics: list[str]
    #: Number of log records.
    records: int
    settings: tuple[str, ...]


async def workerdiag_looks_at_all(wanted: SnapshotRequest, dask_scheduler: Scheduler) -> bytes:
    """Return events, log, workers, tasks and settings as one pickle.

    Dask serializes a dictionary value by value, in 5 ms, and bytes as they are.
    """
    from distributed.protocol import pickle as dask_pickle

    forget(dask_scheduler)
    addresses, keys = wanted["addresses"], wanted["keys"]
    needed: list[dict[str, object]] = []
    with suppress(Exception):  # first, as failed tasks are forgotten soonest; the rest does not depend on it
        needed = await needs(dask_scheduler, [*wanted["tasks"], *wanted["executing"], *keys[:10]])
    found, records = await _events(dask_scheduler, wanted), await _log(dask_scheduler, wanted["records"])
    lost = await removals(dask_scheduler, addresses, wanted["recent_s"], keys)
    known = await _states(dask_scheduler, keys, wanted["executing"])
    busy = [str(task["worker"]) for task in known["tasks"] if task["awaited"]]
    gone = [str(message["worker"]) for _, message, _ in lost["some"]] if lost else []
    there = await _workers(dask_scheduler, [*addresses, *busy], set(map(host_in, [*addresses, *gone])))
    reply = {
        "events": {topic: await packed(entries) for topic, entries in found.items()},
        "log": None if records is None else await packed(records),
        **known,
        **there,
        "workers": await packed(there["workers"].items()),
        "removals": lost,
        "contention": await contention(dask_scheduler),
        "needs": needed,
        "now": time.time(),
        **await _versions(dask_scheduler, wanted["settings"]),
    }
    await sleep(0)
    pack: Method = dask_pickle.dumps
    pickled: bytes = pack(reply)
    return pickled


async def workerdiag_looks_at_workers(
    addresses: list[str], hosts: list[str], dask_scheduler: Scheduler
) -> dict[str, Any]:
    """Return ``workers`` by address, those of *addresses* and on *hosts* first, and counts of all."""
    forget(dask_scheduler)
    return await _workers(dask_scheduler, addresses, hosts)


def workerdiag_looks_at_topic(topic: str, dask_scheduler: Scheduler) -> tuple[object, ...]:
    """Return the events of one topic as they are, without creating it."""
    forget(dask_scheduler)
    topics = topics_of(dask_scheduler)
    if topics is not None and topic not in topics:
        return ()
    return tuple(dask_scheduler.get_events(topic=topic))


def workerdiag_looks_for_losses(dask_scheduler: Scheduler) -> int:
    """Return how many unexpected removals the topic ``all`` has, in less than a millisecond."""
    forget(dask_scheduler)
    noted = getattr((topics_of(dask_scheduler) or {}).get("all"), "events", ())
    messages = (message for _, message in noted if isinstance(message, dict))
    return sum(each.get("action") == "remove-worker" and not each.get("expected") for each in messages)


async def _log(scheduler: Scheduler, records: int) -> list[tuple[float, str, str]] | None:
    """Return the last log records, newest first, like the scheduler's ``logs`` handler; None without a log."""
    handler = log_handler(scheduler)
    if handler is None:
        return None
    pause, found = pauses(), []
    for each in list(handler.deque)[-records:]:
        found.append((each.created, each.levelname, handler.format(each)[:16384]))
        await pause()
    return found[::-1]


#: Time and message of an event, and the sizes of its truncated collections by field.
CutEvent = tuple[float, object, dict[str, int]]
#: At most this many tasks of a lost worker are returned; of other collections as many as evidence names.
MAX_MEMBERS = 100


async def _events(scheduler: Scheduler, wanted: SnapshotRequest) -> dict[str, list[CutEvent]]:
    """Return the events by topic: ``all``, the requested ones, and those of the latest lost workers."""
    found = {"all": await _events_of_topic(scheduler, "all", wanted["keys"])}
    lost = [
        str(message.get("worker"))
        for _, message, _ in reversed(found["all"])
        if isinstance(message, dict) and message.get("action") == "remove-worker"
    ]
    for topic in dict.fromkeys([*wanted["topics"], *lost[:8]]):
        found[topic] = await _events_of_topic(scheduler, topic, wanted["keys"])
    return found


async def _events_of_topic(scheduler: Scheduler, topic: str, keys: Sequence[object]) -> list[CutEvent]:
    topics = topics_of(scheduler)
    if topics is not None and topic not in topics:
        return []  # get_events would create the topic
    pause = pauses()
    found: list[CutEvent] = []
    left = 10_000  # members of collections in all, newest event first; then one each
    for when, message in reversed(scheduler.get_events(topic=topic)):
        most = MAX_MEMBERS if left > 0 else 1
        truncated, counts = cut(message, keys, most)
        left -= sum(min(most, each) for each in counts.values())
        found.append((when, truncated, counts))
        await pause()
    return found[::-1]


def cut(message: object, keys: Sequence[object], most: int) -> tuple[object, dict[str, int]]:
    """Return an event's message with long collections truncated, and their sizes; tasks in question come first.

    Only a lost worker's tasks may have more than 20 members, which is the number that evidence names.
    """
    if not isinstance(message, dict):
        return message, {}
    truncated, counts = dict(message), {}
    for name, each in message.items():
        if isinstance(each, set | frozenset | list | tuple | dict) and len(each) > 20:
            named = [] if isinstance(each, list | tuple) else [key for key in keys if key in each]
            members = most if name == "processing-tasks" else min(most, 20)
            truncated[name] = list(dict.fromkeys([*named, *islice(each, members)]))[:members]
            counts[name] = len(each)
    return {name: _sendable(each, 16384) for name, each in truncated.items()}, counts


def _sendable(value: object, most_chars: int = 500) -> object:
    """Return the value with its texts clipped, and scheduler objects replaced by their addresses or names.

    ``Client.replicate`` and ``scatter(broadcast=True)`` put worker states into events. Those cannot be
    pickled: the scheduler would close the connection instead of answering.
    """
    if isinstance(value, str | bytes):
        return value[:most_chars]
    if isinstance(value, int | float | None):
        return value
    if isinstance(value, dict):
        return {key: _sendable(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        # A tuple with names, of a transition log, takes its members one by one.
        return (tuple if isinstance(value, tuple) else type(value))(map(_sendable, value))
    return str(getattr(value, "address", value))[:200]


#: A worker that leaves at most this many seconds after it joined failed on what the scheduler sent it.
SHORT_LIFE_S = 2.0
#: When a worker was removed, whether expected, its close reason, when it had joined, and the event.
_RemovalInTopic = tuple[float, bool, str, float, dict[str, Any]]


async def removals(
    scheduler: Scheduler, addresses: list[str], recent_s: float, keys: list[object]
) -> dict[str, Any] | None:
    """Return ``kinds`` (counts by reason), ``some`` (the first and last 50) with their ``fates``, and ``whole``.

    Each worker has its own topic, which the scheduler keeps for an hour; ``all`` has only the last events.
    """
    topics = topics_of(scheduler)
    if topics is None:
        return None
    pause = pauses()
    gone = [each[0] for name in addresses if name in topics for each in _removals_in(topics[name])]
    noted = topics["all"].events if "all" in topics else ()
    since = min([_last_noted(scheduler, noted), *gone]) - recent_s
    gone_since: list[tuple[str, _RemovalInTopic]] = []
    left = 500_000  # events to read of all topics together
    for name in [each for each in topics if "://" in each]:
        if left <= 0:
            break
        if (topic := topics.get(name)) is not None:
            left -= len(topic.events)
            gone_since += ((name, removal) for removal in _removals_in(topic) if removal[0] >= since)
        await pause()
    begun = min((removal[0] for _, removal in gone_since if _is_loss(removal)), default=float("inf"))
    kinds: dict[tuple[bool, str], list[float]] = {}
    for _, removal in gone_since:
        _count(kinds, removal, begun)
        await pause()
    found = [(removal[0], name, removal[4]) for name, removal in gone_since if not removal[1]]
    found.sort(key=lambda each: each[0])
    some = found if len(found) <= 100 else [*found[:50], *found[-50:]]
    return {
        "kinds": [(*key, *numbers) for key, numbers in kinds.items()],
        "some": [(when, *cut({**message, "worker": name}, keys, 20)) for when, name, message in some],
        "fates": [(name, *await fate(scheduler, message)) for _, name, message in some],
        "whole": left > 0,
        "threads": _threads_of_removed(scheduler),
    }


def _removals_in(topic: Topic) -> Iterator[_RemovalInTopic]:
    """Yield the removals in a worker's own topic, of its last 50 events."""
    reason, came = "", float("-inf")
    for when, message in [*islice(reversed(topic.events), 50)][::-1]:
        action = message.get("action") if isinstance(message, dict) else None
        if action == "add-worker":
            reason, came = "", when
        elif action == "closing-worker":
            reason = sub(r"-\d+(\.\d+)?$", "", str(message.get("reason"))[:100])  # without the time
        elif action == "remove-worker":
            yield when, bool(message.get("expected")), reason, came, message


def _last_noted(scheduler: Scheduler, noted: Sequence[tuple[float, object]]) -> float:
    heard = (each.last_seen for each in scheduler.workers.values())
    return float(max([*heard, *(when for when, _ in [*noted][-1:])], default=0.0))


def _is_loss(removal: _RemovalInTopic) -> bool:
    is_asked = removal[2] != DEFAULT_REASON and removal[2].startswith(DASK_REQUESTS)
    return not removal[1] and not is_asked


def _count(kinds: dict[tuple[bool, str], list[float]], removal: _RemovalInTopic, begun: float) -> None:
    when, expected, reason, came, message = removal
    key = (expected, reason if len(kinds) < 100 else "")
    number, brief, first, last, replacements, results = kinds.get(key, (0, 0, when, when, 0, 0))
    kinds[key] = [
        number + 1,
        brief + (when - came <= SHORT_LIFE_S),
        min(first, when),
        max(last, when),
        replacements + (came > begun),
        results + len(message.get("lost-computed-tasks") or ()),
    ]


def _threads_of_removed(scheduler: Scheduler) -> int:
    """Return how many threads went with one worker, at most: the scheduler forgets the worker itself."""
    totals = [total for _, total in islice(reversed(getattr(scheduler, "total_nthreads_history", ())), 200)]
    return max((before - after for after, before in pairwise(totals)), default=0)


async def fate(scheduler: Scheduler, message: Mapping[str, object]) -> tuple[int, int | None]:
    """Return how many tasks a lost worker had, and how many of them are still to be done; None if too many."""
    assigned = message.get("processing-tasks")
    if not isinstance(assigned, dict | list | tuple | set | frozenset) or len(assigned) > 1000:
        return len(assigned) if isinstance(assigned, dict) else 0, None
    pause, unfinished = pauses(), 0
    for key in assigned:
        task = scheduler.tasks.get(key)
        if task is not None and task.state not in ("memory", "forgotten"):
            unfinished += task.state != "released" or bool(task.waiters or task.who_wants)
        await pause()
    return len(assigned), unfinished


#: At most this many workers are described. In a larger cluster at most 200 unhealthy ones, and as many on the
#: hosts in question, come first.
MAX_DESCRIBED = 500
#: A task's key is cut to this length in what a worker runs.
KEY_CHARS = 200


async def _workers(scheduler: Scheduler, addresses: Collection[str], hosts: Collection[str]) -> dict[str, Any]:
    """Return ``workers`` by address (identity, pid, tasks at the last heartbeat) and counts of all."""
    pause = pauses()
    everyone = list(scheduler.workers.values())
    running_count, is_any_executing = 0, False
    for each in everyone:
        running_count += each.status.name == "running"
        is_any_executing = is_any_executing or bool(each.executing)
        await pause()
    selected = everyone
    if len(everyone) > MAX_DESCRIBED:
        selected = await _select(everyone, frozenset(addresses), frozenset(hosts))
    found: dict[str, object] = {}
    for each in selected:
        found[each.address] = _describe_worker(each)
        await pause()
    return {
        "workers": found,
        "worker_count": len(everyone),
        "running_count": running_count,
        "is_any_executing": is_any_executing,
    }


async def _select(
    everyone: list[WorkerState], addresses: frozenset[str], hosts: frozenset[str]
) -> list[WorkerState]:
    """Return the workers in question, unhealthy ones (longest silent first), those on the hosts, others."""
    pause = pauses()
    newest = max(everyone, key=lambda each: each.last_seen)
    heard_since = newest.last_seen - max(10.0, 5 * (len(everyone) / 200 + 1))

    def kind(each: WorkerState) -> str:
        memory = each.metrics.get("memory") or 0
        is_full = bool(each.memory_limit) and memory > 0.7 * each.memory_limit
        if each.address in addresses:
            return "in question"
        if each.status.name != "running" or each.last_seen < heard_since or is_full:
            return "unwell"
        return "near" if host_in(each.address) in hosts else "well"

    kinds: dict[str, list[WorkerState]] = {}
    for each in (each for each in everyone if each is not newest):
        kinds.setdefault(kind(each), []).append(each)
        await pause()
    unwell = nsmallest(MAX_DESCRIBED, kinds.get("unwell", ()), key=lambda each: each.last_seen)
    near = kinds.get("near", [])
    first = [*kinds.get("in question", ()), newest, *unwell[:200], *near[:200]]
    return [*first, *kinds.get("well", ()), *near[200:], *unwell[200:]][:MAX_DESCRIBED]


def _describe_worker(each: WorkerState) -> dict[str, object]:
    reported = ("memory", "task_counts", "managed_bytes", "spilled_bytes")
    return {
        **{name: getattr(each, name) for name in ("nanny", "name", "pid", "nthreads", "memory_limit", "last_seen")},
        "status": each.status.name,
        "metrics": {name: each.metrics.get(name) for name in reported},
        "processing_count": len(each.processing),
        "processing": [str(task.key)[:KEY_CHARS] for task in islice(each.processing, 3)],
        "executing": [(str(task.key)[:KEY_CHARS], ran_s) for task, ran_s in islice(each.executing.items(), 3)],
    }


async def _versions(scheduler: Scheduler, names: Iterable[str]) -> dict[str, object]:
    """Return ``settings``, ``worker_versions`` and ``client_versions`` (without our own clients)."""
    users = [each for name, each in list(scheduler.clients.items()) if not name.startswith("workerdiag")]
    return {
        "settings": {name: _setting(scheduler, name) for name in names},
        "worker_versions": await _kinds_of_versions(list(scheduler.workers.values())),
        "client_versions": await _kinds_of_versions(users),
    }


async def _kinds_of_versions(servers: Sequence[object]) -> list[tuple[int, dict[str, object]]]:
    pause = pauses()
    counts = Counter[tuple[tuple[str, object], ...]]()
    for each in servers:
        counts[tuple(((getattr(each, "versions", None) or {}).get("packages") or {}).items())] += 1
        await pause()
    return [(count, dict(kind)) for kind, count in islice(counts.items(), 10)]


def _setting(scheduler: Scheduler, name: str) -> object:
    from dask import config

    attribute = name.rpartition(".")[2].replace("-", "_")
    value = getattr(scheduler, attribute, None) if ".scheduler." in name else None
    value = config.get(name, None) if value is None else value
    return value if isinstance(value, int | float | None) else str(value)[:100]


async def _states(scheduler: Scheduler, keys: list[object], executing: list[object]) -> dict[str, Any]:
    """Return ``states`` (task counts), ``whole`` (whether all were counted) and ``tasks`` (some).

    Also ``plugins``, the number of worker plugins that clients registered, `_waits`, and ``unknown_count``, how
    many of the keys the scheduler does not know: their graph has not been read.
    """
    pause = pauses()
    counts = Counter[str]()
    prefixes = list(islice(scheduler.task_prefixes.values(), 20_001))
    for prefix in prefixes[:20_000]:
        counts.update(prefix.states)
        await pause()
    tasks = [_describe_task(scheduler.tasks[key], awaited=True) for key in keys if key in scheduler.tasks]
    others = [*islice(getattr(scheduler, "unrunnable", ()), 20)]
    others += islice(getattr(scheduler, "queued", ()), 5)
    for worker in islice(scheduler.workers.values(), 200):
        others += islice(worker.processing, 2)
    others += [scheduler.tasks[key] for key in executing if key in scheduler.tasks]
    for each in others:
        tasks.append(_describe_task(each, awaited=False))
        await pause()
    named = list(map(str, getattr(scheduler, "worker_plugins", ())))
    return {
        "states": dict(counts),
        "whole": len(prefixes) <= 20_000,
        "tasks": tasks,
        "plugins": sum(name != "shuffle" and not name.startswith("workerdiag") for name in named),
        "unknown_count": sum(key not in scheduler.tasks for key in keys),
        **await _waits(scheduler),
    }


def _describe_task(task: TaskState, *, awaited: bool) -> dict[str, object]:
    blamed = getattr(task, "exception_blame", None)
    worker = task.processing_on
    return {
        "key": str(task.key)[:500],
        "state": task.state,
        "suspicious": task.suspicious,
        "restrictions": _restrictions(task),
        "exception_blame": str(blamed.key)[:500] if blamed is not None else None,
        "awaited": awaited,
        "error": str(getattr(task, "exception_text", "") or "")[:200] if awaited else None,
        "worker": worker.address if worker is not None else None,
        "running_s": worker.executing.get(task) if worker is not None else None,
        "kind_finished": task.prefix.duration_average >= 0,  # -1 until one has finished
    }


def _restrictions(task: TaskState) -> str:
    parts = []
    for name in ("worker", "host", "resource"):
        required = getattr(task, f"{name}_restrictions", None)
        if isinstance(required, dict):
            required = [f"{each}={amount}" for each, amount in islice(required.items(), 5)]
        if required:
            parts.append(f"{name} " + ", ".join(sorted(map(str, islice(required, 5)))))
    return "; ".join(parts)[:500]


async def _waits(scheduler: Scheduler) -> dict[str, object]:
    """Count the tasks that may never finish.

    ``starved_count``: tasks that other tasks wait for (``get_client``) and no thread runs;
    ``threads_taken_s``: for how long every thread has been busy. Both are 0 if a thread is free.
    ``overdue_count``: tasks that have run for a minute and ten times their prefix's average.
    ``idle_count``: tasks that have run for a minute on a worker that uses less than 10 % of a core,
    and of whose prefix none has finished.
    """
    pause, waiting, overdue, idle, is_free = pauses(), 0, 0, 0, False
    taken_s: list[float] = []
    for name, client in list(scheduler.clients.items()):
        if name.startswith("Client-worker-"):
            for task in list(islice(getattr(client, "wants_what", ()), 100)):
                worker = task.processing_on
                is_begun = worker is not None and task in worker.executing
                waiting += task.state in ("processing", "queued", "no-worker") and not is_begun
                await pause()
    for worker in list(scheduler.workers.values()):
        is_free = is_free or len(worker.executing) < worker.nthreads
        is_idle = worker.metrics.get("cpu", 100) < 10  # percent of one core, all threads together
        for task, ran_s in worker.executing.items():
            taken_s.append(ran_s)
            average_s = task.prefix.duration_average  # below 0: none has finished
            overdue += ran_s > 60 and 0 <= 10 * average_s < ran_s
            idle += ran_s > 60 and average_s < 0 and is_idle
        await pause()
    are_all_taken = bool(taken_s) and not is_free
    return {
        "overdue_count": overdue,
        "idle_count": idle,
        "starved_count": waiting if are_all_taken else 0,
        "threads_taken_s": min(taken_s) if are_all_taken else 0.0,
    }


async def contention(scheduler: Scheduler) -> list[dict[str, object]]:
    """Return what somebody waits for, each with its kind, name and number of waiters; at most 20.

    A lock has also ``held``, ``silent_s`` and ``freed_after_s``: its holder refreshes the lease five times in
    that time. It reads the extensions of distributed (semaphore.py, queues.py, event.py).
    """
    pause, now = pauses(), time.time()
    found: list[dict[str, object]] = []
    extensions = getattr(scheduler, "extensions", {})
    semaphores = extensions.get("semaphores")
    for name, waiting in list(getattr(semaphores, "metrics", {}).get("pending", {}).items()):
        if semaphores is not None and waiting > 0:
            leases = dict(getattr(semaphores, "leases", {}).get(name, {}))
            freed_after_s = getattr(semaphores, "lease_timeouts", {}).get(name)
            found.append(
                {
                    "kind": "lock" if semaphores.max_leases.get(name) == 1 else "semaphore",
                    "name": str(name)[:200],
                    "waiting": waiting,
                    "held": len(leases),
                    "silent_s": round(now - min(leases.values()), 1) if leases else None,
                    "freed_after_s": float(freed_after_s) if freed_after_s else None,
                }
            )
        await pause()
    for name, queue in list(getattr(extensions.get("queues"), "queues", {}).items()):
        if waiting := waiters_at_queue(queue):
            found.append({"kind": "queue", "name": str(name)[:200], "waiting": waiting})
        await pause()
    for name, waiting in waiters_at_events(extensions.get("events")).items():
        if waiting > 0:
            found.append({"kind": "event", "name": str(name)[:200], "waiting": waiting})
        await pause()
    return found[:20]


#: At most this many tasks and kinds of tasks are looked at for what they take.
MAX_TASKS = 20
#: States of a task that is done and kept, or will be done.
_PRESENT = ("memory", "processing", "queued", "no-worker", "waiting")


async def needs(scheduler: Scheduler, keys: Iterable[object]) -> list[dict[str, object]]:
    """Return what some tasks take, and what kinds have made: their tasks are soon forgotten, spans keep groups."""
    from dask.utils import key_split

    pause, clients = pauses(), _clients_of_tasks(scheduler)
    groups = await groups_of_spans(scheduler)
    found: list[dict[str, object]] = []
    kinds: dict[str, int] = {}
    for key in dict.fromkeys(keys):
        name = str(key_split(key))
        prefix: Any = scheduler.task_prefixes.get(name)
        if prefix is not None and kinds.setdefault(name, 0) < 2 and len(found) < MAX_TASKS:
            kinds[name] += 1
            known = (_inputs_of(scheduler.tasks[key]) if key in scheduler.tasks else {}) | {"clients": clients}
            found.append({"key": str(key)[:500], **_need_of_kind(name, prefix, groups), **known})
        await pause()
    for name, prefix in list(islice(scheduler.task_prefixes.items(), 2000)):
        if len(found) < 2 * MAX_TASKS and any(prefix.states.get(each) for each in _PRESENT):
            found.append(_need_of_kind(str(name), prefix, groups))
            groups.pop(name, None)
        await pause()
    made: list[dict[str, Any]] = []
    for name, some in groups.items():
        made.append(_made_by(str(name), some[0].prefix, some))
        await pause()
    return found + nlargest(2 * MAX_TASKS, made, key=lambda each: each["made_bytes"])


def _clients_of_tasks(scheduler: Scheduler) -> int:
    """Return how many clients tasks have opened (``worker_client``, ``get_client``), of the last 1,000 events."""
    noted = getattr((topics_of(scheduler) or {}).get("all"), "events", ())
    known = (each for _, each in islice(reversed(noted), 1000) if isinstance(each, dict))
    return sum(each.get("action") == "add-client" and "Client-worker-" in str(each.get("client")) for each in known)


async def groups_of_spans(scheduler: Scheduler) -> dict[str, list[Any]]:
    """Return the groups of tasks of the latest span that has a kind; ``Span.groups`` (spans.py) outlive tasks."""
    pause, found = pauses(), dict[str, list[Any]]()
    spans = getattr(getattr(scheduler, "extensions", {}).get("spans"), "root_spans", [])
    for span in spans[-20:]:  # the latest last, so it replaces those before
        latest: dict[str, list[Any]] = {}
        for group in list(islice(span.traverse_groups(), 500)):
            latest.setdefault(group.prefix.name, []).append(group)
        found |= latest
        await pause()
    return found


def _made_by(name: str, prefix: TaskPrefix, groups: Sequence[Any]) -> dict[str, Any]:
    return {
        "kind": name[:200],
        "finished": int(prefix.state_counts.get("memory", 0)),  # of all that have been, forgotten ones too
        "tasks": sum(sum(each.states.values()) for each in groups),
        "made_bytes": sum(int(each.nbytes_total) for each in groups),  # freed ones too
    }


def _need_of_kind(name: str, prefix: TaskPrefix, groups: Mapping[str, Sequence[Any]]) -> dict[str, object]:
    states: Mapping[Any, int] = prefix.states
    present = list(islice(prefix.groups, 100))
    made = _made_by(name, prefix, present or groups.get(name, ()))
    finished, kept = made["finished"], int(states.get("memory", 0))
    types = {str(each) for group in present for each in islice(group.types, 10)}
    return {
        **made,
        "suspicious": int(getattr(prefix, "suspicious", 0)),
        "kept": kept,
        "kept_bytes": made["made_bytes"] * kept // max(finished, kept, 1),
        "types": ", ".join(sorted(types))[:200],
        "expected": sum(int(states.get(each, 0)) for each in _PRESENT),
    }


def _inputs_of(task: TaskState) -> dict[str, object]:
    inputs = islice(task.dependencies, 5000)
    sizes = sorted(each.nbytes for each in inputs if each.nbytes > 0)
    return {
        "inputs": len(task.dependencies),
        "inputs_bytes": sum(sizes),
        "largest_input_bytes": sizes[-1] if sizes else 0,
        "median_input_bytes": sizes[len(sizes) // 2] if sizes else 0,
        "spec_bytes": spec_bytes(getattr(task, "run_spec", None), 4),
    }


def spec_bytes(value: Any, depth: int) -> int:
    """Return the bytes of the arrays, frames, texts and numbers in a task's arguments and function.

    Of a long list, set or dictionary 64 items are looked at, and the others are taken to be alike.
    """
    if isinstance(value, bytes | bytearray | str | int | float):
        return getsizeof(value)
    if type(value).__module__.startswith("pandas."):
        usage = value.memory_usage(deep=False) if hasattr(value, "memory_usage") else 0
        return int(usage.sum() if hasattr(usage, "sum") else usage)
    if isinstance(size := getattr(value, "nbytes", None), int):
        return size
    parts = [*parts_of(value), *(islice(value, 64) if isinstance(value, dict) else ())]  # the keys of a dictionary
    found = sum(spec_bytes(each, depth - 1) for each in parts if each is not None) if depth else 0
    if isinstance(value, list | tuple | set | dict) and len(value) > 64:
        return getsizeof(value) + found * len(value) // 64
    return found
