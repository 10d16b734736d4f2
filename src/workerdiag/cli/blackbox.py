"""``workerdiag blackbox``: what the flight recorder of a worker holds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

import click

from workerdiag.cli.commands import EXIT_OK, EXIT_USAGE, command, format_option, text_width, warn
from workerdiag.errors import BadBoxError
from workerdiag.rendering.wording import clip, one_line, printable
from workerdiag.units import format_bytes, format_time

if TYPE_CHECKING:
    from workerdiag.wire.black_box import BlackBox, FinishedTask, RunningTask, Sample, UnreadablePart

#: What is printed of the rings; JSON has all of them.
_LAST_TASKS, _LAST_SAMPLES, _LAST_LINES, _FAULT_LINES = 10, 6, 20, 40
_LABEL_COLUMNS = 12
_SHOWN_APART = frozenset({"worker", "name", "missing", "missing_notes"})
_PAIR_CELLS = 2
_REGION_TITLES = {
    "identity": "the identity",
    "state": "the stage",
    "running": "slots of threads",
    "finished": "finished tasks",
    "samples": "samples",
    "lags": "lags",
    "lines": "pieces of lines",
}


@command("workerdiag blackbox", "workerdiag blackbox --format json")
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=Path))
@format_option("text", "json", text="JSON is a list, with all that could be read of each.")
def blackbox(paths: tuple[Path, ...], form: str) -> int:
    """Print black boxes of workers, including running ones.

    A PATH is a box, or a folder of boxes. Without one, lists the boxes of this user on this machine.
    Exit status: 0 all could be read, 2 one of the paths could not.
    """
    from workerdiag.recorder.box.directories import find_boxes
    from workerdiag.wire.messages import encode_message

    read, failures = _read_boxes(_box_files(paths) if paths else find_boxes())
    if form == "json":
        click.echo(json.dumps([{"path": str(path), **encode_message(box)} for path, box in read], indent=2))
    elif paths:
        click.echo("\n\n".join("\n".join(_box_lines(path, box)) for path, box in read), nl=bool(read))
        if not read and not failures:
            click.echo(_no_boxes_text(paths))
    else:
        click.echo("\n".join(_list_lines(read)))
    for each in failures:
        warn(str(each))
    return EXIT_USAGE if failures and paths else EXIT_OK


def _box_files(paths: Sequence[Path]) -> Iterator[Path]:
    from workerdiag.recorder.box.directories import find_boxes

    for path in paths:
        if path.is_dir():
            yield from find_boxes([path])
        else:
            yield path


def _read_boxes(paths: Iterable[Path]) -> tuple[list[tuple[Path, BlackBox]], list[BadBoxError]]:
    from workerdiag.recorder.box.reader import read_box
    from workerdiag.redaction.objects import redact_object

    read, failures = [], []
    for path in paths:
        try:
            read.append((path, redact_object(read_box(path))))
        except BadBoxError as problem:
            failures.append(problem)
    return read, failures


def _no_boxes_text(folders: Iterable[Path]) -> str:
    return f"No black boxes in {' or '.join(printable(str(each)) for each in folders)}."


def _list_lines(read: list[tuple[Path, BlackBox]]) -> Iterator[str]:
    from workerdiag.recorder.box.directories import box_directories, is_orphan

    if not read:
        yield _no_boxes_text(box_directories())
    for path, box in read:
        fate = "process gone" if is_orphan(path) else "running"
        yield one_line(printable(f"{fate}, last written {format_time(box.written_at)} UTC, {_worker_text(box)}"))
        yield f"  {printable(str(path))}"


def _box_lines(path: Path, box: BlackBox) -> Iterator[str]:
    known = {name: value for name, value in box.identity.items() if name not in _SHOWN_APART}
    yield printable(f"Black box {path}")
    for label, text in (
        ("Worker", _worker_text(box)),
        ("Identity", ", ".join(f"{name} {value}" for name, value in known.items())),
        ("Stage", ": ".join(filter(None, (box.stage, box.close_reason)))),
        ("Written", f"{format_time(box.written_at)} UTC (begun {format_time(box.created_at)})"),
        ("Not noted", box.identity.get("missing_notes", "")),
        *(("Not read", _unreadable_text(each)) for each in box.unreadable_parts),
    ):
        yield from _wrap(text, f"{label:<{_LABEL_COLUMNS}}", " " * _LABEL_COLUMNS)
    yield from _row_lines(
        "Executing", [_executing_text(each, box.written_at) for each in box.running_tasks] or ["nothing"]
    )
    finished = [_finished_text(each) for each in reversed(box.finished_tasks[-_LAST_TASKS:])]
    yield from _row_lines("Finished last", finished or ["nothing"])
    yield from _row_lines("Memory", list(map(_sample_text, box.samples[-_LAST_SAMPLES:])) or ["not sampled"])
    if box.lags:
        yield from _row_lines("Event loop", [_lag_text(box)])
    if box.faulthandler_dump:
        yield from _foreign_lines("Fatal error", box.faulthandler_dump.splitlines()[:_FAULT_LINES])
    if box.stop_stacks:
        yield from _foreign_lines("Asked to end", box.stop_stacks.splitlines()[:_FAULT_LINES])
    if box.last_output:
        yield from _foreign_lines("Last lines", box.last_output.splitlines()[-_LAST_LINES:])


def _unreadable_text(part: UnreadablePart) -> str:
    title = _REGION_TITLES[part.region]
    if not part.cell_count:
        return f"{title}: the box has no room for that"
    count = "" if part.cell_count <= _PAIR_CELLS else f": {part.unreadable_count} of {part.cell_count}"
    return f"{title}{count} could not be read"


def _worker_text(box: BlackBox) -> str:
    address, name = box.identity.get("worker", ""), box.identity.get("name", "")
    return f"{address or 'of unknown address'}{f' (name {name})' if name and name != address else ''}"


def _executing_text(task: RunningTask, until: float) -> str:
    since = task.started_at or 0.0
    for_s = max(until - since, 0)
    thread = task.thread_name or task.thread_id
    return f"for {for_s:.1f} s (since {format_time(since)[11:]}) on thread {thread}: {_key_text(task)}"


def _finished_text(task: FinishedTask) -> str:
    return f"{format_time(task.ended_at)[11:]} {task.outcome} after {task.duration_s:.3f} s: {_key_text(task)}"


def _key_text(task: RunningTask | FinishedTask) -> str:
    return f"{task.key}{' ...' if task.is_clipped else ''}"


def _sample_text(sample: Sample) -> str:
    sizes = {
        "process": sample.process_rss_bytes,
        "of": sample.memory_limit_bytes,
        "managed": sample.managed_bytes,
        "spilled": sample.spilled_bytes,
        "group": sample.cgroup_current_bytes,
        "of ": sample.cgroup_limit_bytes,
        "host free": sample.host_available_bytes,
    }
    known = " ".join(f"{name.strip()} {format_bytes(value)}" for name, value in sizes.items() if value is not None)
    kills = f" OOM kills {sample.cgroup_oom_kills}" if sample.cgroup_oom_kills is not None else ""
    files = f" files {sample.open_files}" if sample.open_files is not None else ""
    return f"{format_time(sample.at)[11:]} {known}{kills}{files}"


def _lag_text(box: BlackBox) -> str:
    worst = max(box.lags, key=lambda each: each.loop_s)
    gils = [each.gil_contention for each in box.lags if each.gil_contention is not None]
    gil = f"; GIL contention up to {max(gils):.0%}" if gils else ""
    return f"late by {box.lags[-1].loop_s:.2f} s at the end, by {worst.loop_s:.2f} s at most{gil}"


def _row_lines(title: str, rows: Iterable[str]) -> Iterator[str]:
    yield f"{title}:"
    for row in rows:  # may be a key of 200 characters
        yield from _wrap(row, "  ", "      ")


def _wrap(text: str, indent: str, next_indent: str) -> list[str]:
    return wrap(
        one_line(printable(text)),
        text_width(),
        initial_indent=indent,
        subsequent_indent=next_indent,
        break_on_hyphens=False,
    )


def _foreign_lines(title: str, lines: Iterable[str]) -> Iterator[str]:
    yield f"{title}:"
    for line in lines:
        yield f"  {clip(printable(line).replace(chr(10), ' '), text_width() - 2)}".rstrip()
