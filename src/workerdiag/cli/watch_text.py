"""
Notices and a watcher's state as text for a terminal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from workerdiag.cli.terminal import is_colored, wrapped
from workerdiag.units import format_time

if TYPE_CHECKING:
    from workerdiag.model.vocabulary import NoticeReason
    from workerdiag.watch.alerts import Notice
    from workerdiag.watch.deliveries import SinkStatus

_INDENT = "  "


def notice_lines(notice: Notice) -> Iterator[str]:
    """
    When and why it is said, its title, what else it says, and an empty line.
    """
    yield _styled(f"{format_time(notice.at)} UTC  {notice.reason}", dim=True)
    title, *others = notice.text.splitlines() or [notice.title]
    for line in wrapped(title):
        yield _styled(line, bold=True, fg=_color(notice.reason))
    for each in others:
        yield from wrapped(each, first=_INDENT, rest=_INDENT * 2)
    yield ""


def sink_problem(sink: SinkStatus) -> str:
    """
    What a sink's last failure was, with the sink's name once.
    """
    return sink.problem if sink.problem.startswith(sink.name) else f"{sink.name}: {sink.problem}"


def _color(reason: NoticeReason) -> str | None:
    if reason in ("new", "recurring", "escalating"):
        return "red"
    return {"resolved": "green", "blind": "yellow"}.get(reason)


def _styled(line: str, *, bold: bool = False, dim: bool = False, fg: str | None = None) -> str:
    return click.style(line, bold=bold or None, dim=dim or None, fg=fg) if is_colored() else line
