"""
What state the tasks are in, by a look inside the scheduler or by what it tells without one.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection, Iterator

from workerdiag.model.dask import Client, Reply
from workerdiag.model.evidence import Event

#: Keys that the client waits for, looked up one by one.
MAX_KEYS = 50


def wanted_keys(client: Client) -> list[object]:
    """
    Keys of the client's futures that failed or are not finished, failed ones first.
    """
    futures = list(getattr(client, "futures", {}).items())
    states = {key: getattr(state, "status", "") for key, state in futures}
    failed = [key for key, status in states.items() if status == "error"]
    waiting = [key for key, status in states.items() if status == "pending"]
    return [*failed, *waiting][:MAX_KEYS]


def pending_count(client: Client) -> int:
    """
    Futures of the client that are neither finished nor failed.
    """
    futures = list(getattr(client, "futures", {}).values())
    return sum(getattr(each, "status", "") == "pending" for each in futures)


async def fetch_versions(client: Client) -> Reply:
    """
    What the scheduler says of its own Python, system and packages.
    """
    reply: Reply = await client.scheduler.versions()
    return {**reply, "python": str(reply["host"]["python"])}


def has_same_python(reply: Reply) -> bool:
    """
    Whether a scheduler of these `versions` runs our release of Python: byte code of another can crash it.
    """
    version = str(reply["python"]).split(".")
    return version[:2] == [str(part) for part in sys.version_info[:2]]


async def count_states(client: Client) -> Reply:
    """
    The same without running anything there: only how many tasks are in each (ordinary) state.
    """
    states: dict[str, int] = {}
    for prefix in (await client.scheduler.get_task_prefix_states()).values():
        for state, count in prefix.items():
            states[state] = states.get(state, 0) + count
    return {"states": states}


def parsed_key(text: str) -> object:
    """
    The key whose ``str()`` is *text*: keys of collections are tuples, such as ``('x', 0)``.
    """
    if not text.startswith("("):
        return text
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def finished_kind_events(reply: Reply, keys: Collection[str]) -> Iterator[Event]:
    """
    One event for each of the tasks *keys* of whose kind (`distributed` calls it prefix) one has finished.
    """
    finished = {task["key"] for task in reply.get("tasks", ()) if task.get("kind_finished")}
    for key in keys:
        if key in finished:
            yield Event(topic="finished-kind", fields={"key": key})


def task_state_events(reply: Reply) -> Iterator[Event]:
    """
    One event for each state that tasks are in, with the most suspicious task as its example.
    """
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
