"""
What a scheduler knows of a worker at the moment it lets go of it, and forgets right after.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from heapq import nlargest
from typing import Any

from workerdiag.recorder import internals
from workerdiag.wire.constants import MESSAGE_SCHEMA

#: Changes of its status that are remembered of a living worker.
MAX_CHANGES = 10
_MAX_KEYS = 200
_MAX_RUNNING = 256
_MAX_SUSPECTS = 50
#: Of so many tasks the most suspicious are looked for; more are only counted.
_MAX_COUNTED = 5000
_KEY_CHARS = 500
_KEYS_CHARS = 16 * 1024
_REASON_CHARS = 500


class TrackedWorker:
    """
    A living worker: its state, which the scheduler drops before anybody is told of the removal.

    Attributes:
        state: The scheduler's ``WorkerState``.
        changes: The last changes of its status, oldest first.
        reason: Why it closes, as it told the scheduler itself; None if it did not.
    """

    __slots__ = ("changes", "reason", "state")

    def __init__(self, state: Any) -> None:
        self.state = state
        self.changes: list[dict[str, Any]] = []
        self.reason: str | None = None

    def note_status(self, when: float, before: object, after: object) -> None:
        """
        Note a change of its status.
        """
        self.changes.append({"when": when, "from": str(before)[:50], "to": str(after)[:50]})
        del self.changes[:-MAX_CHANGES]


def removal_record(
    scheduler: Any, tracked: TrackedWorker, event: Mapping[str, Any], *, when: float, host: str | None
) -> dict[str, Any]:
    """
    The record of one removal, as plain values; docs/fair-blame.md has its fields.

    Args:
        scheduler: The scheduler, which has not yet moved the worker's tasks elsewhere.
        tracked: The worker.
        event: The scheduler's event ``remove-worker`` (scheduler.py, 2024.8.1 to 2026.8.0).
        when: Now, in seconds since the epoch.
        host: Host part of its address.
    """
    state = tracked.state
    keys: Collection[Any] = event.get("processing-tasks") or ()
    running = {task.key: seconds for task, seconds in internals.executing_tasks(state) if task.key in keys}
    expected = bool(event.get("expected"))
    allowed = internals.allowed_failures(scheduler)
    suspicions = _suspicious_counts(scheduler, keys)
    return {
        "schema": MESSAGE_SCHEMA,
        "source": "scheduler",
        "worker": state.address,
        "name": str(state.name)[:200],
        "pid": state.pid or None,
        "nanny": state.nanny or None,
        "host": host,
        "when": when,
        "stimulus_id": str(event.get("stimulus_id"))[:_REASON_CHARS],
        "expected": expected,
        "reason": tracked.reason,
        "changes": list(tracked.changes),
        "nthreads": state.nthreads,
        "limit_bytes": state.memory_limit or None,
        "heard": _last_heartbeat(state, when),
        "executing": [
            {"key": _clipped_key(key), "seconds": seconds}
            for key, seconds in list(running.items())[:_MAX_RUNNING]
        ],
        "seceded": [
            _clipped_key(task.key)
            for task in list(internals.long_running_tasks(state))[:_MAX_KEYS]
            if task.key in keys
        ],
        "assigned": _clipped_keys((*running, *suspicions, *_first_keys(keys))),
        "assigned_count": len(keys),
        "suspicious": [
            {"key": _clipped_key(key), "before": count if expected else count - 1, "after": count}
            for key, count in list(suspicions.items())[:_MAX_SUSPECTS]
        ],
        "gave_up": [
            {"key": _clipped_key(key), "suspicious": count}
            for key, count in list(suspicions.items())[:_MAX_SUSPECTS]
            if not expected and allowed is not None and count > allowed
        ],
        "allowed_failures": allowed,
        "lost_results": len(event.get("lost-computed-tasks") or ()),
        "lost_data": len(event.get("lost-scattered-tasks") or ()),
        "workers_left": len(scheduler.workers),
    }


def abridged_record(full: Mapping[str, Any]) -> dict[str, Any]:
    """
    The record as it is told to everybody who listens: with few keys of tasks.
    """
    few = {name: full[name][:20] for name in ("executing", "assigned", "suspicious", "gave_up", "seceded")}
    return {**full, **few}


def _last_heartbeat(state: Any, when: float) -> dict[str, Any]:
    """
    What its last heartbeat said (``Worker.get_metrics`` in worker.py).
    """
    metrics: Mapping[str, Any] = state.metrics or {}
    spilled = metrics.get("spilled_bytes")
    last = state.last_seen or None
    numbers = {
        "when": last,
        "age_s": None if last is None else max(0.0, round(when - last, 3)),
        "rss_bytes": metrics.get("memory"),
        "managed_bytes": metrics.get("managed_bytes"),
        "spilled_bytes": spilled.get("disk") if isinstance(spilled, Mapping) else None,
        "open_files": metrics.get("num_fds"),
        "cpu_percent": metrics.get("cpu"),
        "event_loop_s": metrics.get("event_loop_interval"),
        "gil": metrics.get("gil_contention"),
    }
    return {name: value for name, value in numbers.items() if isinstance(value, int | float)}


def _suspicious_counts(scheduler: Any, keys: Collection[Any]) -> dict[Any, int]:
    """
    The most suspicious of the tasks, with how many deaths Dask counts against each by now.
    """
    tasks = (scheduler.tasks.get(key) for key in _first_keys(keys, _MAX_COUNTED))
    counted = [(internals.suspicious_count(task), task.key) for task in tasks if task is not None]
    most = nlargest(_MAX_KEYS, counted, key=lambda each: each[0])
    return {key: count for count, key in most if count}


def _first_keys(keys: Collection[Any], most: int = _MAX_KEYS) -> list[Any]:
    return [key for key, _ in zip(keys, range(most), strict=False)]


def _clipped_keys(keys: Iterable[Any]) -> list[str]:
    """
    Each key once, as text, as many as there is room for.
    """
    clipped: list[str] = []
    left = _KEYS_CHARS
    for key in dict.fromkeys(map(_clipped_key, keys)):
        left -= len(key)
        if left < 0 or len(clipped) == _MAX_KEYS:
            break
        clipped.append(key)
    return clipped


def _clipped_key(key: Any) -> str:
    return str(key)[:_KEY_CHARS]
