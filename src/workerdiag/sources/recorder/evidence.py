"""
From recorded deaths to evidence: flat, bounded, with whose each fact is.

What is read here went over the network and may have been written by anybody, so nothing of its shape is
taken for granted. docs/recorder.md has the shape that it should have.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from workerdiag.model.evidence import Event, Evidence, Inspected, LogChunk, MemoryReading
from workerdiag.model.identity import Identity
from workerdiag.sources.addresses import identity_of
from workerdiag.sources.recorder.executing import executing_evidence
from workerdiag.sources.recorder.exit import exit_evidence
from workerdiag.sources.recorder.selection import RecordedDeath, lost_together
from workerdiag.wire.constants import RECORDER

_Fields = dict[str, str | int | float | bool | None]

#: The only signal that the kernel kills with for want of memory (``man 7 signal``).
_SIGKILL = 9
_TEXT_CHARS = 2000
_LINES_CHARS = 64 * 1024
#: A message of a nanny is smaller than that.
_BOX_CHARS = 64 * 1024
_MAX_NAMED = 20
#: How a dump begins (CPython, Modules/faulthandler.c).
_DUMP = "Fatal Python error: "
#: Reasons that a nanny has for its worker's end, which are none of the worker's making.
_PLAIN_FIELDS = ("nanny_status", "asked", "memory_terminated", "terminate_fraction", "late", "nanny_lives")


def death_evidence(deaths: Sequence[RecordedDeath]) -> Iterator[Evidence]:
    """
    The evidence of each death, oldest first.
    """
    for death in deaths:
        yield from _evidence_of(death, lost_together(death, deaths))


def _evidence_of(death: RecordedDeath, others: Sequence[str]) -> Iterator[Evidence]:
    identity = identity_of(
        worker=death.worker, pid=death.get("pid"), nanny=death.get("nanny"), name=death.get("name")
    ).merged_with(Identity(boot_id=_clipped_text_or_none(death.report.get("boot_id"))))
    if death.record:
        yield _removal_event(death, identity)
    yield Event(
        topic="recorder", fields=_death_fields(death, others), when=death.when or None, identity=identity
    )
    if box := _mapping_or_empty(death.report.get("box")):
        yield _box_event(box, death, identity)
    yield from exit_evidence(death, identity)
    if (tasks := executing_evidence(death, identity)) is not None:
        yield tasks
    yield from _memory_readings(death, identity)
    yield from _cgroup_events(death, identity)
    yield from _output_chunks(death, identity)
    yield Inspected(place=RECORDER, identity=identity)


def _removal_event(death: RecordedDeath, identity: Identity) -> Event:
    """
    The scheduler's own event, worded as it is by `workerdiag.sources.cluster`, which finds it for an hour.
    """
    keys = sorted(map(str, _list_or_empty(death.record.get("assigned"))))
    fields: _Fields = {
        "action": "remove-worker",
        "processing": ", ".join(keys[:_MAX_NAMED])[:4000],
        "processing_count": _number_or_none(death.record.get("assigned_count")),
        "stimulus_id": _clipped_text_or_none(death.record.get("stimulus_id")),
        "expected": death.record.get("expected") is True,
    }
    return Event(
        topic=identity.worker or "recorder", fields=fields, when=death.when or None, identity=identity
    )


def _box_event(box: Mapping[str, Any], death: RecordedDeath, identity: Identity) -> Event:
    """
    The black box as its nanny read it, for a death bundle and for rules to come; no sign looks at it today.
    """
    content = json.dumps(box, default=str)[:_BOX_CHARS]
    return Event(topic="black-box", fields={"content": content}, when=death.when or None, identity=identity)


def _death_fields(death: RecordedDeath, others: Sequence[str]) -> _Fields:
    """
    What is known of the death, in one event.
    """
    record, report = death.record, death.report
    exit_, box, heartbeat = (
        _mapping_or_empty(report.get("exit")),
        _mapping_or_empty(report.get("box")),
        _mapping_or_empty(record.get("heard")),
    )
    last = _last_sample(death)
    fields: _Fields = {
        "told_by": ", ".join(str(each["source"])[:20] for each in (record, report) if each.get("source")),
        "stimulus_id": _clipped_text_or_none(record.get("stimulus_id")),
        "expected": record["expected"] is True if "expected" in record else None,
        "reason": _clipped_text_or_none(record.get("reason")),
        "exit_signal": _number_or_none(exit_.get("signal")),
        "exit_status": _number_or_none(exit_.get("status")),
        "state": _clipped_text_or_none(box.get("state")),
        "paused": _was_paused(record) if record else None,
        "rss_bytes": _number_or_none(last.get("process_rss_bytes", heartbeat.get("rss_bytes"))),
        "managed_bytes": _number_or_none(last.get("managed_bytes", heartbeat.get("managed_bytes"))),
        "spilled_bytes": _number_or_none(last.get("spilled_bytes", heartbeat.get("spilled_bytes"))),
        "host_available_bytes": _number_or_none(last.get("host_available_bytes")),
        "open_files": _number_or_none(last.get("open_files", heartbeat.get("open_files"))),
        "open_files_limit": _number_or_none(last.get("open_files_limit")),
        "thread_count": _number_or_none(last.get("thread_count")),
        "children_peak_rss_bytes": _number_or_none(report.get("children_peak_rss_bytes")),
        "seconds_since_heartbeat": _number_or_none(heartbeat.get("age_s")),
        "co_victims": ", ".join(others[:_MAX_NAMED]) or None,
        "co_victims_count": len(others) if record else None,
        "ended_suddenly": _ended_suddenly(report) or None,
    }
    fields |= {name: _plain_or_none(report.get(name)) for name in _PLAIN_FIELDS}
    return {name: value for name, value in fields.items() if value is not None}


def _ended_suddenly(report: Mapping[str, Any]) -> bool:
    """
    Whether no code of the process ran any more: of what can be caught, its box would tell.
    """
    exit_, box = _mapping_or_empty(report.get("exit")), _mapping_or_empty(report.get("box"))
    if report.get("source") != "orphan" or exit_.get("signal") is not None or exit_.get("status") is not None:
        return False
    no_dump = "faulthandler" in str(_mapping_or_empty(box.get("identity")).get("missing", ""))
    return box.get("state") == "running" and not box.get("fault") and not no_dump


def _was_paused(record: Mapping[str, Any]) -> bool:
    changes = [each for each in _list_or_empty(record.get("changes")) if isinstance(each, Mapping)]
    return bool(changes) and changes[-1].get("to") == "paused"


def _memory_readings(death: RecordedDeath, identity: Identity) -> Iterator[MemoryReading]:
    """
    The last that was measured: by the process itself each second, else with its last heartbeat.
    """
    last, heartbeat = _last_sample(death), _mapping_or_empty(death.record.get("heard"))
    limit = _number_or_none(last.get("memory_limit_bytes")) or _number_or_none(
        death.record.get("limit_bytes")
    )
    limit = limit or _number_or_none(death.report.get("memory_limit_bytes"))
    rss = _number_or_none(last.get("process_rss_bytes"))
    when = _number_or_none(last.get("when")) if rss else _number_or_none(heartbeat.get("when"))
    rss = rss or _number_or_none(heartbeat.get("rss_bytes"))
    if rss or limit:
        yield MemoryReading(
            identity=identity,
            rss_bytes=int(rss) if rss else None,
            limit_bytes=int(limit) if limit else None,
            when=when,
        )


def _cgroup_events(death: RecordedDeath, identity: Identity) -> Iterator[Event]:
    """
    What the control group counted between the last sample, or the start of the process, and its end.

    A kill is this process's where it died of SIGKILL and the group has a limit of its own; the group of a
    whole machine, or of a login, counts the kills of others as well.
    """
    group = _mapping_or_empty(death.report.get("cgroup"))
    before, after = (
        _number_or_none(group.get("oom_kills_before")),
        _number_or_none(group.get("oom_kills_after")),
    )
    sampled = _number_or_none(_last_sample(death).get("cgroup_oom_kills"))
    if before is not None and sampled is not None and before <= sampled <= (after or 0):
        before = sampled
    if before is None or after is None or after < before:
        return
    limit = _number_or_none(group.get("limit_bytes"))
    killed = _mapping_or_empty(death.report.get("exit")).get("signal") == _SIGKILL
    count = int(after - before)
    name = "oom_kill" if count == 0 or (killed and limit) else "oom_kill_in_group" if killed else None
    if name is None:
        return
    fields: _Fields = {
        name: count,
        "path": _clipped_text_or_none(group.get("path")),
        "version": _plain_or_none(group.get("version")),
        "memory_limit_bytes": limit,
        "current_bytes": _number_or_none(group.get("current_bytes")),
        "peak_bytes": _number_or_none(group.get("peak_bytes")),
    }
    known = {key: value for key, value in fields.items() if value is not None}
    yield Event(topic="cgroup", fields=known, when=death.when or None, identity=identity)


def _output_chunks(death: RecordedDeath, identity: Identity) -> Iterator[LogChunk]:
    """
    What the worker logged last, and what faulthandler wrote.
    """
    box = _mapping_or_empty(death.report.get("box"))
    of = identity.worker or (f"process {identity.pid}" if identity.pid else "a worker")
    for name, title in (("lines", "last lines"), ("fault", "faulthandler's dump")):
        text = box.get(name)
        if isinstance(text, str) and name == "fault":
            text = _first_dump(text)
        if isinstance(text, str) and text.strip():
            data = text[-_LINES_CHARS:].encode("utf-8", "replace")
            yield LogChunk(
                origin=f"{RECORDER}, {title} of {of}", data=data, stream="worker", identity=identity
            )
    yield from _stderr_chunks(death, identity, of)


def _first_dump(text: str) -> str:
    """
    What faulthandler wrote for the first signal: it can itself crash while it walks other threads' stacks.
    """
    again = text.find(_DUMP, text.find(_DUMP) + 1)
    return text if again < 0 else text[:again]


def _stderr_chunks(death: RecordedDeath, identity: Identity, of: str) -> Iterator[LogChunk]:
    """
    What came to standard error past Python, from C libraries above all.

    In a file that other workers write to as well, nobody knows whose it is; it then has the host alone.
    """
    stderr = _mapping_or_empty(death.report.get("stderr"))
    text = stderr.get("text")
    if not isinstance(text, str) or not text.strip():
        return
    title = f"standard error of {of}"
    if stderr.get("from") != "copy":
        title = f"the file that standard error of {of} goes to, shared by all that write there"
    if stderr.get("shared") is not False:
        identity = Identity(host=identity.host, boot_id=identity.boot_id)
    data = text[-_LINES_CHARS:].encode("utf-8", "replace")
    yield LogChunk(origin=f"{RECORDER}, {title}", data=data, stream="worker", identity=identity)


def _last_sample(death: RecordedDeath) -> Mapping[str, Any]:
    samples = _list_or_empty(_mapping_or_empty(death.report.get("box")).get("samples"))
    return _mapping_or_empty(samples[-1]) if samples else {}


def _mapping_or_empty(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list_or_empty(value: object) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _number_or_none(value: object) -> int | float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _clipped_text_or_none(value: object) -> str | None:
    return value[:_TEXT_CHARS] if isinstance(value, str) and value else None


def _plain_or_none(value: object) -> str | int | float | bool | None:
    return (
        value
        if isinstance(value, bool)
        else _number_or_none(value)
        if not isinstance(value, str)
        else _clipped_text_or_none(value)
    )
