"""The report of one death, of at most 64 KiB, from what its sender knows and what the black box says."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from typing import Any

from attrs import evolve

from workerdiag.model.signals import UNREADABLE_STATUS
from workerdiag.model.timeline import CodeLine
from workerdiag.model.user_code import is_library
from workerdiag.wire.black_box import BlackBox, RunningTask
from workerdiag.wire.messages import DeathReport, ExitReport, ReportKind, StderrTail, encode_message

MAX_BYTES = 64 * 1024

#: faulthandler takes some milliseconds to write all stacks, and tens of milliseconds on a busy machine.
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


def exit_from_code(code: int) -> ExitReport:
    """The exit for an exit code of ``multiprocessing``, where a negative code is a signal."""
    if code < 0:
        return ExitReport(signal=-code)
    return ExitReport(status=code, known_by="unreadable-code" if code == UNREADABLE_STATUS else "nanny")


def exit_from_dump(dump: str) -> ExitReport | None:
    """The first signal in a faulthandler dump; None if it names none."""
    found = [(dump.find(f"Fatal Python error: {word}"), number) for word, number in _FATAL_SIGNALS.items()]
    first = min(((at, number) for at, number in found if at >= 0 and number is not None), default=None)
    return None if first is None else ExitReport(signal=int(first[1]), known_by="faulthandler")


def crashed_thread(dump: str) -> int | None:
    """The thread that received the fatal signal, if it held the GIL; None if the dump does not say."""
    found = _CURRENT_THREAD.search(dump)
    return int(found[1], 16) if found else None


#: A thread and its frames, innermost first (CPython, Python/traceback.c); from Python 3.14 on with its name.
_THREAD = re.compile(r"^(?:Current t|T)hread 0x([0-9a-f]{1,16}) .*\n((?:  .*\n?)*)", re.MULTILINE)
_FRAME = re.compile(r'^  File "(.{1,1000})", line (\d{1,9}) in (.{1,300})$', re.MULTILINE)
#: How the characters that are not ASCII are written.
_ESCAPED = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8}))")


def user_lines(stacks: str) -> dict[int, CodeLine]:
    """By thread, the innermost line of the user's own code in faulthandler's stacks; of several the last."""
    lines: dict[int, CodeLine] = {}
    for thread, frames in _THREAD.findall(stacks):
        lines.pop(int(thread, 16), None)
        for path, line, function in _FRAME.findall(frames):
            if not is_library(path):
                file = _ESCAPED.sub(lambda found: chr(int(found[1] or found[2] or found[3], 16)), path)
                lines[int(thread, 16)] = CodeLine(file=file, line=int(line), function=function)
                break
    return lines


def make_report(kind: ReportKind, box: BlackBox | None, **facts: object) -> DeathReport:
    """The report of one death from its box, if found, and *facts* that override those of the box; cut to 64 KiB.

    The worker's address is the box's: a nanny learns it late and has that of the previous worker until then.
    """
    content = {} if box is None else _box_facts(box)
    content |= {name: value for name, value in facts.items() if value is not None}
    if box is not None and (worker := box.identity.get("worker")):
        content["worker_address"] = worker
    return shorten_report(DeathReport(kind=kind, **content))


def report_found_box(
    box: BlackBox, *, stderr: StderrTail | None = None, is_nanny_running: bool | None = None
) -> DeathReport:
    """The report of a dead worker whose box was found; only a faulthandler dump can name its exit."""
    return make_report(
        "box-found",
        box,
        last_written_at=box.written_at,
        exit=exit_from_dump(box.faulthandler_dump),
        stderr=stderr,
        is_nanny_running=is_nanny_running,
    )


def _box_facts(box: BlackBox) -> dict[str, Any]:
    who = box.identity
    pid = who.get("pid", "")
    return {
        "worker_address": who.get("worker") or None,
        "worker_name": who.get("name") or None,
        "nanny_address": who.get("nanny") or None,
        "hostname": who.get("host") or None,
        "boot_id": who.get("boot_id") or None,
        "pid": int(pid) if pid.isdecimal() else None,
        "running_tasks": _running_tasks(box) or _last_finished_task(box),
        "box": evolve(
            box,
            running_tasks=(),
            finished_tasks=box.finished_tasks[-20:],
            last_output=box.last_output[-16 * 1024 :],
            faulthandler_dump=box.faulthandler_dump[: 12 * 1024],
            stop_stacks="",
        ),
    }


def _running_tasks(box: BlackBox) -> tuple[RunningTask, ...]:
    """The running tasks; after a crash, each says whether its thread crashed, after a stop, where it was."""
    lines = user_lines(box.stop_stacks)
    running = tuple(
        evolve(each, line=lines.get(each.thread_id or 0)) if (each.started_at or 0.0) <= box.stopped_at else each
        for each in box.running_tasks[:64]
    )
    crashed = crashed_thread(box.faulthandler_dump)
    if crashed is None:
        return running
    return tuple(
        evolve(each, is_on_crashed_thread=crashed == each.thread_id if each.thread_id else None) for each in running
    )


def _last_finished_task(box: BlackBox) -> tuple[RunningTask, ...]:
    """The last finished task, if it ended just before a fatal signal and no other task ran.

    A task that signals its own process continues while faulthandler writes, and may finish before the exit.
    """
    last = box.finished_tasks[-1] if box.finished_tasks else None
    if last is None or not box.faulthandler_dump or last.ended_at < box.written_at - _DUMP_S:
        return ()
    return (
        RunningTask(key=last.key, is_clipped=last.is_clipped, started_at=last.started_at, ended_at=last.ended_at),
    )


def shorten_report(report: DeathReport) -> DeathReport:
    """The report, cut to at most 64 KiB; the least informative parts are cut first."""
    for shorten in _SHORTENING_STEPS:
        if json_size(encode_message(report)) <= MAX_BYTES:
            break
        report = shorten(report)
    return report


def json_size(plain: object) -> int:
    """Size as JSON, in bytes; a non-ASCII character counts at least six."""
    return len(json.dumps(plain, default=str))


def _box_cutter(name: str, part: slice) -> Callable[[DeathReport], DeathReport]:
    def cut(report: DeathReport) -> DeathReport:
        box = report.box
        return report if box is None else evolve(report, box=evolve(box, **{name: getattr(box, name)[part]}))

    return cut


_SHORTENING_STEPS: tuple[Callable[[DeathReport], DeathReport], ...] = (
    _box_cutter("lags", slice(0)),
    _box_cutter("finished_tasks", slice(-5, None)),
    _box_cutter("censuses", slice(-1, None)),
    _box_cutter("samples", slice(-10, None)),
    _box_cutter("last_output", slice(-4096, None)),
    _box_cutter("faulthandler_dump", slice(4096)),
    lambda report: evolve(report, running_tasks=(report.running_tasks or ())[:16]),
    lambda report: evolve(report, box=None),
)
