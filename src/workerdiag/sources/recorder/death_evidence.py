"""Recorded deaths as evidence: flat and bounded, each fact with its identity.

A black box also gives a worker's last minutes: its memory, its limits, and the tasks that ran when it was lost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from attrs import evolve

from workerdiag.model.evidence import Event, Evidence, Inspected, LogChunk, MemoryReading, ProcessExit, TasksAtLoss
from workerdiag.model.identity import Identity, identity_of
from workerdiag.model.normalize import EventValue, decimal
from workerdiag.model.process_end import TOGETHER_S
from workerdiag.model.stop_reasons import is_stop_request
from workerdiag.model.timeline import CodeLine, MemoryLimits, MemorySample, ProcessHistory, TaskSpan
from workerdiag.wire import RECORDER
from workerdiag.wire.black_box import BlackBox, RunningTask, Sample
from workerdiag.wire.messages import CgroupCounters, DeathReport, ExitReport, Heartbeat, RemovalRecord, RescueAct
from workerdiag.wire.plain import to_plain
from workerdiag.wire.recorded_death import RecordedDeath, identity_of_death

#: Reporters of an exit that no parent process saw.
_BY_BOX, _BY_DUMP = f"{RECORDER} (its black box)", f"{RECORDER} (faulthandler's dump)"
_TEXT_CHARS = 2000
_MAX_NAMED = 20
#: How a dump begins (CPython, Modules/faulthandler.c).
_DUMP = "Fatal Python error: "


#: A line of a logger of Dask's servers, with or without its time, and what faulthandler or a table ends with.
_LOG_LINE = re.compile(
    r"(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\S* - )?(?:distributed|tornado|asyncio)[\w.]* - "
    r"|Extension modules: |File \"|(?:Current t|T)hread 0x|[-+|]+$"
)


def death_evidence(deaths: Sequence[RecordedDeath]) -> Iterator[Evidence]:
    """Yield the evidence of each death, oldest first."""
    for death in deaths:
        yield from evidence_of_one(death, deaths)


def evidence_of_one(death: RecordedDeath, deaths: Sequence[RecordedDeath]) -> Iterator[Evidence]:
    """Yield the evidence of one of the *deaths*."""
    identity, report = identity_of_death(death), death.report
    if death.record is not None:
        yield _removal_event(death.record, death, identity)
    yield _event("recorder", _death_fields(death, _lost_together(death, deaths)), death, identity)
    if report is not None:
        if report.box is not None:  # for death bundles and future rules; no sign uses it today
            content = json.dumps(to_plain(report.box), default=str)[: 64 * 1024]
            yield Event(topic="black-box", fields={"content": content}, when=death.at, identity=identity)
        yield from _end(report, death, identity)
    if (tasks := tasks_at_loss(death, identity)) is not None:
        yield tasks
    yield from _memory_readings(death, identity)
    if (history := process_history(death, identity)) is not None:
        yield history
    if report is not None:
        yield from _cgroup_events(report, death, identity)
        yield from _output_chunks(report, identity)
        if line := _last_line(report):
            fields = {"line": line[:_TEXT_CHARS]}
            yield Event(topic="last-output", fields=fields, when=death.at, identity=identity)
    for act in death.acts:
        yield evolve(act_event(act), identity=identity)
    yield Inspected(place="flight recorder", identity=identity)


def act_event(act: RescueAct) -> Event:
    """Return the event of what `workerdiag.rescue` did, or would have done."""
    text = f"{'Dry run: ' if act.is_dry_run else ''}{act.text}"[:_TEXT_CHARS]
    identity = identity_of(worker=act.worker_address, pid=act.pid)
    fields = {
        "act": act.act,
        "text": text,
        "threads": act.threads,
        "has_sufficed": act.has_sufficed,
        "sufficient_memory_bytes": act.sufficient_memory_bytes,
    }
    return Event(topic="rescue", fields=fields, when=act.at, identity=identity)


def _event(topic: str, fields: Mapping[str, EventValue], death: RecordedDeath, identity: Identity) -> Event:
    known = {
        name: value[:_TEXT_CHARS] if isinstance(value, str) else value
        for name, value in fields.items()
        if value not in (None, "")
    }
    return Event(topic=topic, fields=known, when=death.at, identity=identity)


def _removal_event(record: RemovalRecord, death: RecordedDeath, identity: Identity) -> Event:
    fields: dict[str, EventValue] = {
        "action": "remove-worker",
        "processing": ", ".join(sorted(record.assigned_keys)[:_MAX_NAMED])[:4000],
        "processing_count": record.assigned_count,
        "lost-computed-tasks_count": record.lost_result_count,
        "stimulus_id": record.stimulus_id,
        "expected": record.is_expected,
    }
    return Event(topic=identity.worker or "recorder", fields=fields, when=death.at, identity=identity)


def _death_fields(death: RecordedDeath, others: Sequence[str]) -> dict[str, EventValue]:
    record, report = death.record, death.report
    heartbeat = record.last_heartbeat if record is not None else Heartbeat()
    last = _last_sample(report)
    fields: dict[str, EventValue] = {
        "reported_by": ", ".join(each.kind for each in (record, report) if each is not None),
        "rss_bytes": _either(_killed_at(report), _either(last.process_rss_bytes, heartbeat.rss_bytes)),
        "managed_bytes": _either(last.managed_bytes, heartbeat.managed_bytes),
        "spilled_bytes": _either(last.spilled_bytes, heartbeat.spilled_bytes),
        "open_files": _either(last.open_files, heartbeat.open_files),
        "host_available_bytes": last.host_available_bytes,
        "open_files_limit": last.open_files_limit,
        "thread_count": last.thread_count,
        "seconds_since_heartbeat": heartbeat.age_s,
        "lost_together": ", ".join(others[:_MAX_NAMED]),
    }
    if record is not None:
        fields |= {
            "stimulus_id": record.stimulus_id,
            "expected": record.is_expected,
            "reason": record.close_reason,
            "paused": record.was_paused,
            "lost_together_count": len(others),
        }
    if report is None:
        return fields
    exit_ = report.exit or ExitReport()
    return fields | {
        "exit_signal": exit_.signal,
        "exit_status": exit_.status,
        "stage": report.box.stage if report.box is not None else None,
        "nanny_status": report.nanny_status,
        "stop_requested": report.stop_requested,
        "memory_terminated": report.is_memory_terminated or None,
        "terminate_fraction": report.terminate_fraction,
        "children_peak_rss_bytes": report.children_peak_rss_bytes,
        "late": report.is_late or None,
        "nanny_running": report.is_nanny_running,
        "ended_suddenly": _ended_suddenly(report) or None,
    }


def _ended_suddenly(report: DeathReport) -> bool:
    """Whether the process died without running any more code: its box would show a signal that can be caught."""
    box = report.box
    return (
        report.kind == "box-found"
        and report.exit is None
        and box is not None
        and box.stage == "running"
        and not box.faulthandler_dump
        and "fatal-signals" not in box.missing
    )


def _end(report: DeathReport, death: RecordedDeath, identity: Identity) -> Iterator[Event | ProcessExit]:
    """Yield the stop request, if there was one, and the exit as far as known.

    A process that only its nanny knew, and that was asked to stop, is not a death.
    """
    exit_, box = report.exit or ExitReport(), report.box or BlackBox()
    if report.kind == "box-found" and death.record is None:
        if box.stage in ("closing", "closed") and is_stop_request(box.close_reason):
            yield _stop_request("reason", box.close_reason, death, identity)
            return
        reporter = _BY_BOX if exit_.signal is None else _BY_DUMP
        yield ProcessExit(identity=identity, signal=exit_.signal, when=death.at, reporter=reporter)
        return
    if death.was_asked_to_stop:
        yield _stop_request("nanny_status", report.nanny_status, death, identity)
    if exit_.known_by == "unreadable-code" or (exit_.signal, exit_.status) == (None, None):
        return
    if death.record is None and report.stop_requested is not None:
        return
    yield ProcessExit(
        identity=identity,
        signal=exit_.signal,
        status=exit_.status,
        when=death.at,
        reporter=RECORDER if exit_.known_by == "nanny" else _BY_DUMP,
    )


def _stop_request(name: str, why: str | None, death: RecordedDeath, identity: Identity) -> Event:
    fields: dict[str, EventValue] = {"action": "asked-to-stop", name: why[:200] if why else None}
    return Event(topic="recorder", fields=fields, when=death.at, identity=identity)


def _memory_readings(death: RecordedDeath, identity: Identity) -> Iterator[MemoryReading]:
    """Yield the last reading: the process's own, taken each second, or else that of its last heartbeat."""
    record, report, last = death.record, death.report, _last_sample(death.report)
    heartbeat = record.last_heartbeat if record is not None else Heartbeat()
    limits = (last.memory_limit_bytes, *(each.memory_limit_bytes for each in (record, report) if each))
    limit = next(filter(None, limits), None)
    rss = _killed_at(report) or last.process_rss_bytes or heartbeat.rss_bytes or None
    if rss or limit:
        at = last.at if last.process_rss_bytes else heartbeat.at
        if report is not None and report.memory_at_kill is not None and _killed_at(report):
            at = report.memory_at_kill.at
        yield MemoryReading(identity=identity, rss_bytes=rss, limit_bytes=limit, when=at)


