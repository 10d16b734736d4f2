"""The terminal: what standard output is, a line for the person in front of it, and a status line meanwhile."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TextIO

import click

from workerdiag.deadline import monotonic_s, start_thread
from workerdiag.model.evidence import Gap
from workerdiag.redaction.secrets import redact_text
from workerdiag.rendering.wording import clip, one_line, printable

#: Lines longer than this are hard to read, however wide the terminal.
_MAX_COLUMNS = 100
#: Nothing is laid out for fewer.
_LEAST_COLUMNS = 40
#: Of more digits ``COLUMNS`` is no number of columns.
_MAX_COLUMN_DIGITS = 6
#: Seconds before the line shows, and between two changes of it.
_FIRST_S, _EVERY_S = 1.0, 0.5
#: Back to the beginning of the line, and erase it (ECMA-48, EL).
_ERASE = "\r\x1b[K"
_STATUS_COLUMNS = 79


def text_width() -> int:
    """Columns by ``COLUMNS``, else of the terminal, at most 100; 80 where the output goes elsewhere."""
    columns = table_width()
    return columns if _told_columns() else min(columns, _MAX_COLUMNS)


def table_width() -> int:
    """Columns for tables: by ``COLUMNS``, else all of the terminal; 80 where the output goes elsewhere."""
    return _told_columns() or (shutil.get_terminal_size().columns if sys.stdout.isatty() else 80)


def _told_columns() -> int:
    """The number above 0 in the environment variable ``COLUMNS`` (POSIX), else 0."""
    told = os.environ.get("COLUMNS", "")
    columns = int(told) if told.isascii() and told.isdigit() and len(told) < _MAX_COLUMN_DIGITS else 0
    return max(columns, _LEAST_COLUMNS) if columns else 0


def is_colored() -> bool:
    """Whether the output goes to a terminal with colours whose user did not set ``NO_COLOR`` (no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def wrapped(text: str, *, first: str = "", rest: str = "") -> list[str]:
    """The lines of one paragraph, as wide as the terminal, with nothing in them that acts upon it."""
    from workerdiag.rendering.text import wrap_text

    return wrap_text(printable(text), text_width(), first=first, rest=rest)


def note(message: str) -> None:
    """One line on standard error that is worth knowing."""
    click.echo(printable(redact_text(f"Note: {message}")), err=True)


def warn(message: str) -> None:
    """One line for a person on standard error."""
    click.echo(printable(redact_text(f"Warning: {message}")), err=True)


def gap_text(gap: Gap) -> str:
    """What could not be looked at, why, and what to do about it."""
    text = f"{gap.source}: {gap.detail or gap.reason}"
    return f"{text} ({gap.remedy})" if gap.remedy else text


@contextmanager
def status_line(
    doing: str, *, limit_s: float | None = None, to: TextIO | None = None, first_s: float = _FIRST_S
) -> Iterator[Callable[[], None]]:
    """Show on a terminal what takes so long, with the seconds that passed, until the end.

    Nothing is written where standard error is no terminal or cannot erase a line. The line shows after
    *first_s* seconds; *limit_s* is when the work ends in any case. Yields what erases the line, for whoever
    prints something in between.
    """
    stream = to or sys.stderr
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda: None
        return
    with ExitStack() as stack:
        if to is None:  # of our own, as standard error may be silenced for the sake of other programs
            stream = stack.enter_context(os.fdopen(os.dup(stream.fileno()), "w"))
        stack.enter_context(_status_shown(stream, doing, limit_s, first_s))
        yield partial(_write, stream, _ERASE)


@contextmanager
def _status_shown(stream: TextIO, doing: str, limit_s: float | None, first_s: float) -> Iterator[None]:
    over = threading.Event()
    began = monotonic_s()
    of_limit = "" if limit_s is None else f" of at most {limit_s:.0f}"

    def show() -> None:
        wait_s = first_s
        while not over.wait(wait_s):
            text = one_line(printable(f"{doing}: {monotonic_s() - began:.0f}{of_limit} s"))
            _write(stream, f"{_ERASE}{clip(text, _STATUS_COLUMNS)}")
            wait_s = _EVERY_S

    thread = None
    with suppress(RuntimeError):  # no threads left
        thread = start_thread("workerdiag-status", show)
    try:
        yield
    finally:
        over.set()
        if thread is not None:
            thread.join(_EVERY_S)
        if monotonic_s() - began >= first_s:
            _write(stream, _ERASE)


def _write(stream: TextIO, text: str) -> None:
    with suppress(OSError, ValueError):  # the terminal is gone
        stream.write(text)
        stream.flush()
