"""Reconstructs the last minutes of a dead worker: its memory, limits, and the tasks that ran when it was lost."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from workerdiag.model.evidence import TasksAtLoss
from workerdiag.model.identity import Identity
from workerdiag.model.timeline import MemoryLimits, MemorySample, ProcessHistory, TaskSpan
from workerdiag.wire.black_box import BlackBox, RunningTask, Sample
from workerdiag.wire.messages import CgroupCounters, DeathReport
from workerdiag.wire.recorded_death import RecordedDeath
from workerdiag.wire.removal import HeartbeatTask, RemovalRecord

#: Maximum number of tasks in one history: those running at the end, then the last that ended before.
MAX_TASKS = 60
#: Maximum number of keys of assigned tasks.
_MAX_KEYS = 500
_THREAD_CHARS = 100


def process_history(death: RecordedDeath, identity: Identity) -> ProcessHistory | None:
    """Return memory, limits and tasks from a worker's black box; None without one."""
    report = death.report
    if report is None or report.box is None:
        return None
    group = report.cgroup or CgroupCounters()
    return ProcessHistory(
        identity=identity,
        samples=tuple(_memory_sample(each) for each in report.box.samples),
        limits=_memory_limits(report, report.box),
        tasks=tuple(_task_spans(report, report.box)),
        group_peak_bytes=group.peak_bytes if group.limit_bytes else None,
        recorded=True,
        when=death.at,
    )


def _memory_sample(sample: Sample) -> MemorySample:
    return MemorySample(
        at=sample.at,
        process_bytes=sample.process_rss_bytes,
        managed_bytes=sample.managed_bytes,
        spilled_bytes=sample.spilled_bytes,
        # The cgroup of a whole machine or login includes the memory of others.
        group_bytes=sample.cgroup_current_bytes if sample.cgroup_limit_bytes else None,
    )


def _memory_limits(report: DeathReport, box: BlackBox) -> MemoryLimits:
    last = box.samples[-1] if box.samples else Sample(at=0.0)
    group = report.cgroup or CgroupCounters()
    return MemoryLimits(
        worker_bytes=last.memory_limit_bytes or report.memory_limit_bytes or None,
        group_bytes=last.cgroup_limit_bytes or group.limit_bytes or None,
        spill_fraction=_fraction(box.identity, "memory_spill"),
        pause_fraction=_fraction(box.identity, "memory_pause"),
        terminate_fraction=report.terminate_fraction or None,
    )


def _fraction(names: Mapping[str, str], name: str) -> float | None:
    """Return a fraction of the memory limit from the box; None if it is missing or switched off."""
    try:
        value = float(names.get(name, ""))
    except ValueError:
        return None
    return value if 0 < value <= 1 else None


def _task_spans(report: DeathReport, box: BlackBox) -> Iterator[TaskSpan]:
    """Yield the tasks, oldest first; a thread of unknown name is named by its slot."""
    running = report.running_tasks or ()
    names = {each.slot: each.thread_name for each in running if each.slot is not None and each.thread_name}
    spans = [
        TaskSpan(
            key=each.key,
            thread=_thread(names, each.slot),
            started_at=each.started_at,
            ended_at=each.ended_at,
        )
        for each in box.finished_tasks
    ]
    at_the_end = [
        TaskSpan(
            key=each.key,
            thread=_thread(names, each.slot) or each.thread_name[:_THREAD_CHARS],
            started_at=each.started_at,
            ended_at=each.ended_at,
            crashed=each.is_on_crashed_thread,
        )
        for each in running
        if each.started_at is not None
    ]
    room = max(0, MAX_TASKS - len(at_the_end))
    yield from (*spans[len(spans) - min(room, len(spans)) :], *at_the_end[:MAX_TASKS])


def _thread(names: Mapping[int, str], slot: int | None) -> str:
    if slot is None:
        return ""
    return names.get(slot, f"slot {slot}")[:_THREAD_CHARS]


def tasks_at_loss(death: RecordedDeath, identity: Identity) -> TasksAtLoss | None:
    """Return the tasks that were on the worker; None if neither scheduler nor black box knows.

    A task that ran at the last heartbeat and was unfinished at the loss was still running. Other assigned
    tasks may have begun since, unless all threads already had a task.
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
    """Return the running tasks, if the box has all of them; a box too long to be sent had all."""
    if report is None or (report.box is not None and not report.box.has_all_running_tasks):
        return None
    return report.running_tasks


def _full_key(task: RunningTask, known: Collection[str]) -> str:
    """Return the key of a task; a key truncated in the box is completed if only one known key begins so."""
    if not task.is_clipped:
        return task.key
    begun = [each for each in dict.fromkeys(known) if each.startswith(task.key)]
    return begun[0] if len(begun) == 1 else task.key


def _end_time(report: DeathReport, running: Sequence[RunningTask]) -> float | None:
    """Return when the process ended, by its machine's clock, which box and nanny share."""
    written_at = report.box.written_at if report.box is not None else None
    times = [report.noticed_at, written_at, *(each.started_at for each in running)]
    return max((each for each in times if each is not None), default=None)


def _running_s(task: RunningTask, end: float | None) -> float | None:
    if task.started_at is None or end is None:
        return None
    return max(0.0, round(end - task.started_at, 3))


def _running_s_by_heartbeat(task: HeartbeatTask, record: RemovalRecord) -> float | None:
    """Return the seconds that a task had run at the loss: up to the heartbeat, plus the heartbeat's age."""
    age_s = record.last_heartbeat.age_s or 0.0
    return None if task.running_s is None else round(task.running_s + age_s, 3)


def _are_all_threads_busy(record: RemovalRecord, tasks: Sequence[str]) -> bool:
    occupied = sum(each not in record.seceded_keys for each in tasks)
    return record.nthreads is not None and occupied >= record.nthreads
