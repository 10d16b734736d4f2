"""
``workerdiag blackbox``: what the flight recorder of a worker holds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

import click

from workerdiag.cli.errors import GOOD, UNUSABLE, Guarded
from workerdiag.cli.terminal import text_width, warn
from workerdiag.errors import BadBoxError

if TYPE_CHECKING:
    from workerdiag.recorder.box.contents import BlackBox, Executing, Finished, Sample

#: What is printed of the rings; JSON has all of them.
_LAST_TASKS, _LAST_SAMPLES, _LAST_LINES, _FAULT_LINES = 10, 6, 20, 40
_LABEL_COLUMNS = 12


@click.command(
    cls=Guarded,
    examples=(
        "workerdiag blackbox",
        "workerdiag blackbox --format json",
    ),
)
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="JSON is a list, with all that could be read of each.",
)
def blackbox(paths: tuple[Path, ...], form: str) -> int:
    """
    Print black boxes of workers, also of those still running.

    A PATH is a box, or a folder of boxes. Without one, the boxes of this user on this machine are
    listed. Exit status: 0 all could be read, 2 one of the paths could not.
    """
    from workerdiag.recorder.box.contents import as_plain
    from workerdiag.recorder.box.directories import boxes

    read, failures = _read(_files(paths) if paths else boxes())
    if form == "json":
        click.echo(json.dumps([{"path": str(path), **as_plain(box)} for path, box in read], indent=2))
    elif paths:
        click.echo("\n\n".join("\n".join(_report(path, box)) for path, box in read), nl=bool(read))
    else:
        click.echo("\n".join(_listed(read)))
    for each in failures:
        warn(str(each))
    return UNUSABLE if failures and paths else GOOD


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    """
    The paths, with the boxes in a folder in its place.
    """
    from workerdiag.recorder.box.directories import boxes

    for path in paths:
        if path.is_dir():
            yield from boxes([path])
        else:
            yield path


def _read(paths: Iterable[Path]) -> tuple[list[tuple[Path, BlackBox]], list[BadBoxError]]:
    from workerdiag.recorder.box.reader import read_box
    from workerdiag.redaction.objects import redacted_object

    read, failures = [], []
    for path in paths:
        try:
            read.append((path, redacted_object(read_box(path))))
        except BadBoxError as problem:
            failures.append(problem)
    return read, failures


def _listed(read: list[tuple[Path, BlackBox]]) -> Iterator[str]:
    """
    Each box in two lines, or where there would be boxes.
    """
    from workerdiag.recorder.box.directories import directories, is_orphan
    from workerdiag.rendering.wording import clean, moment, one_line

    if not read:
        yield f"No black boxes in {' or '.join(clean(str(each)) for each in directories())}."
    for path, box in read:
        fate = "process gone" if is_orphan(path) else "running"
        yield one_line(clean(f"{fate}, last written {moment(box.written_at)} UTC, {_worker(box)}"))
        yield f"  {clean(str(path))}"


def _report(path: Path, box: BlackBox) -> Iterator[str]:
    """
    One box, for a terminal.
    """
    from workerdiag.rendering.wording import clean, moment

    yield clean(f"Black box {path}")
    yield from _field("Worker", _worker(box))
    known = {name: value for name, value in box.identity.items() if name not in {"worker", "name"}}
    yield from _field("Identity", ", ".join(f"{name} {value}" for name, value in known.items()))
    yield from _field("State", box.state)
    yield from _field("Written", f"{moment(box.written_at)} UTC (begun {moment(box.created_at)})")
    for each in box.torn:
        yield from _field("Not read", each)
    yield from _section("Executing", (_executing(each, box.written_at) for each in box.executing), "nothing")
    yield from _section("Finished last", map(_finished, reversed(box.finished[-_LAST_TASKS:])), "nothing")
    yield from _section("Memory", map(_sample, box.samples[-_LAST_SAMPLES:]), "not sampled")
    if box.lags:
        yield from _section("Event loop", [_lateness(box)], "")
    if box.fault:
        yield from _quoted("Fatal error", box.fault.splitlines()[:_FAULT_LINES])
    if box.lines:
        yield from _quoted("Last lines", box.lines.decode("utf-8", "replace").splitlines()[-_LAST_LINES:])


def _worker(box: BlackBox) -> str:
    address, name = box.identity.get("worker", ""), box.identity.get("name", "")
    return f"{address or 'of unknown address'}{f' (name {name})' if name and name != address else ''}"


def _executing(task: Executing, until: float) -> str:
    from workerdiag.rendering.wording import moment

    for_s = max(until - task.since, 0)
    thread = task.thread_name or task.thread_id
    return f"for {for_s:.1f} s (since {moment(task.since)[11:]}) on thread {thread}: {_key(task)}"


def _finished(task: Finished) -> str:
    from workerdiag.rendering.wording import moment

    return f"{moment(task.ended)[11:]} {task.outcome} after {task.duration_s:.3f} s: {_key(task)}"


def _key(task: Executing | Finished) -> str:
    return f"{task.key}{' ...' if task.clipped else ''}"


def _sample(sample: Sample) -> str:
    from workerdiag.rendering.wording import moment, size

    said = {
        "process": sample.process_rss_bytes,
        "of": sample.memory_limit_bytes,
        "managed": sample.managed_bytes,
        "spilled": sample.spilled_bytes,
        "group": sample.cgroup_current_bytes,
        "of ": sample.cgroup_limit_bytes,
        "host free": sample.host_available_bytes,
    }
    known = " ".join(f"{name.strip()} {size(value)}" for name, value in said.items() if value is not None)
    kills = f" OOM kills {sample.cgroup_oom_kills}" if sample.cgroup_oom_kills is not None else ""
    files = f" files {sample.open_files}" if sample.open_files is not None else ""
    return f"{moment(sample.when)[11:]} {known}{kills}{files}"


def _lateness(box: BlackBox) -> str:
    worst = max(box.lags, key=lambda each: each.loop_s)
    gils = [each.gil for each in box.lags if each.gil is not None]
    gil = f"; GIL contention up to {max(gils):.0%}" if gils else ""
    return f"late by {box.lags[-1].loop_s:.2f} s at the end, by {worst.loop_s:.2f} s at most{gil}"


def _field(label: str, text: str) -> Iterator[str]:
    """
    A label and its text, wrapped beside it; nothing without a text.
    """
    from workerdiag.rendering.wording import clean, one_line

    if said := one_line(clean(text)):
        lines = wrap(said, text_width() - _LABEL_COLUMNS, break_on_hyphens=False)
        yield from (f"{label if nth == 0 else '':<{_LABEL_COLUMNS}}{line}" for nth, line in enumerate(lines))


def _section(title: str, rows: Iterable[str], empty: str) -> Iterator[str]:
    from workerdiag.rendering.wording import clean, one_line

    yield f"{title}:"
    none = True
    for row in rows:
        none = False
        # A row may be a key of 200 characters: it goes on in the next line, further in.
        yield from wrap(
            one_line(clean(row)),
            text_width(),
            initial_indent="  ",
            subsequent_indent="      ",
            break_on_hyphens=False,
        )
    if none:
        yield f"  {empty}"


def _quoted(title: str, lines: Iterable[str]) -> Iterator[str]:
    """
    What others wrote, line by line, cut at the right.
    """
    from workerdiag.rendering.wording import clean, clipped

    yield f"{title}:"
    for line in lines:
        yield f"  {clipped(clean(line).replace(chr(10), ' '), text_width() - 2)}".rstrip()
