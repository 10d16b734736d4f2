"""
What the scheduler's web server answers: the page, ``/workerdiag/deaths.json``, and the report of each case.

All of it is ready before anybody asks, or takes a millisecond: the server runs on the scheduler's event loop.
"""

from __future__ import annotations

from tornado.web import Application, HTTPError, RequestHandler

from workerdiag.integrations.dashboard.book import DeathBook

#: A report needs nothing but itself, so whatever a log has smuggled in can load nothing either.
_REPORT_MAY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
#: Dask may serve all of its pages below a prefix.
_PREFIX = r"(?:/.*)?"
#: The page with Dask's navigation, and the one for JupyterLab.
PAGE, INDIVIDUAL_PAGE = "deaths", "individual-deaths"


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
    """
    The routes, as Dask's web server takes them.
    """
    return Application(
        [
            (rf"{_PREFIX}/{PAGE}", _Page, {"html": page}),
            (rf"{_PREFIX}/{INDIVIDUAL_PAGE}", _Page, {"html": individual}),
            (rf"{_PREFIX}/workerdiag/deaths\.json", _DeathsJson, {"book": book}),
            (rf"{_PREFIX}/workerdiag/deaths/([0-9a-z]{{1,40}})\.html", _Report, {"book": book}),
        ]
    )