def _cgroup_events(report: DeathReport, death: RecordedDeath, identity: Identity) -> Iterator[Event]:
    """Yield what the cgroup counted between the last sample, or the process's start, and its end.

    A kill is this process's if it died of SIGKILL and the cgroup has its own limit. The cgroup of a whole
    machine or login also counts the kills of others.
    """
    group, last = report.cgroup, _last_sample(report)
    if group is None or group.oom_kills_before is None or group.oom_kills_after is None:
        return
    before, after = group.oom_kills_before, group.oom_kills_after
    if last.cgroup_oom_kills is not None and before <= last.cgroup_oom_kills <= after:
        before = last.cgroup_oom_kills
    if after < before:
        return
    killed = report.exit is not None and report.exit.signal == 9  # SIGKILL, the OOM killer's only signal
    is_own = after == before or (killed and group.limit_bytes)
    if not is_own and not killed:
        return
    fields: dict[str, EventValue] = {
        "oom_kill" if is_own else "oom_kill_in_group": after - before,
        "path": group.path,
        "version": group.version,
        "memory_limit_bytes": group.limit_bytes,
        "current_bytes": group.current_bytes,
        "peak_bytes": group.peak_bytes,
    }
    yield _event("cgroup", fields, death, identity)


def _last_line(report: DeathReport) -> str:
    """The last line that this process alone wrote on standard error, if no logger of Dask wrote it."""
    box, stderr = report.box or BlackBox(), report.stderr
    own = stderr.text if stderr is not None and not stderr.is_shared else ""
    lines = [line.strip() for text in (box.last_output, own) for line in text.splitlines()[-1:]]
    return next((line for line in reversed(lines) if line and not _LOG_LINE.match(line)), "")


