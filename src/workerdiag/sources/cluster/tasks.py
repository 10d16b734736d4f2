"""
The states of a cluster's tasks, from a snapshot or from the scheduler's own counts.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection, Iterator

from workerdiag.model.dask import Client, Reply
from workerdiag.model.evidence import Event

#: At most this many keys that the client waits for are looked up.
MAX_KEYS = 50


def wanted_keys(client: Client) -> list[object]:
    """
    Return the keys of the client's failed and pending futures, failed ones first.
    """
    futures = list(getattr(client, "futures", {}).items())
    states = {key: getattr(state, "status", "") for key, state in futures}
    failed = [key for key, status in states.items() if status == "error"]
    waiting = [key for key, status in states.items() if status == "pending"]
    return [*failed, *waiting][:MAX_KEYS]


def pending_count(client: Client) -> int:
    """
    Return the number of the client's pending futures.
    """
    futures = list(getattr(client, "futures", {}).values())
    return sum(getattr(each, "status", "") == "pending" for each in futures)


async def fetch_versions(client: Client) -> Reply:
    """
    Return the scheduler's versions of Python, system and packages.
    """
    reply: Reply = await client.scheduler.versions()
    return {**reply, "python": str(reply["host"]["python"])}


def has_same_python(reply: Reply) -> bool:
    """
    Whether a scheduler with these versions runs our release of Python; byte code of another can crash it.
    """
    version = str(reply["python"]).split(".")
    return version[:2] == [str(part) for part in sys.version_info[:2]]


async def count_states(client: Client) -> Reply:
    """
    Return only the number of tasks in each ordinary state, without running a function on the scheduler.
    """
    states: dict[str, int] = {}
    for prefix in (await client.scheduler.get_task_prefix_states()).values():
        for state, count in prefix.items():
            states[state] = states.get(state, 0) + count
    return {"states": states}


def parsed_key(text: str) -> object:
    """
    Return the key whose ``str()`` is *text*; keys of collections are tuples, such as ``('x', 0)``.
    """
    if not text.startswith("("):
        return text
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def finished_kind_events(reply: Reply, keys: Collection[str]) -> Iterator[Event]:
    """
    Yield one event for each of the *keys* of whose task prefix at least one task has finished.
    """
    finished = {task["key"] for task in reply.get("tasks", ()) if task.get("kind_finished")}
    for key in keys:
        if key in finished:
            yield Event(topic="finished-kind", fields={"key": key})


def task_state_events(reply: Reply) -> Iterator[Event]:
    """
    Yield one event for each task state, with the most suspicious task as its example.
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
