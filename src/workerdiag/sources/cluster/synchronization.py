"""What running tasks wait for, by their stacks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from traceback import walk_stack
from types import CodeType
from typing import Final

from workerdiag.model.dask import Client, Reply
from workerdiag.model.normalize import EventValue
from workerdiag.sources.internals import frames_of_threads
from workerdiag.values import frozen

#: What waits in a file of Dask's, and the functions that wait there (distributed 2024.8.1 to 2026.8.0).
_WAITS: Final[Mapping[str, str]] = {
    "lock.py": "lock",
    "multi_lock.py": "lock",
    "semaphore.py": "semaphore",
    "queues.py": "queue",
    "variable.py": "variable",
    "event.py": "event",
    "actor.py": "actor",
    "client.py": "task",
}
_WAITING = ("acquire", "__enter__", "get", "put", "wait", "result", "gather")
#: Functions of Python's library in which a thread waits for another one.
_WAITS_OF_PYTHON: Final = (("functools.py", "__get__"), ("threading.py", "wait"), ("threading.py", "acquire"))
_FRAME = re.compile(r'File "(?P<file>[^"\n]*)", line (?P<line>\d+), in (?P<function>\S+)')
_SEPARATORS = re.compile(r"[/\\]")


@frozen(kw_only=True)
class Wait:
    """What the code of a task waits for."""

    #: One of the values of `_WAITS`.
    kind: str
    #: The line that waits, as ``function (file:line)``.
    at: str


def wait_in(stack: Sequence[str]) -> Wait | None:
    """Return what a task waits for by its *stack*, outermost frame first; None if it waits for nothing of Dask's.

    A frame is text as ``distributed.profile.repr_frame`` writes it.
    """
    caller, kinds = "", []
    for frame in stack:
        found = _FRAME.match(frame.lstrip())
        if found is None:
            continue
        *folders, name = _SEPARATORS.split(found["file"])
        is_waiting = folders[-1:] == ["distributed"] and found["function"] in _WAITING
        kind = _WAITS.get(name) if is_waiting else None
        if kind is not None:
            kinds.append(kind)
        elif not kinds:
            caller = f"{found['function']} ({name}:{found['line']})"
    if not kinds:
        return None
    return Wait(kind="lock" if "lock" in kinds else kinds[0], at=caller)  # a lock is made of a semaphore


def graph_waits_at() -> str | None:
    """Return the call in which reading a graph waits, as ``function (file:line)``; None if none does.

    Seen where the scheduler runs in this process, which reads graphs in a thread (`_materialize_graph` in its
    scheduler.py). Before Python 3.12 `functools.cached_property` held a lock while it computed; a thread that holds
    it and waits for the cluster, as ``repartition(partition_size=...)`` does, keeps the graph from being read.
    """
    for frame in frames_of_threads():
        stack = [(each.f_code, line) for each, line in walk_stack(frame)]
        if any(code.co_name == "_materialize_graph" for code, _ in stack) and _is_wait(stack[0][0]):
            code, line = next((code, line) for code, line in stack if not _is_wait(code))
            return f"{code.co_name} ({_SEPARATORS.split(code.co_filename)[-1]}:{line})"
    return None


def _is_wait(code: CodeType) -> bool:
    name = _SEPARATORS.split(code.co_filename)[-1]
    return (name, code.co_name) in _WAITS_OF_PYTHON


async def fetch_stacks(client: Client, keys: Sequence[object]) -> dict[str, Sequence[str]]:
    """Return the stacks of running tasks, by the text of their keys."""
    reply: Reply = await client.scheduler.call_stack(keys=list(keys))
    stacks = (of_worker.items() for of_worker in reply.values() if isinstance(of_worker, Mapping))
    return {str(key): [str(each) for each in frames] for some in stacks for key, frames in some}


def wait_fields(wait: Wait | None, contention: Iterable[Mapping[str, EventValue]]) -> dict[str, EventValue]:
    """Return what a task waits for, with all that is known of it if only one of its kind is waited for."""
    if wait is None:
        return {}
    of_kind = [each for each in contention if each["kind"] == wait.kind]
    known = of_kind[0] if len(of_kind) == 1 else {}
    named = {f"{wait.kind}_{name}": value for name, value in known.items() if name != "kind"}
    return {"waits_for": wait.kind, "waits_at": wait.at, **named}