def _output_chunks(report: DeathReport, identity: Identity) -> Iterator[LogChunk]:
    """Yield the worker's last log lines, faulthandler's dump, and text written to stderr outside Python.

    Text in a file that other workers also write to is attributed to the host alone.
    """
    of = identity.worker or (f"process {identity.pid}" if identity.pid else "a worker")
    box, stderr = report.box or BlackBox(), report.stderr
    yield from _chunk(f"last lines of {of}", box.last_output, identity)
    # faulthandler can itself crash while it walks other threads' stacks: the dump of the first signal counts.
    dump = box.faulthandler_dump
    again = dump.find(_DUMP, dump.find(_DUMP) + 1)
    yield from _chunk(f"faulthandler's dump of {of}", dump if again < 0 else dump[:again], identity)
    if stderr is None:
        return
    title = f"the file that standard error of {of} goes to, shared by all that write there"
    if stderr.is_shared:
        identity = Identity(host=identity.host, boot_id=identity.boot_id)
    yield from _chunk(title, stderr.text, identity)


def _chunk(title: str, text: str, identity: Identity) -> Iterator[LogChunk]:
    if text.strip():
        data = text[-(64 * 1024) :].encode("utf-8", "replace")
        yield LogChunk(origin=f"{RECORDER}, {title}", data=data, stream="worker", identity=identity)


def _last_sample(report: DeathReport | None) -> Sample:
    samples = report.box.samples if report is not None and report.box is not None else ()
    return samples[-1] if samples else Sample(at=0.0)


def _killed_at(report: DeathReport | None) -> int | None:
    """What the process held when its nanny ended it for its memory; None if it did not, or did not see that."""
    return report.memory_at_kill.rss_bytes if report is not None and report.memory_at_kill is not None else None


def _either(one: int | None, other: int | None) -> int | None:
    return other if one is None else one


def _lost_together(death: RecordedDeath, deaths: Sequence[RecordedDeath]) -> list[str]:
    """Return the addresses of other workers on its host that were lost unexpectedly within seconds of it."""
    host = death.record.address_host if death.record is not None else None
    return [
        each.identity.worker
        for each in deaths
        if each is not death
        and host
        and each.identity.worker
        and each.record is not None
        and each.record.address_host == host
        and not each.was_announced
        and abs(each.time - death.time) <= TOGETHER_S
    ]


