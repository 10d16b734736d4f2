"""The routes of the scheduler's web server: the page, ``/workerdiag/deaths.json``, and the report of each case.

All replies are prepared or take a millisecond, since the server runs on the scheduler's event loop. The page
is static and draws ``deaths.json`` in the browser: a Bokeh page, like those of Dask, would hold that loop for
80 ms each time it is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tornado.web import Application, HTTPError, RequestHandler

from workerdiag.integrations.dashboard.death_history import DeathBook

#: Content security policy: a report loads nothing, so text smuggled in by a log cannot either.
_REPORT_MAY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
#: Dask may serve its pages under a prefix.
_PREFIX = r"(?:/.*)?"
#: The page with Dask's navigation, and the one for JupyterLab.
PAGE, INDIVIDUAL_PAGE = "deaths", "individual-deaths"
_BODY = Path(__file__).with_name("deaths.html")


class _Handler(RequestHandler):
    def set_default_headers(self) -> None:
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Content-Type-Options", "nosniff")


class _Page(_Handler):
    def initialize(self, html: bytes) -> None:
        self.html = html

    def get(self) -> None:
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.finish(self.html)


class _DeathsJson(_Handler):
    def initialize(self, book: DeathBook) -> None:
        self.book = book

    def get(self) -> None:
        self.set_header("Content-Type", "application/json")
        self.finish(self.book.to_json())


class _Report(_Handler):
    def initialize(self, book: DeathBook) -> None:
        self.book = book

    def get(self, case_id: str) -> None:
        page = self.book.report(case_id)
        if page is None:
            raise HTTPError(404, reason="This report is not kept")
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.set_header("Content-Security-Policy", _REPORT_MAY)
        self.finish(page)


def application(book: DeathBook, *, page: bytes, individual: bytes) -> Application:
    """Return the routes for Dask's web server."""
    return Application(
        [
            (rf"{_PREFIX}/{PAGE}", _Page, {"html": page}),
            (rf"{_PREFIX}/{INDIVIDUAL_PAGE}", _Page, {"html": individual}),
            (rf"{_PREFIX}/workerdiag/deaths\.json", _DeathsJson, {"book": book}),
            (rf"{_PREFIX}/workerdiag/deaths/([0-9a-z]{{1,40}})\.html", _Report, {"book": book}),
        ]
    )


def plain_page() -> bytes:
    """Return the page without navigation, for JupyterLab's Dask extension."""
    body = _BODY.read_text(encoding="utf-8")
    viewport = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    head = f'<head><meta charset="utf-8">{viewport}<title>Dask: Deaths</title></head>'
    return (
        f'<!DOCTYPE html>\n<html lang="en">{head}\n<body style="margin: 0">\n{body}</body></html>\n'.encode()
    )


def page_in_dashboard(variables: Mapping[str, object]) -> bytes:
    """Return the page with Dask's navigation. Dask must show its dashboard, and so have loaded Bokeh.

    Args:
        variables: Variables of Dask's template (``template_variables``).
    """
    from distributed.dashboard.components.scheduler import env

    body = _BODY.read_text(encoding="utf-8")
    text: str = env.get_template("simple.html").render(**variables, plot_div=body, plot_script="")
    return text.replace("<title>Dask Diagnostic UI</title>", "<title>Dask: Deaths</title>", 1).encode()
