"""
What is told of a death: one message for the topic ``workerdiag-death`` of the scheduler's events.

A message is a plain dictionary that msgpack and JSON can hold, of at most 64 KiB. Its shape, number
`MESSAGE_SCHEMA`, is described in docs/recorder.md.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from workerdiag.wire.constants import MESSAGE_SCHEMA

if TYPE_CHECKING:
    from workerdiag.recorder.box.contents import BlackBox

MAX_BYTES = 64 * 1024

_LINES_BYTES = 16 * 1024
_FAULT_CHARS = 12 * 1024
_MAX_FINISHED = 20
_MAX_RUNNING = 64
#: faulthandler takes some milliseconds to write the stacks of all threads, on a busy machine tens of them.
_DUMP_S = 0.1
#: What faulthandler calls the signals it catches (CPython, Modules/faulthandler.c).
_FATAL_SIGNALS = {
    "Segmentation fault": signal.SIGSEGV,
    "Aborted": signal.SIGABRT,
    "Floating-point exception": signal.SIGFPE,
    "Floating point exception": signal.SIGFPE,
    "Illegal instruction": getattr(signal, "SIGILL", None),
    "Bus error": getattr(signal, "SIGBUS", None),
}

#: Threads are named by what ``threading.get_ident`` returns (CPython, Python/traceback.c).
_CURRENT_THREAD = re.compile(r"^Current thread 0x([0-9a-f]{1,16}) ", re.MULTILINE)


def exit_from_code(code: int) -> dict[str, Any]:
    """
    An exit code of ``multiprocessing`` in words: a negative one is a signal.

    255 is also what Dask reports when it could not read the code (process.py), hence not certain.
    """
    if code < 0:
        return {"signal": -code, "status": None, "certain": True}
    return {"signal": None, "status": code, "certain": code != 255}


def exit_from_dump(fault: str) -> dict[str, Any]:
    """
    The exit as far as faulthandler's dump tells it: the signal that it was first written for, if any.
    """
    found = [(fault.find(f"Fatal Python error: {word}"), number) for word, number in _FATAL_SIGNALS.items()]
    first = min(((at, number) for at, number in found if at >= 0 and number is not None), default=None)
    return {"signal": int(first[1]) if first else None, "status": None, "certain": False}


def crashed_thread(fault: str) -> int | None:
    """
    The thread on which the fatal signal came, if it held the GIL; None if the dump does not say.
    """
    found = _CURRENT_THREAD.search(fault)
    return int(found[1], 16) if found else None


def make_message(source: str, facts: Mapping[str, Any], box: BlackBox | None) -> dict[str, Any]:
    """
    What is told of one death, cut down to 64 KiB.

    Args:
        source: ``nanny``, ``orphan`` or ``scheduler``.
        facts: What whoever tells it knows of its own; wins over what the box says of the same.
        box: The victim's, if it was found. Its worker's address wins: a nanny learns of that late, and
            until then has that of the worker before.
    """
    content: dict[str, Any] = {"schema": MESSAGE_SCHEMA, "source": source}
    if box is not None:
        content |= _box_fields(box)
    content |= {name: value for name, value in facts.items() if value is not None}
    if box is not None and (worker := box.identity.get("worker")):
        content["worker"] = worker
    return shorten_message(content)


def _box_fields(box: BlackBox) -> dict[str, Any]:
    who = box.identity
    pid = who.get("pid", "")
    named = {name: who[name] for name in ("worker", "name", "nanny", "host", "boot_id") if who.get(name)}
    return {
        **named,
        "pid": int(pid) if pid.isdecimal() else None,
        "executing": _running_tasks(box) or _last_finished_task(box),
        "box": {
            "identity": dict(who),
            "state": box.state,
            "created_at": box.created_at,
            "written_at": box.written_at,
            "finished": [
                {"key": each.key, "ended": each.ended, "duration_s": each.duration_s, "outcome": each.outcome}
                for each in box.finished[-_MAX_FINISHED:]
            ],
            "samples": [_sample_fields(each) for each in box.samples],
            "lags": [{"when": each.when, "loop_s": each.loop_s, "gil": each.gil} for each in box.lags],
            "lines": box.lines[-_LINES_BYTES:].decode("utf-8", "replace"),
            "fault": box.fault[:_FAULT_CHARS],
            "torn": list(box.torn),
        },
    }


def _running_tasks(box: BlackBox) -> list[dict[str, Any]]:
    crashed = crashed_thread(box.fault)
    return [
        {
            "key": each.key,
            "clipped": each.clipped,
            "thread_id": each.thread_id,
            "thread": each.thread_name,
            "since": each.since,
            "crashed": None if crashed is None or not each.thread_id else crashed == each.thread_id,
        }
        for each in box.executing[:_MAX_RUNNING]
    ]


def _last_finished_task(box: BlackBox) -> list[dict[str, Any]]:
    """
    The last task, if a fatal signal came when it had just ended and nothing else ran.

    A task that sends its own process a signal runs on while faulthandler writes, and may end before the
    process does.
    """
    if not box.fault or not box.finished or box.finished[-1].ended < box.written_at - _DUMP_S:
        return []
    last = box.finished[-1]
    return [
        {
            "key": last.key,
            "clipped": last.clipped,
            "thread_id": None,
            "thread": "",
            "since": last.started,
            "ended": last.ended,
            "crashed": None,
        }
    ]


def _sample_fields(sample: Any) -> dict[str, Any]:
    """
    The numbers of a sample that were known, by the names that black boxes have for them.
    """
    from workerdiag.recorder.box.layout import SAMPLE_NUMBERS

    numbers = {name: getattr(sample, name) for name in ("when", *SAMPLE_NUMBERS)}
    return {name: value for name, value in numbers.items() if value is not None}


def shorten_message(message: dict[str, Any]) -> dict[str, Any]:
    """
    The message, with what can be spared cut until it has at most 64 KiB.
    """
    for shorten in _shortening_steps():
        if len(json.dumps(message, default=str)) <= MAX_BYTES:
            break
        shorten(message)
    return message


def _shortening_steps() -> Iterator[Any]:
    """
    What to cut, the least telling first; ends with the whole box.
    """
    yield _box_cutter("lags", 0)
    yield _box_cutter("finished", 5)
    yield _box_cutter("samples", 10)
    yield _box_cutter("lines", 4096)
    yield _box_cutter("fault", 4096, first=True)
    yield lambda message: message.update(executing=message.get("executing", [])[:16])
    yield lambda message: message.pop("box", None)


def _box_cutter(name: str, count: int, *, first: bool = False) -> Any:
    def cut(message: dict[str, Any]) -> None:
        box = message.get("box")
        if isinstance(box, dict) and name in box:
            box[name] = box[name][:count] if first or not count else box[name][-count:]

    return cut
