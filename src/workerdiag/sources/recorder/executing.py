"""
The tasks that a dead worker really ran, by its black box, or else by its last heartbeat.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from workerdiag.model.evidence import TasksAtLoss
from workerdiag.model.identity import Identity
from workerdiag.wire.black_box import RunningTask
from workerdiag.wire.messages import DeathReport
from workerdiag.wire.recorded_death import RecordedDeath
from workerdiag.wire.removal import HeartbeatTask, RemovalRecord

_MAX_KEYS = 500
_THREAD_CHARS = 100


def tasks_at_loss(death: RecordedDeath, identity: Identity) -> TasksAtLoss | None:
    """
    The tasks that were on the worker; None where neither scheduler nor black box knows.

    A task that ran at the last heartbeat and was not finished when the worker was lost still ran then. What
    else was assigned may have begun since, unless all threads had a task already.
    """
    record, report = death.record or RemovalRecord(), death.report
    running = _exactly_running(report)
    if death.record is None and running is None:
        return None
    assigned = record.assigned_keys[:_MAX_KEYS]
    by_heartbeat = record.executing_at_heartbeat
    known = [*assigned, *(each.key for each in by_heartbeat)]
    tasks = tuple(each.key for each in by_heartbeat)
    threads: tuple[str, ...] = ("",) * len(tasks)
    seconds = tuple(_running_s_by_heartbeat(each, record) for each in by_heartbeat)
    crashed: tuple[bool | None, ...] = (None,) * len(tasks)
    if running is not None and report is not None:
        end = _end_time(report, running)
        tasks = tuple(_full_key(each, known) for each in running)
        threads = tuple(each.thread_name[:_THREAD_CHARS] for each in running)
        seconds = tuple(_running_s(each, end) for each in running)
        crashed = tuple(each.is_on_crashed_thread for each in running)
    return TasksAtLoss(
        identity=identity,
        tasks=tasks,
        threads=threads,
        seconds=seconds,
        crashed=crashed,
        exact=running is not None,
        maybe_more=running is None and not _are_all_threads_busy(record, tasks),
        assigned=tuple(dict.fromkeys([*tasks, *assigned])),
        counted=death.record is not None and not record.is_expected,
        gave_up=tuple(each.key for each in record.given_up),
        allowed_failures=record.allowed_failures,
        when=death.at,
    )


def _exactly_running(report: DeathReport | None) -> tuple[RunningTask, ...] | None:
    """
    The running tasks, if a box has all of them. A box that was too long to be sent had all.
    """
    if report is None or (report.box is not None and not report.box.has_all_running_tasks):
        return None
    return report.running_tasks


def _full_key(task: RunningTask, known: Collection[str]) -> str:
    """
    The key of a task; one that had no room in the box is completed where that can be only one.
    """
    if not task.is_clipped:
        return task.key
    begun = [each for each in dict.fromkeys(known) if each.startswith(task.key)]
    return begun[0] if len(begun) == 1 else task.key


def _end_time(report: DeathReport, running: Sequence[RunningTask]) -> float | None:
    """
    When the process ended, by the clock of its own machine: that of its box and its nanny.
    """
    written_at = report.box.written_at if report.box is not None else None
    times = [report.noticed_at, written_at, *(each.started_at for each in running)]
    return max((each for each in times if each is not None), default=None)


def _running_s(task: RunningTask, end: float | None) -> float | None:
    if task.started_at is None or end is None:
        return None
    return max(0.0, round(end - task.started_at, 3))


def _running_s_by_heartbeat(task: HeartbeatTask, record: RemovalRecord) -> float | None:
    """
    For how long a task had run when the worker was lost: until the heartbeat, and since.
    """
    age_s = record.last_heartbeat.age_s or 0.0
    return None if task.running_s is None else round(task.running_s + age_s, 3)


def _are_all_threads_busy(record: RemovalRecord, tasks: Sequence[str]) -> bool:
    occupied = sum(each not in record.seceded_keys for each in tasks)
    return record.nthreads is not None and occupied >= record.nthreads
