"""A fleet report as a self-contained HTML page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve, frozen
from markupsafe import Markup

from workerdiag.rendering.drawing import drawing, element, percent
from workerdiag.rendering.html import html_environment, template_text
from workerdiag.rendering.wording import one_line, printable_object
from workerdiag.triage.fleet.view import FleetView, TableView, fleet_view, interval_text, share_text

if TYPE_CHECKING:
    from workerdiag.triage.fleet.values import CauseShare, FleetReport

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


def fleet_page(report: FleetReport) -> str:
    """Return the report as one HTML page in ASCII that loads nothing. All foreign text is escaped."""
    report = printable_object(report)
    text = (
        html_environment()
        .get_template("fleet.html.j2")
        .render(
            view=_with_something_in_columns(fleet_view(report)),
            bars=[_bar(each) for each in report.causes[:_MAX_BARS]],
            policy=_POLICY,
            page_style=template_text("page.css"),
            style=template_text("report.css"),
        )
    )
    return text.strip().encode("ascii", "xmlcharrefreplace").decode("ascii")


def _with_something_in_columns(view: FleetView) -> FleetView:
    """Return the view without columns that are empty in all rows."""
    return evolve(view, tables=tuple(map(_narrowed, view.tables)))


def _narrowed(table: TableView) -> TableView:
    *names, text = table.columns or ("",)
    shown = [place for place in range(len(names)) if any(row.cells[place] for row in table.rows)]
    if len(shown) == len(names):
        return table
    rows = (evolve(row, cells=tuple(row.cells[place] for place in shown)) for row in table.rows)
    return evolve(table, columns=(*(names[place] for place in shown), text), rows=tuple(rows))


def _bar(share: CauseShare) -> _Bar:
    """Return the share as a bar, with a thin line over its interval."""
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
