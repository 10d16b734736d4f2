"""
What a look inside a scheduler reads of its tasks, versions and settings.

Each function here returns one that runs there: nested, so that it is pickled by value.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from workerdiag.model.dask import Method, Scheduler, TaskState
from workerdiag.sources.internals import topics_reader


def pauses() -> Method:
    """
    Of one round of work, a coroutine to await after each item: it lets others on after 1 ms of work.
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
    A function that pickles things one after the other: a large answer at once would hold the loop up.
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
    A function to begin a look with, so that it leaves no trace in what the scheduler remembers.

    A scheduler notes each function that it runs, with its code, among the last thousand events of ``all``.
    Our own notes are taken out, so that asking often does not push out what matters.
    """
    topics_of = topics_reader()

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
            topics["all"].count -= 1  # whoever counts the events has not seen this one yet

    return forget


def states_reader() -> Method:
    """
    Of tasks: ``states`` (how many are in each), ``whole`` (whether all were counted), ``tasks`` (some).

    And of what runs with each worker: ``plugins``, how many that a client registered; and tasks that may
    never end: ``starved_count``, ``threads_taken_s``, ``overdue_count`` and ``idle_count``.
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
        Tasks that may never end, as they wait for what never comes.

        ``starved_count``: how many that tasks asked for (``get_client``) no thread runs, and how long each
        thread has been taken, ``threads_taken_s``; both 0 where one is free. ``overdue_count``: how many have
        run for a minute and ten times as long as their kind takes. ``idle_count``: how many have run for a
        minute on a worker that uses hardly any processor time, where none of their kind has finished.
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
    ``settings``, ``worker_versions`` and ``client_versions``, the latter without clients of a diagnosis.
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
