"""The states of a cluster's tasks, from a snapshot or from the scheduler's own counts."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from workerdiag.model.dask import Client, Method, Reply, Scheduler, TaskState
from workerdiag.model.evidence import Event
from workerdiag.sources.cluster.scheduler_functions import pauses

#: At most this many keys that the client waits for are looked up.
MAX_KEYS = 50


def wanted_keys(client: Client) -> list[object]:
    """Return the keys of the client's failed and pending futures, failed ones first."""
    futures = list(getattr(client, "futures", {}).items())
    states = {key: getattr(state, "status", "") for key, state in futures}
    failed = [key for key, status in states.items() if status == "error"]
    waiting = [key for key, status in states.items() if status == "pending"]
    return [*failed, *waiting][:MAX_KEYS]


def pending_count(client: Client) -> int:
    """Return the number of the client's pending futures."""
    futures = list(getattr(client, "futures", {}).values())
    return sum(getattr(each, "status", "") == "pending" for each in futures)


async def count_states(client: Client) -> Reply:
    """Return only the number of tasks in each ordinary state, without running a function on the scheduler."""
    states: dict[str, int] = {}
    for prefix in (await client.scheduler.get_task_prefix_states()).values():
        for state, count in prefix.items():
            states[state] = states.get(state, 0) + count
    return {"states": states}


def parsed_key(text: str) -> object:
    """Return the key whose ``str()`` is *text*; keys of collections are tuples, such as ``('x', 0)``."""
    if not text.startswith("("):
        return text
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def finished_kind_events(reply: Reply, keys: Collection[str]) -> Iterator[Event]:
    """Yield one event for each of the *keys* of whose task prefix at least one task has finished."""
    finished = {task["key"] for task in reply.get("tasks", ()) if task.get("kind_finished")}
    for key in keys:
        if key in finished:
            yield Event(topic="finished-kind", fields={"key": key})


def task_state_events(reply: Reply) -> Iterator[Event]:
    """Yield one event for each task state, with the most suspicious task as its example."""
    for state, count in reply.get("states", {}).items():
        if not count or state == "forgotten":
            continue
        tasks = [task for task in reply.get("tasks", ()) if task["state"] == state]
        fields: dict[str, str | int | None] = {"state": str(state), "count": int(count)}
        if not reply.get("whole", True):
            fields["counted"] = "at least"
        if tasks:
            example = max(tasks, key=lambda task: (task["suspicious"], bool(task["restrictions"])))
            fields |= {
                "key": example["key"],
                "suspicious": int(example["suspicious"]),
                "restrictions": _most_common([task["restrictions"] for task in tasks]),
                "exception_blame": example["exception_blame"],
            }
        yield Event(topic="task-state", fields=fields)


def _most_common(texts: Collection[str]) -> str | None:
    stated = [text for text in texts if text]
    return max(stated, key=stated.count) if stated else None


def states_reader() -> Method:
    """Return a function for ``states`` (task counts), ``whole`` (whether all were counted) and ``tasks`` (some).

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
        """Count the tasks that may never finish.

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
