"""
From recorded deaths to evidence: flat, bounded, with whose each fact is.

What is read here went over the network and may have been written by anybody, so nothing of its shape is
taken for granted. docs/recorder.md has the shape that it should have.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from workerdiag.model.evidence import (
    Event,
    Evidence,
    Identity,
    LogChunk,
    Looked,
    MemoryReading,
)
from workerdiag.sources.addresses import identity_of
from workerdiag.sources.recorder.executing import executing
from workerdiag.sources.recorder.exit import SAID_BY, ending
from workerdiag.sources.recorder.selection import Death, together

_Fields = dict[str, str | int | float | bool | None]

#: The only signal that the kernel kills with for want of memory (``man 7 signal``).
_SIGKILL = 9
_TEXT_CHARS = 2000
_LINES_CHARS = 64 * 1024
#: A message of a nanny is smaller than that.
_BOX_CHARS = 64 * 1024
_MOST_NAMED = 20
#: How a dump begins (CPython, Modules/faulthandler.c).
_DUMP = "Fatal Python error: "
#: Reasons that a nanny has for its worker's end, which are none of the worker's making.
_PLAIN = ("nanny_status", "asked", "memory_terminated", "terminate_fraction", "late", "nanny_lives")


def of_deaths(deaths: Sequence[Death]) -> Iterator[Evidence]:
    """
    The evidence of each death, oldest first.
    """
    for death in deaths:
        yield from _of_death(death, together(death, deaths))


def _of_death(death: Death, others: Sequence[str]) -> Iterator[Evidence]:
    whose = identity_of(
        worker=death.worker, pid=death.get("pid"), nanny=death.get("nanny"), name=death.get("name")
    ).joined(Identity(boot_id=_text(death.told.get("boot_id"))))
    if death.record:
        yield _removal(death, whose)
    yield Event(topic="recorder", fields=_facts(death, others), when=death.when or None, whose=whose)
    if box := _map(death.told.get("box")):
        yield _box(box, death, whose)
    yield from ending(death, whose)
    if (tasks := executing(death, whose)) is not None:
        yield tasks
    yield from _memory(death, whose)
    yield from _counters(death, whose)
    yield from _words(death, whose)
    yield Looked(place=SAID_BY, whose=whose)


def _removal(death: Death, whose: Identity) -> Event:
    """
    The scheduler's own event, worded as it is by `workerdiag.sources.cluster`, which finds it for an hour.
    """
    keys = sorted(map(str, _list(death.record.get("assigned"))))
    fields: _Fields = {
        "action": "remove-worker",
        "processing": ", ".join(keys[:_MOST_NAMED])[:4000],
        "processing_count": _number(death.record.get("assigned_count")),
        "stimulus_id": _text(death.record.get("stimulus_id")),
        "expected": death.record.get("expected") is True,
    }
    return Event(topic=whose.worker or "recorder", fields=fields, when=death.when or None, whose=whose)


def _box(box: Mapping[str, Any], death: Death, whose: Identity) -> Event:
    """
    The black box as its nanny read it, for a death bundle and for rules to come; no sign looks at it today.
    """
    content = json.dumps(box, default=str)[:_BOX_CHARS]
    return Event(topic="black-box", fields={"content": content}, when=death.when or None, whose=whose)


def _facts(death: Death, others: Sequence[str]) -> _Fields:
    """
    What is known of the death, in one event.
    """
    record, told = death.record, death.told
    exit_, box, heard = _map(told.get("exit")), _map(told.get("box")), _map(record.get("heard"))
    last = _last_sample(death)
    fields: _Fields = {
        "told_by": ", ".join(str(each["source"])[:20] for each in (record, told) if each.get("source")),
        "stimulus_id": _text(record.get("stimulus_id")),
        "expected": record["expected"] is True if "expected" in record else None,
        "reason": _text(record.get("reason")),
        "exit_signal": _number(exit_.get("signal")),
        "exit_status": _number(exit_.get("status")),
        "state": _text(box.get("state")),
        "paused": _was_paused(record) if record else None,
        "rss_bytes": _number(last.get("process_rss_bytes", heard.get("rss_bytes"))),
        "managed_bytes": _number(last.get("managed_bytes", heard.get("managed_bytes"))),
        "spilled_bytes": _number(last.get("spilled_bytes", heard.get("spilled_bytes"))),
        "host_available_bytes": _number(last.get("host_available_bytes")),
        "open_files": _number(last.get("open_files", heard.get("open_files"))),
        "open_files_limit": _number(last.get("open_files_limit")),
        "thread_count": _number(last.get("thread_count")),
        "children_peak_rss_bytes": _number(told.get("children_peak_rss_bytes")),
        "seconds_since_heartbeat": _number(heard.get("age_s")),
        "co_victims": ", ".join(others[:_MOST_NAMED]) or None,
        "co_victims_count": len(others) if record else None,
        "ended_suddenly": _ended_suddenly(told) or None,
    }
    fields |= {name: _plain(told.get(name)) for name in _PLAIN}
    return {name: value for name, value in fields.items() if value is not None}


def _ended_suddenly(told: Mapping[str, Any]) -> bool:
    """
    Whether no code of the process ran any more: of what can be caught, its box would tell.
    """
    exit_, box = _map(told.get("exit")), _map(told.get("box"))
    if told.get("source") != "orphan" or exit_.get("signal") is not None or exit_.get("status") is not None:
        return False
    no_dump = "faulthandler" in str(_map(box.get("identity")).get("missing", ""))
    return box.get("state") == "running" and not box.get("fault") and not no_dump


def _was_paused(record: Mapping[str, Any]) -> bool:
    changes = [each for each in _list(record.get("changes")) if isinstance(each, Mapping)]
    return bool(changes) and changes[-1].get("to") == "paused"


def _memory(death: Death, whose: Identity) -> Iterator[MemoryReading]:
    """
    The last that was measured: by the process itself each second, else with its last heartbeat.
    """
    last, heard = _last_sample(death), _map(death.record.get("heard"))
    limit = _number(last.get("memory_limit_bytes")) or _number(death.record.get("limit_bytes"))
    limit = limit or _number(death.told.get("memory_limit_bytes"))
    rss = _number(last.get("process_rss_bytes"))
    when = _number(last.get("when")) if rss else _number(heard.get("when"))
    rss = rss or _number(heard.get("rss_bytes"))
    if rss or limit:
        yield MemoryReading(
            whose=whose,
            rss_bytes=int(rss) if rss else None,
            limit_bytes=int(limit) if limit else None,
            when=when,
        )


def _counters(death: Death, whose: Identity) -> Iterator[Event]:
    """
    What the control group counted between the last sample, or the start of the process, and its end.

    A kill is this process's where it died of SIGKILL and the group has a limit of its own; the group of a
    whole machine, or of a login, counts the kills of others as well.
    """
    group = _map(death.told.get("cgroup"))
    before, after = _number(group.get("oom_kills_before")), _number(group.get("oom_kills_after"))
    sampled = _number(_last_sample(death).get("cgroup_oom_kills"))
    if before is not None and sampled is not None and before <= sampled <= (after or 0):
        before = sampled
    if before is None or after is None or after < before:
        return
    limit = _number(group.get("limit_bytes"))
    killed = _map(death.told.get("exit")).get("signal") == _SIGKILL
    count = int(after - before)
    name = "oom_kill" if count == 0 or (killed and limit) else "oom_kill_in_group" if killed else None
    if name is None:
        return
    fields: _Fields = {
        name: count,
        "path": _text(group.get("path")),
        "version": _plain(group.get("version")),
        "memory_limit_bytes": limit,
        "current_bytes": _number(group.get("current_bytes")),
        "peak_bytes": _number(group.get("peak_bytes")),
    }
    known = {key: value for key, value in fields.items() if value is not None}
    yield Event(topic="cgroup", fields=known, when=death.when or None, whose=whose)


def _words(death: Death, whose: Identity) -> Iterator[LogChunk]:
    """
    What the worker logged last, and what faulthandler wrote.
    """
    box = _map(death.told.get("box"))
    of = whose.worker or (f"process {whose.pid}" if whose.pid else "a worker")
    for name, title in (("lines", "last lines"), ("fault", "faulthandler's dump")):
        text = box.get(name)
        if isinstance(text, str) and name == "fault":
            text = _first_dump(text)
        if isinstance(text, str) and text.strip():
            data = text[-_LINES_CHARS:].encode("utf-8", "replace")
            yield LogChunk(origin=f"{SAID_BY}, {title} of {of}", data=data, stream="worker", whose=whose)
    yield from _printed(death, whose, of)


def _first_dump(text: str) -> str:
    """
    What faulthandler wrote for the first signal: it can itself crash while it walks other threads' stacks.
    """
    again = text.find(_DUMP, text.find(_DUMP) + 1)
    return text if again < 0 else text[:again]


def _printed(death: Death, whose: Identity, of: str) -> Iterator[LogChunk]:
    """
    What came to standard error past Python, from C libraries above all.

    In a file that other workers write to as well, nobody knows whose it is; it then has the host alone.
    """
    said = _map(death.told.get("stderr"))
    text = said.get("text")
    if not isinstance(text, str) or not text.strip():
        return
    title = f"standard error of {of}"
    if said.get("from") != "copy":
        title = f"the file that standard error of {of} goes to, shared by all that write there"
    if said.get("shared") is not False:
        whose = Identity(host=whose.host, boot_id=whose.boot_id)
    data = text[-_LINES_CHARS:].encode("utf-8", "replace")
    yield LogChunk(origin=f"{SAID_BY}, {title}", data=data, stream="worker", whose=whose)


def _last_sample(death: Death) -> Mapping[str, Any]:
    samples = _list(_map(death.told.get("box")).get("samples"))
    return _map(samples[-1]) if samples else {}


def _map(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _number(value: object) -> int | float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _text(value: object) -> str | None:
    return value[:_TEXT_CHARS] if isinstance(value, str) and value else None


def _plain(value: object) -> str | int | float | bool | None:
    return (
        value if isinstance(value, bool) else _number(value) if not isinstance(value, str) else _text(value)
    )
