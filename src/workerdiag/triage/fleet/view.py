"""A fleet report in words and tables, for text and HTML."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import date

from attrs import frozen

from workerdiag.rendering.sparkline import blocks
from workerdiag.rendering.wording import one_line, pluralize, printable_object
from workerdiag.triage.fleet.statistics import Interval
from workerdiag.triage.fleet.values import (
    CauseShare,
    FleetGap,
    FleetReport,
    HostLoad,
    Package,
    Trend,
    VersionShare,
)
from workerdiag.units import format_duration, format_time

_DATE_CHARS = len("2026-11-23")
#: Columns of a sparkline; with the other cells it fits into 80 columns.
_CURVE_COLUMNS = 10
#: At most this many versions and gaps are listed.
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


def fleet_view(report: FleetReport) -> FleetView:
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


def _headline(report: FleetReport) -> str:
    if not report.death_count:
        if report.gaps and not report.tables:
            return "Nothing could be read: whether workers were lost is not known"
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


def _facts(report: FleetReport) -> Iterator[str]:
    if report.loss_count < report.death_count:
        yield f"Some were lost together: {report.loss_count:,} joint losses in all."
    if report.lost_compute_s is not None:
        known = "" if report.lost_known_count == report.death_count else _of_deaths(report)
        lost = format_duration(report.lost_compute_s)
        yield f"At least {lost} of running tasks were lost with them{known}."
    if report.requested_count:
        stops = pluralize(report.requested_count, "stop")
        yield f"{stops} that somebody asked for {_are(report.requested_count)} not counted."
    if report.duplicate_count:
        more = pluralize(report.duplicate_count, "report")
        yield f"{more} of deaths that another table has too {_are(report.duplicate_count)} not counted again."
    if report.undated_count:
        yield f"{pluralize(report.undated_count, 'death')} {_are(report.undated_count)} without a time."
    if report.gaps:
        yield 'Something could not be read or seen, so each number is "at least": see below.'


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _of_deaths(report: FleetReport) -> str:
    return f" (known of {report.lost_known_count:,} of {pluralize(report.death_count, 'death')})"


def _cause_table(report: FleetReport) -> TableView | None:
    if not report.causes:
        return None
    return TableView(
        title="What kills workers",
        columns=(
            "deaths",
            "share",
            "95% interval",
            "lost compute",
            "since",
            "trend",
            "over time",
            "cause",
        ),
        rows=tuple(_cause_row(each, report) for each in report.causes),
    )


def _cause_row(share: CauseShare, report: FleetReport) -> TableRow:
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


def _host_table(report: FleetReport) -> TableView | None:
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


def _version_table(report: FleetReport) -> TableView | None:
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


def _method_texts(report: FleetReport) -> Iterator[str]:
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


def _curve(share: CauseShare, report: FleetReport) -> str:
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
