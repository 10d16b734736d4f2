"""A fleet report for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from workerdiag.rendering.text import wrap_text
from workerdiag.triage.fleet.view import TableView, fleet_view

if TYPE_CHECKING:
    from workerdiag.triage.fleet.values import FleetReport

#: The minimum width; nothing is readable below it.
_MIN_WIDTH = 40
_INDENT, _BETWEEN, _BULLET = "  ", "  ", "  - "
#: If fewer columns are left for the text of a row, it goes below the cells.
_LEAST_TEXT_COLUMNS = 40
_BELOW = " " * 10
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


def render_fleet(report: FleetReport, *, width: int = 80, color: bool = False) -> str:
    """Return the report as lines of at most *width* columns, without a final newline.

    Args:
        report: The report to show.
        width: Columns of the terminal; less than 40 counts as 40.
        color: Whether headings, and rows that need attention, are bold.
    """
    return "\n".join(_report_lines(report, max(width, _MIN_WIDTH), color=color))


def _report_lines(report: FleetReport, width: int, *, color: bool) -> Iterator[str]:
    view = fleet_view(report)
    yield from (_bold(line, color=color) for line in wrap_text(view.headline, width))
    for fact in view.facts:
        yield from wrap_text(fact, width, first=_INDENT, rest=_INDENT)
    for table in view.tables:
        yield ""
        yield _bold(table.title, color=color)
        yield from _table_lines(table, width, color=color)


def _table_lines(table: TableView, width: int, *, color: bool) -> Iterator[str]:
    if table.columns:
        yield from _columns_lines(table, width, color=color)
    else:
        for row in table.rows:
            yield from wrap_text(row.text, width, first=_BULLET, rest=" " * len(_BULLET))
    for note in table.notes:
        yield from wrap_text(note, width, first=_INDENT, rest=_INDENT)


def _columns_lines(table: TableView, width: int, *, color: bool) -> Iterator[str]:
    *columns, text_column = table.columns
    kept = _columns_that_fit([columns, *(each.cells for each in table.rows)], width)
    begin = len(_INDENT) + sum(size + len(_BETWEEN) for _, size in kept)
    is_beside = width - begin >= _LEAST_TEXT_COLUMNS
    head = _cells_text(columns, kept)
    yield f"{head}{_BETWEEN}{text_column}" if is_beside else head
    for row in table.rows:
        cells = _cells_text(row.cells, kept)
        if is_beside:
            first, *others = wrap_text(row.text, width - begin, rest=_INDENT)
            lines = [f"{cells}{_BETWEEN}{first}", *(f"{'':{begin}}{line}" for line in others)]
        else:
            lines = [cells.rstrip(), *wrap_text(row.text, width, first=_BELOW, rest=_BELOW)]
        yield from (_bold(line, color=color and row.is_marked) for line in lines)


def _columns_that_fit(rows: Sequence[Sequence[str]], width: int) -> list[tuple[int, int]]:
    """Return place and size of the columns to show: from the left, those that are not empty and fit."""
    left, kept = width - len(_INDENT), []
    for place, (_, *cells) in enumerate(zip(*rows, strict=True)):
        size = max(len(row[place]) for row in rows)
        if any(cells) and size <= left:
            kept.append((place, size))
            left -= size + len(_BETWEEN)
    return kept


def _cells_text(cells: Sequence[str], kept: Sequence[tuple[int, int]]) -> str:
    """Return the cells side by side, right-aligned like numbers."""
    return _INDENT + _BETWEEN.join(f"{cells[place]:>{size}}" for place, size in kept)


def _bold(line: str, *, color: bool) -> str:
    return f"{_BOLD}{line}{_PLAIN}" if color else line
