"""A fleet report for a terminal, as JSON for programs, and as an HTML page that loads nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from functools import cache
from typing import TYPE_CHECKING

from attrs import evolve, frozen
from markupsafe import Markup

from workerdiag.rendering.drawing import drawing, element, percent
from workerdiag.rendering.html import html_environment, template_text
from workerdiag.rendering.json import Schema, document_schema
from workerdiag.rendering.sparkline import blocks
from workerdiag.rendering.text import wrap_text
from workerdiag.rendering.wording import one_line, pluralize, printable_object
from workerdiag.serialization import strict_converter
from workerdiag.triage.fleet.report import (
    FLEET_SCHEMA,
    CauseShare,
    FleetFindings,
    FleetGap,
    HostLoad,
    Interval,
    Package,
    Trend,
    VersionShare,
)
from workerdiag.units import format_duration, format_time

if TYPE_CHECKING:
    from cattrs import Converter

_DATE_CHARS = len("2026-11-23")
#: Columns of a sparkline; with the other cells it fits into 80 columns.
_CURVE_COLUMNS = 10
_MAX_ROWS = 20
_PACKAGES: Mapping[Package, str] = {"distributed": "distributed", "python": "Python"}
_TRENDS: Mapping[Trend, str] = {
    "new": "new",
    "rising": "rising",
    "falling": "falling",
    "steady": "no change",
    "too-few": "too few",
    "undated": "no dates",
}


@frozen(kw_only=True)
class FleetReport(FleetFindings):
    """What kills the workers of a fleet, as text (``str()``), JSON (`to_json`) or HTML (`to_html`)."""

    def __str__(self) -> str:
        return self.to_text()

    def to_text(self, *, width: int = 80) -> str:
        """Return the report for a terminal of *width* columns, at least 40."""
        return render_fleet(self, width=width)

    def to_dict(self) -> dict[str, object]:
        """Return the report as plain values, with the key ``schema`` first."""
        content: dict[str, object] = _report_converter().unstructure(self)
        return {"schema": FLEET_SCHEMA} | content

    def to_json(self) -> str:
        """Return the report as JSON in ASCII."""
        return json.dumps(self.to_dict(), indent=2)

    def to_html(self) -> str:
        """Return the report as one HTML page that loads nothing."""
        return fleet_page(self)


@frozen(kw_only=True)
class TableRow:
    """Short cells, with a text that says what they describe."""

    cells: tuple[str, ...]
    text: str
    #: Whether it needs attention.
    is_marked: bool = False


@frozen(kw_only=True)
class TableView:
    """One table, with a column for each cell and one for the text."""

    title: str
    #: Column titles; a plain list of texts has none.
    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]
    #: Sentences below the table.
    notes: tuple[str, ...] = ()


@frozen(kw_only=True)
class FleetView:
    """A whole report."""

    headline: str
    #: Sentences that say what the numbers include and what they do not.
    facts: tuple[str, ...]
    tables: tuple[TableView, ...]


def fleet_view(report: FleetFindings) -> FleetView:
    """Return the view of a report. Hosts and files are made harmless for a terminal."""
    report = printable_object(report)
    tables = (
        _cause_table(report),
        _host_table(report),
        _version_table(report),
        _text_table("What could not be read or seen", map(_gap_text, report.gaps)),
        _text_table("How it was counted", _method_texts(report)),
    )
    return FleetView(
        headline=_headline(report),
        facts=tuple(_facts(report)),
        tables=tuple(each for each in tables if each is not None),
    )


def _headline(report: FleetFindings) -> str:
    if not report.death_count:
        if report.gaps and not report.tables:
            return "Nothing could be read, so it is unknown whether workers were lost"
        return f"No worker was lost{', as far as could be read' if report.is_partial else ''}"
    at_least = "At least " if report.is_partial else ""
    verb = "was" if report.death_count == 1 else "were"
    where = f" on {pluralize(report.host_count, 'host')}" if report.host_count else ""
    runs = f" in {pluralize(report.run_count, 'cluster run')}"
    workers = pluralize(report.death_count, "worker")
    return f"{at_least}{workers} {verb} lost{_between(report.first_at, report.last_at)}{where}{runs}"


def _between(first_at: float | None, last_at: float | None) -> str:
    first, last = _date(first_at), _date(last_at)
    return "" if not first else f" on {first}" if first == last else f" from {first} to {last}"


def _facts(report: FleetFindings) -> Iterator[str]:
    if report.loss_count < report.death_count:
        yield f"Some were lost together: {report.loss_count:,} joint losses in all."
    if report.lost_compute_s is not None:
        known = "" if report.lost_known_count == report.death_count else _of_deaths(report)
        lost = format_duration(report.lost_compute_s)
        yield f"At least {lost} of running tasks were lost with them{known}."
    if report.requested_count:
        stops = pluralize(report.requested_count, "requested stop")
        yield f"{stops} {_are(report.requested_count)} not counted."
    if report.duplicate_count:
        more = pluralize(report.duplicate_count, "report")
        yield f"{more} of deaths that are in another table too {_are(report.duplicate_count)} not counted again."
    if report.undated_count:
        yield f"{pluralize(report.undated_count, 'death')} {_are(report.undated_count)} without a time."
    if report.gaps:
        yield 'Something could not be read or seen, so each number is "at least": see below.'


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _of_deaths(report: FleetFindings) -> str:
    return f" (known of {report.lost_known_count:,} of {pluralize(report.death_count, 'death')})"


def _cause_table(report: FleetFindings) -> TableView | None:
    if not report.causes:
        return None
    return TableView(
        title="What kills workers",
        columns=("deaths", "share", "95% interval", "lost compute", "since", "trend", "over time", "cause"),
        rows=tuple(_cause_row(each, report) for each in report.causes),
    )


def _cause_row(share: CauseShare, report: FleetFindings) -> TableRow:
    cost = "" if share.lost_compute_s is None else f">= {format_duration(share.lost_compute_s)}"
    return TableRow(
        cells=(
            f"{share.death_count:,}",
            share_text(share.share),
            interval_text(share.interval),
            cost,
            _date(share.first_at),
            _TRENDS[share.trend],
            _curve(share, report),
        ),
        text=f"{share.cause}: {one_line(share.title)}" if share.cause is not None else share.title,
        is_marked=share.trend in ("new", "rising"),
    )


def _host_table(report: FleetFindings) -> TableView | None:
    above = tuple(_host_row(each) for each in report.hosts if each.is_above)
    others = len(report.hosts) - len(above)
    if not report.host_count:
        return None
    least = "with at least five deaths"
    if not report.hosts:
        notes = [f"No host has five deaths, so none is ranked ({pluralize(report.host_count, 'host')})."]
    elif not above:
        notes = [f"None of {pluralize(others, 'host')} {least} is far above the rate of the others."]
    else:
        notes = [f"{pluralize(others, 'other host')} {least} {_are(others)} not."] if others else []
    return TableView(
        title="Hosts far above the rate",
        columns=("deaths", "losses", "of others", "p", "host") if above else (),
        rows=above,
        notes=tuple(notes),
    )


def _host_row(load: HostLoad) -> TableRow:
    cause = f" ({load.cause_count:,} by {load.cause})" if load.cause is not None else ""
    return TableRow(
        cells=(
            f"{load.death_count:,}",
            f"{load.loss_count:,}",
            f"{load.ratio:.1f} x",
            f"{load.p_value:.1g}" if load.p_value >= 1e-4 else "< 0.0001",
        ),
        text=f"{one_line(load.host)}{cause}",
        is_marked=True,
    )


def _version_table(report: FleetFindings) -> TableView | None:
    known = [each for each in report.versions if each.version is not None]
    if not known:
        return None
    shown = [each for each in report.versions if any(each.package == other.package for other in known)]
    more = len(shown) - _MAX_ROWS
    return TableView(
        title="Versions",
        columns=("deaths", "share", "95% interval", "since", "version"),
        rows=tuple(_version_row(each) for each in shown[:_MAX_ROWS]),
        notes=(f"and {pluralize(more, 'more version')}",) if more > 0 else (),
    )


def _version_row(share: VersionShare) -> TableRow:
    cause = f" ({share.cause_count:,} by {share.cause})" if share.cause is not None else ""
    version = one_line(share.version) if share.version is not None else "not known"
    return TableRow(
        cells=(
            f"{share.death_count:,}",
            share_text(share.share),
            interval_text(share.interval),
            _date(share.first_at),
        ),
        text=f"{_PACKAGES[share.package]} {version}{cause}",
    )


def _text_table(title: str, texts: Iterable[str]) -> TableView | None:
    rows = tuple(TableRow(cells=(), text=one_line(each)) for each in texts)
    more = len(rows) - _MAX_ROWS
    notes = (f"and {more:,} more",) if more > 0 else ()
    return TableView(title=title, columns=(), rows=rows[:_MAX_ROWS], notes=notes) if rows else None


def _gap_text(gap: FleetGap) -> str:
    return f"{gap.path}: {gap.detail}" + (f" ({gap.remedy})" if gap.remedy else "")


def _method_texts(report: FleetFindings) -> Iterator[str]:
    if report.death_count:
        yield from report.methods
    if any(each.kind == "watcher" for each in report.tables):
        yield "A watcher forgets deaths after 30 days: what only the watcher knows may have begun earlier."


def share_text(share: float) -> str:
    """Return a share as text. Unlike a probability, it may be exactly 100%."""
    return "<1%" if 0 < share < 0.005 else ">99%" if 0.995 <= share < 1 else f"{share:.0%}"


def interval_text(interval: Interval) -> str:
    """Return both ends of an interval as text."""
    return f"{interval.low:.0%} to {interval.high:.0%}"


def _date(when: float | None) -> str:
    return format_time(when)[:_DATE_CHARS]


def _curve(share: CauseShare, report: FleetFindings) -> str:
    """Return deaths over the time of the report as a sparkline; a dot means none. Empty for a single moment."""
    first, last = _date(report.first_at), _date(report.last_at)
    if first == last:
        return ""
    begin, end = date.fromisoformat(first).toordinal(), date.fromisoformat(last).toordinal()
    counts = [0] * _CURVE_COLUMNS
    for each in share.periods:
        day = date.fromisoformat(each.begin).toordinal()
        days = max(0, day - begin)  # a week begins before the first death in it
        counts[days * _CURVE_COLUMNS // (end - begin + 1)] += each.death_count
    return blocks((each or None for each in counts), max(counts)) if any(counts) else ""


def fleet_schema() -> Schema:
    """Return the JSON Schema (draft 2020-12) of the result of `FleetReport.to_dict`."""
    return document_schema(FleetFindings, title="workerdiag fleet report", number=FLEET_SCHEMA)


@cache
def _report_converter() -> Converter:
    return strict_converter("all", with_places=False)


#: At most this many causes have a bar; the table has all of them.
_MAX_BARS = 10
_HEIGHT_PX = 10
#: The page loads nothing and has no script.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


@frozen(kw_only=True)
class _Bar:
    title: str
    id: str
    percent: str
    svg: Markup


def fleet_page(report: FleetFindings) -> str:
    """Return the report as one HTML page in ASCII that loads nothing. All foreign text is escaped."""
    report = printable_object(report)
    view = fleet_view(report)
    text = (
        html_environment()
        .get_template("fleet.html.j2")
        .render(
            view=evolve(view, tables=tuple(map(_narrowed, view.tables))),
            bars=[_bar(each) for each in report.causes[:_MAX_BARS]],
            policy=_POLICY,
            page_style=template_text("page.css"),
            style=template_text("report.css"),
        )
    )
    return text.strip().encode("ascii", "xmlcharrefreplace").decode("ascii")


def _narrowed(table: TableView) -> TableView:
    """Return the table without columns that are empty in all rows."""
    *names, text = table.columns or ("",)
    shown = [place for place in range(len(names)) if any(row.cells[place] for row in table.rows)]
    if len(shown) == len(names):
        return table
    rows = (evolve(row, cells=tuple(row.cells[place] for place in shown)) for row in table.rows)
    return evolve(table, columns=(*(names[place] for place in shown), text), rows=tuple(rows))


def _bar(share: CauseShare) -> _Bar:
    text = f"{share_text(share.share)} ({interval_text(share.interval)})"
    kind = "unknown" if share.cause is None else "top"
    middle = _HEIGHT_PX / 2
    parts = (
        element("rect", width="100%", height=_HEIGHT_PX, rx=2, class_="wd-track"),
        element("rect", width=percent(share.share), height=_HEIGHT_PX, rx=2, class_=f"wd-chance wd-{kind}"),
        element(
            "line",
            x1=percent(share.interval.low),
            x2=percent(share.interval.high),
            y1=middle,
            y2=middle,
            class_="wd-interval",
        ),
    )
    title = one_line(share.title)
    svg = drawing(text, f"Share of all deaths, with its interval: {title}", _HEIGHT_PX, parts)
    return _Bar(title=title, id=share.cause or "", percent=text, svg=svg)


_MIN_WIDTH = 40
_INDENT, _BETWEEN, _BULLET = "  ", "  ", "  - "
#: If fewer columns are left for the text of a row, it goes below the cells.
_LEAST_TEXT_COLUMNS = 40
_BELOW = " " * 10
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


def render_fleet(report: FleetFindings, *, width: int = 80, color: bool = False) -> str:
    """Return the report as lines of at most *width* columns; with *color*, what needs attention is bold."""
    return "\n".join(_report_lines(report, max(width, _MIN_WIDTH), color=color))


def _report_lines(report: FleetFindings, width: int, *, color: bool) -> Iterator[str]:
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
