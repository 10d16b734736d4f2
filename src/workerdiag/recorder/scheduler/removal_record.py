"""What a scheduler knows about a worker when it removes it, and drops immediately afterwards."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from heapq import nlargest
from itertools import islice
from typing import TYPE_CHECKING

from attrs import evolve

from workerdiag.recorder.internals import schedulers
from workerdiag.wire.removal import Heartbeat, HeartbeatTask, RemovalRecord, StatusChange, SuspectTask

if TYPE_CHECKING:
    from workerdiag.model.dask import Reply, Scheduler, WorkerState

#: Status changes to remember for each live worker.
MAX_CHANGES = 10
_MAX_KEYS = 200
_MAX_RUNNING = 256
_MAX_SUSPECTS = 50
#: The most suspicious of this many tasks are looked for; more are only counted.
_MAX_COUNTED = 5000
_KEY_CHARS = 500
_KEYS_CHARS = 16 * 1024
_REASON_CHARS = 500
#: A published record has at most this many tasks in each list.
_MAX_PUBLISHED = 20


class TrackedWorker:
    """A live worker with its state, which the scheduler drops before plugins learn of the removal.

    Attributes:
        state: The scheduler's ``WorkerState``.
        changes: Its latest status changes, oldest first.
        reason: The reason for closing that the worker reported; None if it reported none.
    """

    __slots__ = ("changes", "reason", "state")

    def __init__(self, state: WorkerState) -> None:
        self.state = state
        self.changes: tuple[StatusChange, ...] = ()
        self.reason: str | None = None

    def note_status(self, at: float, before: object, after: object) -> None:
        """Add a status change."""
        change = StatusChange(at=at, before=str(before)[:50], after=str(after)[:50])
        self.changes = (*self.changes, change)[-MAX_CHANGES:]


def removal_record(
    scheduler: Scheduler, tracked: TrackedWorker, event: Reply, *, noticed_at: float
) -> RemovalRecord:
    """The record of one removal; docs/fair-blame.md lists its fields.

    Args:
        scheduler: The scheduler, which has not yet moved the worker's tasks elsewhere.
        tracked: The worker.
        event: The scheduler's event ``remove-worker`` (scheduler.py, 2024.8.1 to 2026.8.0).
        noticed_at: Now, in seconds since the epoch.
    """
    state = tracked.state
    keys: Collection[object] = event.get("processing-tasks") or ()
    running = {task.key: seconds for task, seconds in schedulers.executing_tasks(state) if task.key in keys}
    is_expected = bool(event.get("expected"))
    allowed = schedulers.allowed_failures(scheduler)
    counts = _suspicious_counts(scheduler, keys)
    suspects = tuple(
        SuspectTask(key=_clipped_key(key), suspicious_count=count)
        for key, count in islice(counts.items(), _MAX_SUSPECTS)
    )
    return RemovalRecord(
        worker_address=state.address,
        worker_name=str(state.name)[:200],
        pid=state.pid or None,
        nanny_address=state.nanny or None,
        address_host=schedulers.worker_host(state),
        noticed_at=noticed_at,
        stimulus_id=str(event.get("stimulus_id"))[:_REASON_CHARS],
        is_expected=is_expected,
        close_reason=tracked.reason,
        status_changes=tracked.changes,
        nthreads=state.nthreads,
        memory_limit_bytes=state.memory_limit or None,
        last_heartbeat=_last_heartbeat(state, noticed_at),
        executing_at_heartbeat=tuple(
            HeartbeatTask(key=_clipped_key(key), running_s=seconds)
            for key, seconds in islice(running.items(), _MAX_RUNNING)
        ),
        seceded_keys=tuple(
            _clipped_key(task.key)
            for task in islice(schedulers.long_running_tasks(state), _MAX_KEYS)
            if task.key in keys
        ),
        assigned_keys=_clipped_keys((*running, *counts, *islice(keys, _MAX_KEYS))),
        assigned_count=len(keys),
        suspects=suspects,
        given_up=tuple(
            each
            for each in suspects
            if not is_expected and allowed is not None and each.suspicious_count > allowed
        ),
        allowed_failures=allowed,
        lost_result_count=len(event.get("lost-computed-tasks") or ()),
        lost_scattered_count=len(event.get("lost-scattered-tasks") or ()),
        workers_remaining=len(scheduler.workers),
    )


def abridged_record(full: RemovalRecord) -> RemovalRecord:
    """The record as published to subscribers, with few task keys."""
    long = ("executing_at_heartbeat", "assigned_keys", "suspects", "given_up", "seceded_keys")
    return evolve(full, **{name: getattr(full, name)[:_MAX_PUBLISHED] for name in long})


def _last_heartbeat(state: WorkerState, now: float) -> Heartbeat:
    """The metrics of its last heartbeat (``Worker.get_metrics`` in worker.py)."""
    metrics: Reply = state.metrics or {}
    spilled = metrics.get("spilled_bytes")
    last = state.last_seen or None
    return Heartbeat(
        at=last,
        age_s=None if last is None else max(0.0, round(now - last, 3)),
        rss_bytes=metrics.get("memory"),
        managed_bytes=metrics.get("managed_bytes"),
        spilled_bytes=spilled.get("disk") if isinstance(spilled, Mapping) else None,
        open_files=metrics.get("num_fds"),
    )


def _suspicious_counts(scheduler: Scheduler, keys: Collection[object]) -> dict[object, int]:
    """The most suspicious tasks, with the number of deaths that Dask counts against each."""
    tasks = (scheduler.tasks.get(key) for key in islice(keys, _MAX_COUNTED))
    counted = [(schedulers.suspicious_count(task), task.key) for task in tasks if task is not None]
    most = nlargest(_MAX_KEYS, counted, key=lambda each: each[0])
    return {key: count for count, key in most if count}


def _clipped_keys(keys: Iterable[object]) -> tuple[str, ...]:
    """The distinct keys as strings, up to the limit."""
    clipped: list[str] = []
    left = _KEYS_CHARS
    for key in dict.fromkeys(map(_clipped_key, keys)):
        left -= len(key)
        if left < 0 or len(clipped) == _MAX_KEYS:
            break
        clipped.append(key)
    return tuple(clipped)


def _clipped_key(key: object) -> str:
    return str(key)[:_KEY_CHARS]
