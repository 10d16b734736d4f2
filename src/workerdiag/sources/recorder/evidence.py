"""Converts recorded deaths to evidence: flat, bounded, each fact with its identity."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from workerdiag.model.evidence import Event, Evidence, Inspected, LogChunk, MemoryReading, ProcessExit
from workerdiag.model.identity import Identity
from workerdiag.model.normalize import EventValue
from workerdiag.model.process_end import TOGETHER_S
from workerdiag.model.stop_reasons import is_stop_request
from workerdiag.sources.addresses import identity_of_death
from workerdiag.sources.recorder.history import process_history, tasks_at_loss
from workerdiag.wire.black_box import BlackBox, Sample
from workerdiag.wire.constants import RECORDER
from workerdiag.wire.messages import DeathReport, ExitReport
from workerdiag.wire.plain import to_plain
from workerdiag.wire.recorded_death import RecordedDeath
from workerdiag.wire.removal import Heartbeat, RemovalRecord

#: Reporters of an exit that no parent process saw.
_BY_BOX, _BY_DUMP = f"{RECORDER} (its black box)", f"{RECORDER} (faulthandler's dump)"
#: The only signal of the OOM killer (``man 7 signal``).
_SIGKILL = 9
_TEXT_CHARS = 2000
_OUTPUT_CHARS = 64 * 1024
#: Upper bound of a nanny's report.
_BOX_CHARS = 64 * 1024
_MAX_NAMED = 20
#: How a dump begins (CPython, Modules/faulthandler.c).
_DUMP = "Fatal Python error: "


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
    if report is not None and report.box is not None:
        # For death bundles and future rules; no sign uses it today.
        content = json.dumps(to_plain(report.box), default=str)[:_BOX_CHARS]
        yield Event(topic="black-box", fields={"content": content}, when=death.at, identity=identity)
    if report is not None:
        yield from _end(report, death, identity)
    if (tasks := tasks_at_loss(death, identity)) is not None:
        yield tasks
    yield from _memory_readings(death, identity)
    if (history := process_history(death, identity)) is not None:
        yield history
    if report is not None:
        yield from _cgroup_events(report, death, identity)
        yield from _output_chunks(report, identity)
    yield Inspected(place="flight recorder", identity=identity)


def _event(topic: str, fields: Mapping[str, EventValue], death: RecordedDeath, identity: Identity) -> Event:
    """Return an event with the known fields, each text cut to size."""
    known = {
        name: value[:_TEXT_CHARS] if isinstance(value, str) else value
        for name, value in fields.items()
        if value not in (None, "")
    }
    return Event(topic=topic, fields=known, when=death.at, identity=identity)


def _removal_event(record: RemovalRecord, death: RecordedDeath, identity: Identity) -> Event:
    """Return the scheduler's removal event as `workerdiag.sources.cluster`, which has it for an hour, words it."""
    fields: dict[str, EventValue] = {
        "action": "remove-worker",
        "processing": ", ".join(sorted(record.assigned_keys)[:_MAX_NAMED])[:4000],
        "processing_count": record.assigned_count,
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
        "rss_bytes": _either(last.process_rss_bytes, heartbeat.rss_bytes),
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
    return fields if report is None else fields | _report_fields(report)


def _report_fields(report: DeathReport) -> dict[str, EventValue]:
    exit_ = report.exit or ExitReport()
    return {
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
    """Return the event of a request to stop the worker, or to its nanny to stop it or to close."""
    fields: dict[str, EventValue] = {"action": "asked-to-stop", name: why[:200] if why else None}
    return Event(topic="recorder", fields=fields, when=death.at, identity=identity)


def _memory_readings(death: RecordedDeath, identity: Identity) -> Iterator[MemoryReading]:
    """Yield the last reading: the process's own, taken each second, or else that of its last heartbeat."""
    record, report, last = death.record, death.report, _last_sample(death.report)
    heartbeat = record.last_heartbeat if record is not None else Heartbeat()
    limits = (last.memory_limit_bytes, *(each.memory_limit_bytes for each in (record, report) if each))
    limit = next(filter(None, limits), None)
    rss = last.process_rss_bytes or heartbeat.rss_bytes or None
    if rss or limit:
        at = last.at if last.process_rss_bytes else heartbeat.at
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
    killed = report.exit is not None and report.exit.signal == _SIGKILL
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


def _output_chunks(report: DeathReport, identity: Identity) -> Iterator[LogChunk]:
    """Yield the worker's last log lines, faulthandler's dump, and text written to stderr outside Python.

    Text in a file that other workers also write to is attributed to the host alone.
    """
    of = identity.worker or (f"process {identity.pid}" if identity.pid else "a worker")
    box, stderr = report.box or BlackBox(), report.stderr
    yield from _chunk(f"last lines of {of}", box.last_output, identity)
    yield from _chunk(f"faulthandler's dump of {of}", _first_dump(box.faulthandler_dump), identity)
    if stderr is None:
        return
    title = f"standard error of {of}"
    if stderr.origin == "file":
        title = f"the file that standard error of {of} goes to, shared by all that write there"
    if stderr.is_shared:
        identity = Identity(host=identity.host, boot_id=identity.boot_id)
    yield from _chunk(title, stderr.text, identity)


def _chunk(title: str, text: str, identity: Identity) -> Iterator[LogChunk]:
    if text.strip():
        data = text[-_OUTPUT_CHARS:].encode("utf-8", "replace")
        yield LogChunk(origin=f"{RECORDER}, {title}", data=data, stream="worker", identity=identity)


def _first_dump(text: str) -> str:
    """Return faulthandler's dump of the first signal: it can itself crash while it walks other threads' stacks."""
    again = text.find(_DUMP, text.find(_DUMP) + 1)
    return text if again < 0 else text[:again]


def _last_sample(report: DeathReport | None) -> Sample:
    samples = report.box.samples if report is not None and report.box is not None else ()
    return samples[-1] if samples else Sample(at=0.0)


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