#: Maximum number of tasks in one history: those running at the end, then the last that ended before.
MAX_TASKS = 60
_THREAD_CHARS = 100


def process_history(death: RecordedDeath, identity: Identity) -> ProcessHistory | None:
    """Return memory, limits and tasks from a worker's black box, and its nanny's last look; None without either."""
    report = death.report
    if report is None or (report.box is None and report.memory_at_kill is None):
        return None
    box, group, at_kill = report.box or BlackBox(), report.cgroup or CgroupCounters(), report.memory_at_kill
    samples = [
        MemorySample(
            at=each.at,
            process_bytes=each.process_rss_bytes,
            managed_bytes=each.managed_bytes,
            spilled_bytes=each.spilled_bytes,
            # The cgroup of a whole machine or login includes the memory of others.
            group_bytes=each.cgroup_current_bytes if each.cgroup_limit_bytes else None,
            asked_bytes=each.process_data_bytes,
        )
        for each in box.samples
    ]
    if at_kill is not None and at_kill.rss_bytes:
        samples.append(
            MemorySample(at=at_kill.at, process_bytes=at_kill.rss_bytes, asked_bytes=at_kill.asked_bytes)
        )
    return ProcessHistory(
        identity=identity,
        samples=tuple(samples),
        limits=_memory_limits(report, box),
        tasks=tuple(_task_spans(report, box)),
        censuses=box.censuses,
        at_kill=at_kill,
        group_peak_bytes=group.peak_bytes if group.limit_bytes else None,
        recorded=True,
        when=death.at,
    )


def _memory_limits(report: DeathReport, box: BlackBox) -> MemoryLimits:
    last = _last_sample(report)
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
    value = decimal(names.get(name))
    return value if value is not None and 0 < value <= 1 else None


def _task_spans(report: DeathReport, box: BlackBox) -> Iterator[TaskSpan]:
    """Yield the tasks, oldest first; a thread of unknown name is named by its slot."""
    running = report.running_tasks or ()
    names = {each.slot: each.thread_name for each in running if each.slot is not None and each.thread_name}
    spans = [
        TaskSpan(key=each.key, thread=_thread(names, each.slot), started_at=each.started_at, ended_at=each.ended_at)
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
    running = None  # unless the box has all of them; a box too long to be sent had all
    if report is not None and (report.box is None or report.box.has_all_running_tasks):
        running = report.running_tasks
    if death.record is None and running is None:
        return None
    assigned = record.assigned_keys[:500]
    by_heartbeat = record.executing_at_heartbeat
    known = [*assigned, *(each.key for each in by_heartbeat)]
    tasks = tuple(each.key for each in by_heartbeat)
    threads: tuple[str, ...] = ("",) * len(tasks)
    age_s = record.last_heartbeat.age_s or 0.0
    seconds = tuple(None if each.running_s is None else round(each.running_s + age_s, 3) for each in by_heartbeat)
    crashed: tuple[bool | None, ...] = (None,) * len(tasks)
    lines: tuple[CodeLine, ...] = ()
    if running is not None and report is not None:
        end = _end_time(report, running)
        tasks = tuple(_full_key(each, known) for each in running)
        threads = tuple(each.thread_name[:_THREAD_CHARS] for each in running)
        seconds = tuple(_running_s(each, end) for each in running)
        crashed = tuple(each.is_on_crashed_thread for each in running)
        if report.is_memory_terminated:
            at = zip(tasks, (each.line for each in running), strict=True)
            lines = tuple(evolve(line, task=key) for key, line in at if line is not None)
    occupied = sum(each not in record.seceded_keys for each in tasks)
    all_busy = record.nthreads is not None and occupied >= record.nthreads
    return TasksAtLoss(
        identity=identity,
        tasks=tasks,
        threads=threads,
        seconds=seconds,
        crashed=crashed,
        lines=lines,
        exact=running is not None,
        maybe_more=running is None and not all_busy,
        assigned=tuple(dict.fromkeys([*tasks, *assigned])),
        facts=record.task_facts,
        counted=death.record is not None and not record.is_expected,
        gave_up=tuple(each.key for each in record.given_up),
        allowed_failures=record.allowed_failures,
        when=death.at,
    )


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
