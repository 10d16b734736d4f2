"""
What state the tasks are in: one look inside the scheduler, or what it tells without one.

The look brings what else is only to be seen there: its clock, pids, settings, versions of those connected.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from workerdiag.model.evidence import Event
from workerdiag.sources.cluster.surroundings import reader

#: Keys that the client waits for, looked up one by one.
MOST_KEYS = 50


def wanted_keys(client: Any) -> list[Any]:
    """
    Keys of the client's futures that failed or are not finished, failed ones first.
    """
    futures = list(getattr(client, "futures", {}).items())
    states = {key: getattr(state, "status", "") for key, state in futures}
    failed = [key for key, status in states.items() if status == "error"]
    waiting = [key for key, status in states.items() if status == "pending"]
    return [*failed, *waiting][:MOST_KEYS]


async def versions(client: Any) -> dict[str, Any]:
    """
    What the scheduler says of its own Python, system and packages.
    """
    reply: Mapping[str, Any] = await client.scheduler.versions()
    return {**reply, "python": str(reply["host"]["python"])}


def same_python(reply: Mapping[str, Any]) -> bool:
    """
    Whether a scheduler of these `versions` runs our release of Python: byte code of another can crash it.
    """
    version = str(reply["python"]).split(".")
    return version[:2] == [str(part) for part in sys.version_info[:2]]


async def look_inside(client: Any, keys: Collection[Any]) -> dict[str, Any]:
    """
    What `_reader` returns, run on the scheduler's event loop (some 0.1 ms for each 100 prefixes).
    """
    return dict(await client.run_on_scheduler(_reader(), list(keys)))


async def counted(client: Any) -> dict[str, Any]:
    """
    The same without running anything there: only how many tasks are in each (ordinary) state.
    """
    states: dict[str, int] = {}
    for prefix in (await client.scheduler.get_task_prefix_states()).values():
        for state, count in prefix.items():
            states[state] = states.get(state, 0) + count
    return {"states": states}


def _reader() -> Callable[..., Mapping[str, Any]]:
    """
    The function that looks: nested, so that it is pickled by value and the scheduler needs no workerdiag.
    """
    surroundings = reader()

    def workerdiag_reads_task_states(keys: list[Any], dask_scheduler: Any = None) -> dict[str, Any]:
        from itertools import islice
        from time import time

        def restrictions(task: Any) -> str:
            parts = []
            for name in ("worker", "host", "resource"):
                wanted = getattr(task, f"{name}_restrictions", None)
                if isinstance(wanted, dict):
                    wanted = [f"{each}={amount}" for each, amount in wanted.items()]
                if wanted:
                    parts.append(f"{name} " + ", ".join(sorted(map(str, wanted))[:5]))
            return "; ".join(parts)[:500]

        def told(task: Any) -> dict[str, Any]:
            blamed = getattr(task, "exception_blame", None)
            return {
                "key": str(task.key)[:500],
                "state": task.state,
                "suspicious": task.suspicious,
                "restrictions": restrictions(task),
                "exception_blame": str(blamed.key)[:500] if blamed is not None else None,
            }

        states: dict[str, int] = {}
        for prefix in islice(dask_scheduler.task_prefixes.values(), 5000):
            for state, count in prefix.states.items():
                states[state] = states.get(state, 0) + count
        tasks = [dask_scheduler.tasks[key] for key in keys if key in dask_scheduler.tasks]
        tasks += islice(getattr(dask_scheduler, "unrunnable", ()), 20)
        tasks += islice(getattr(dask_scheduler, "queued", ()), 5)
        for worker in islice(dask_scheduler.workers.values(), 200):
            tasks += islice(worker.processing, 2)
        pids = {each.address: each.pid for each in islice(dask_scheduler.workers.values(), 1000)}
        told_tasks = [told(task) for task in tasks]
        return {
            "now": time(),
            "states": states,
            "tasks": told_tasks,
            "pids": pids,
            **surroundings(dask_scheduler),
        }

    return workerdiag_reads_task_states


def task_states(reply: Mapping[str, Any]) -> Iterator[Event]:
    """
    One event for each state that tasks are in, with the most suspicious task as its example.
    """
    for state, count in reply.get("states", {}).items():
        if not count or state == "forgotten":
            continue
        tasks = [task for task in reply.get("tasks", ()) if task["state"] == state]
        fields: dict[str, str | int | None] = {"state": str(state), "count": int(count)}
        if tasks:
            example = max(tasks, key=lambda task: (task["suspicious"], bool(task["restrictions"])))
            fields |= {
                "key": example["key"],
                "suspicious": int(example["suspicious"]),
                "restrictions": _most_usual([task["restrictions"] for task in tasks]),
                "exception_blame": example["exception_blame"],
            }
        yield Event(topic="task-state", fields=fields)


def _most_usual(texts: Collection[str]) -> str | None:
    stated = [text for text in texts if text]
    return max(stated, key=stated.count) if stated else None
