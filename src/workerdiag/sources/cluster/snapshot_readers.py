"""
Readers of a scheduler's tasks, versions and settings for the snapshot.

Each function here returns a nested function, which runs on the scheduler: it is pickled by value.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from workerdiag.model.dask import Method, Scheduler, TaskState
from workerdiag.sources.internals import topics_reader


def pauses() -> Method:
    """
    Return a function that begins a round of work and returns a coroutine function to await after each item.

    The coroutine yields to the event loop after 1 ms of work.
    """

    def begin() -> Method:
        from asyncio import sleep
        from time import perf_counter

        begun = perf_counter()

        async def pause() -> None:
            nonlocal begun
            if perf_counter() - begun > 0.001:
                await sleep(0)
                begun = perf_counter()

        return pause

    return begin


def packer() -> Method:
    """
    Return a function that pickles items one by one: pickling a large answer at once would block the loop.
    """
    begin = pauses()

    async def packed(things: Iterable[object]) -> bytes:
        from pickle import dumps

        pause, found = begin(), []
        for each in things:
            found.append(dumps(each))
            await pause()
        return b"".join(found)

    return packed


def forgetter() -> Method:
    """
    Return a function that removes our own calls from the scheduler's events.

    A scheduler logs each function that it runs, with its code, among the last thousand events of ``all``.
    Without removal, frequent requests would push out the events that matter.
    """
    topics_of = topics_reader()

    def is_ours(message: object, *, most_bytes: int) -> bool:
        """
        Whether an event logs a snapshot of ours, or a probe (``sources/host/remote_call.py``, short code).
        """
        if not isinstance(message, dict) or message.get("action") != "run-function":
            return False
        function = message.get("function")
        if not isinstance(function, bytes) or len(function) > most_bytes:
            return False
        return b"workerdiag_looks" in function or b"asyncio.threads" in function

    def forget(scheduler: Scheduler) -> None:
        """
        Remove the event of this call, and those of earlier probes.
        """
        topics = topics_of(scheduler) or {}
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
            topics["all"].count -= 1  # no reader of the count has seen this event yet

    return forget


def states_reader() -> Method:
    """
    Return a function for ``states`` (task counts), ``whole`` (whether all were counted) and ``tasks`` (some).

    It also reads ``plugins``, the number of worker plugins that clients registered, and counts tasks that
    may never finish: ``starved_count``, ``threads_taken_s``, ``overdue_count`` and ``idle_count``.
    """
    describe, waits, begin = _task_reader(), _waits_reader(), pauses()

    async def states(scheduler: Scheduler, keys: list[object], executing: list[object]) -> dict[str, object]:
        from itertools import islice

        pause = begin()
        counts: dict[str, int] = {}
        prefixes = list(islice(scheduler.task_prefixes.values(), 20_001))
        for prefix in prefixes[:20_000]:
            for state, count in prefix.states.items():
                counts[state] = counts.get(state, 0) + count
            await pause()
        tasks = [describe(scheduler.tasks[key], awaited=True) for key in keys if key in scheduler.tasks]
        others = [*islice(getattr(scheduler, "unrunnable", ()), 20)]
        others += islice(getattr(scheduler, "queued", ()), 5)
        for worker in islice(scheduler.workers.values(), 200):
            others += islice(worker.processing, 2)
        others += [scheduler.tasks[key] for key in executing if key in scheduler.tasks]
        for each in others:
            tasks.append(describe(each, awaited=False))
            await pause()
        named = list(map(str, getattr(scheduler, "worker_plugins", ())))
        plugins = sum(name != "shuffle" and not name.startswith("workerdiag") for name in named)
        found = {"states": counts, "whole": len(prefixes) <= 20_000, "tasks": tasks, "plugins": plugins}
        return {**found, **await waits(scheduler)}

    return states


def _waits_reader() -> Method:
    begin = pauses()

    async def waits(scheduler: Scheduler) -> dict[str, object]:
        """
        Count the tasks that may never finish.

        ``starved_count``: tasks that other tasks wait for (``get_client``) and no thread runs;
        ``threads_taken_s``: for how long every thread has been busy. Both are 0 if a thread is free.
        ``overdue_count``: tasks that have run for a minute and ten times their prefix's average.
        ``idle_count``: tasks that have run for a minute on a worker that uses less than 10 % of a core,
        and of whose prefix none has finished.
        """
        from itertools import islice

        pause, waiting, overdue, idle, is_free = begin(), 0, 0, 0, False
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
        found = {"overdue_count": overdue, "idle_count": idle}
        if is_free or not taken_s:
            return {"starved_count": 0, "threads_taken_s": 0.0, **found}
        return {"starved_count": waiting, "threads_taken_s": min(taken_s), **found}

    return waits


def _task_reader() -> Method:
    def restrictions(task: TaskState) -> str:
        from itertools import islice

        parts = []
        for name in ("worker", "host", "resource"):
            required = getattr(task, f"{name}_restrictions", None)
            if isinstance(required, dict):
                required = [f"{each}={amount}" for each, amount in islice(required.items(), 5)]
            if required:
                parts.append(f"{name} " + ", ".join(sorted(map(str, islice(required, 5)))))
        return "; ".join(parts)[:500]

    def describe(task: TaskState, *, awaited: bool) -> dict[str, object]:
        blamed = getattr(task, "exception_blame", None)
        worker = task.processing_on
        return {
            "key": str(task.key)[:500],
            "state": task.state,
            "suspicious": task.suspicious,
            "restrictions": restrictions(task),
            "exception_blame": str(blamed.key)[:500] if blamed is not None else None,
            "awaited": awaited,
            "worker": worker.address if worker is not None else None,
            "running_s": worker.executing.get(task) if worker is not None else None,
            "kind_finished": task.prefix.duration_average >= 0,  # -1 until one has finished
        }

    return describe


def versions_reader() -> Method:
    """
    Return a function for ``settings``, ``worker_versions`` and ``client_versions`` (without our own clients).
    """
    begin = pauses()

    async def kinds(servers: list[object]) -> list[tuple[int, dict[str, object]]]:
        from itertools import islice

        pause = begin()
        counts: dict[tuple[tuple[str, object], ...], int] = {}
        for each in servers:
            kind = tuple(((getattr(each, "versions", None) or {}).get("packages") or {}).items())
            counts[kind] = counts.get(kind, 0) + 1
            await pause()
        return [(count, dict(kind)) for kind, count in islice(counts.items(), 10)]

    def setting(scheduler: Scheduler, name: str) -> object:
        from dask import config

        attribute = name.rpartition(".")[2].replace("-", "_")
        value = getattr(scheduler, attribute, None) if ".scheduler." in name else None
        value = config.get(name, None) if value is None else value
        return value if isinstance(value, int | float | None) else str(value)[:100]

    async def versions(scheduler: Scheduler, names: tuple[str, ...]) -> dict[str, object]:
        clients = list(scheduler.clients.items())
        users = [each for name, each in clients if not name.startswith("workerdiag")]
        return {
            "settings": {name: setting(scheduler, name) for name in names},
            "worker_versions": await kinds(list(scheduler.workers.values())),
            "client_versions": await kinds(users),
        }

    return versions
