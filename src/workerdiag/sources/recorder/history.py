"""
The last minutes of a dead worker, from its black box.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from workerdiag.model.identity import Identity
from workerdiag.model.timeline import MemoryLimits, MemorySample, ProcessHistory, TaskSpan
from workerdiag.wire.black_box import BlackBox, Sample
from workerdiag.wire.messages import CgroupCounters, DeathReport
from workerdiag.wire.recorded_death import RecordedDeath

#: Tasks that one history has, at most: those that ran at the end, then the last that ended before.
MAX_TASKS = 60
_THREAD_CHARS = 100


def process_history(death: RecordedDeath, identity: Identity) -> ProcessHistory | None:
    """
    Memory, limits and tasks of a worker that recorded; None without a black box.
    """
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
        # The group of a whole machine or of a login holds what others use.
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
    """
    A share of the memory limit that the box tells; None where it does not, or where it is switched off.
    """
    try:
        value = float(names.get(name, ""))
    except ValueError:
        return None
    return value if 0 < value <= 1 else None


def _task_spans(report: DeathReport, box: BlackBox) -> Iterator[TaskSpan]:
    """
    The tasks, oldest first; a thread of which only the slot is known is called by that.
    """
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
