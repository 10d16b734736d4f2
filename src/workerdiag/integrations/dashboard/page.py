"""The deaths of a scheduler in its dashboard: a page, JSON, reports, and counts for Prometheus.

The recorder on the scheduler imports this by name (`workerdiag.recorder.scheduler`), and without
the reasoning. Only public parts of Dask's web server are used, and `attach` returns what undoes everything.

All of it runs on the scheduler's event loop: replies are prepared or take a millisecond, and a death some tenths
of one. The page is static and draws ``deaths.json`` in the browser: a Bokeh page, like those of Dask, would hold
the loop for 80 ms each time it is opened.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from tornado.web import Application, HTTPError, RequestHandler

from workerdiag.deadline import CALL_FAILURES, SettleWindow, in_thread, monotonic_s
from workerdiag.errors import describe_error
from workerdiag.guard import guarded
from workerdiag.integrations.dashboard.judge_process import KILL_S, DeathBook, Judgement, JudgingProcess, unjudged
from workerdiag.integrations.prometheus import export_counts
from workerdiag.model.dask import Method
from workerdiag.model.stop_reasons import is_deliberate
from workerdiag.recorder.deaths import HANDLER
from workerdiag.settings import shipped_text

if TYPE_CHECKING:
    from workerdiag.model.dask import Scheduler

logger = logging.getLogger("distributed.scheduler.recorder")


def attach(scheduler: Scheduler) -> Callable[[], object] | None:
    """Show the deaths, from the scheduler's event loop; returns what undoes it, or None without a web server."""
    web: object = getattr(scheduler, "http_application", None)
    ask = getattr(scheduler, "handlers", {}).get(HANDLER)
    if web is None or ask is None:
        return None
    book, judge = DeathBook(), JudgingProcess()
    follower = DeathFollower(ask, book, judge)
    loop = asyncio.get_running_loop()
    undo = ExitStack()
    undo.callback(judge.stop)
    undo.callback(loop.create_task(follower.run()).cancel)
    learning: list[asyncio.Task[None]] = []

    def learn() -> None:
        if not learning:
            learning.append(loop.create_task(follower.learn_causes()))
            undo.callback(learning[0].cancel)

    with guarded("adding the page of deaths", _logged("Deaths are not shown in the dashboard (page)")):
        _add_page(scheduler, web, book, undo)
    with guarded("counting deaths for Prometheus", _logged("Deaths are not shown in the dashboard (counter)")):
        if end := export_counts(lambda: book.counts, lambda: loop.call_soon_threadsafe(learn)):
            undo.callback(end)

    def detach() -> None:
        with guarded("removing the page of deaths", _logged("The page of deaths was not removed", logging.INFO)):
            undo.close()

    return detach


def _logged(what: str, level: int = logging.WARNING) -> Callable[[Exception], None]:
    """Return what logs a failure: *what* it means, and why."""
    return lambda problem: logger.log(level, "%s: %s", what, describe_error(problem))


def _add_page(scheduler: Scheduler, web: Any, book: DeathBook, undo: ExitStack) -> None:
    page = individual = plain_page()
    unlinked = f"Dask's dashboard does not link to the page /{PAGE}"
    with guarded("adding the page to the dashboard's navigation", _logged(unlinked)):
        page = _page_in_dashboard(scheduler, web, undo) or individual
    routes = application(book, page=page, individual=individual)
    web.add_application(routes)
    undo.callback(web.applications.remove, routes)


def _page_in_dashboard(scheduler: Scheduler, web: Any, undo: ExitStack) -> bytes | None:
    """Return the page with Dask's navigation and a link to it; None without a dashboard."""
    # Bokeh's application is missing if the dashboard is switched off or Bokeh is not installed.
    dashboard = next((each for each in web.applications if hasattr(each, "app_paths")), None)
    if dashboard is None:
        return None
    from distributed.dashboard.scheduler import template_variables

    variables = template_variables(scheduler)
    _name_page(dashboard, variables, undo)
    return page_in_dashboard(variables)


def _name_page(dashboard: Any, variables: Mapping[str, list[Any]], undo: ExitStack) -> None:
    """Add the page to Dask's navigation, and to the list that JupyterLab's extension reads.

    That list has the paths of Bokeh's applications (``IndividualPlots`` in http/scheduler/info.py), so an
    empty application is the placeholder for our page, which `application` serves.
    """
    from bokeh.application import Application
    from bokeh.server.contexts import ApplicationContext

    pages, plots, listed = variables["pages"], variables["plots"], f"/{INDIVIDUAL_PAGE}"
    plot = {"url": INDIVIDUAL_PAGE, "name": "Deaths"}
    dashboard.applications[listed] = ApplicationContext(Application(), url=listed)
    undo.callback(dashboard.applications.pop, listed, None)
    pages.insert(len(pages) - 1, PAGE)
    undo.callback(pages.remove, PAGE)
    plots.append(plot)
    undo.callback(plots.remove, plot)
    plots.sort(key=lambda each: str(each["name"]))


#: Content security policy: a report loads nothing, so text smuggled in by a log cannot either.
_REPORT_MAY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
#: The page with Dask's navigation, and the one for JupyterLab.
PAGE, INDIVIDUAL_PAGE = "deaths", "individual-deaths"
_BODY = "integrations/dashboard/deaths.html"


class _Content(RequestHandler):
    """Answers with what a function returns for the groups of the path."""

    def initialize(
        self, content: Callable[..., bytes | str | None], kind: str = "text/html", policy: str = ""
    ) -> None:
        self.content, self.kind, self.policy = content, kind, policy

    def get(self, *groups: str) -> None:
        content = self.content(*groups)
        if content is None:
            raise HTTPError(404, reason="This report is not kept")
        self.set_header("Content-Type", self.kind)
        if self.policy:
            self.set_header("Content-Security-Policy", self.policy)
        self.finish(content)

    def set_default_headers(self) -> None:
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Content-Type-Options", "nosniff")


def application(book: DeathBook, *, page: bytes, individual: bytes) -> Application:
    """Return the routes for Dask's web server."""
    contents: dict[str, dict[str, object]] = {
        PAGE: {"content": lambda: page},
        INDIVIDUAL_PAGE: {"content": lambda: individual},
        r"workerdiag/deaths\.json": {"content": book.to_json, "kind": "application/json"},
        r"workerdiag/deaths/([0-9a-z]{1,40})\.html": {"content": book.report, "policy": _REPORT_MAY},
    }
    # Dask may serve its pages under a prefix.
    return Application([(rf"(?:/.*)?/{path}", _Content, options) for path, options in contents.items()])


def plain_page() -> bytes:
    """Return the page without navigation, for JupyterLab's Dask extension."""
    body = shipped_text(_BODY)
    viewport = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    head = f'<head><meta charset="utf-8">{viewport}<title>Dask: Deaths</title></head>'
    return f'<!DOCTYPE html>\n<html lang="en">{head}\n<body style="margin: 0">\n{body}</body></html>\n'.encode()


def page_in_dashboard(variables: Mapping[str, object]) -> bytes:
    """Return the page with Dask's navigation (``template_variables``). Dask must have loaded Bokeh for it."""
    from distributed.dashboard.components.scheduler import env

    body = shipped_text(_BODY)
    text: str = env.get_template("simple.html").render(**variables, plot_div=body, plot_script="")
    return text.replace("<title>Dask Diagnostic UI</title>", "<title>Dask: Deaths</title>", 1).encode()


#: Seconds within which deaths are judged together. The recorder has already waited for nannies.
SETTLE_S = 2.0
#: Limits of one judgement: deaths and bytes. Other deaths wait in the recorder.
MAX_DEATHS, MAX_BYTES = 100, 4 * 2**20
#: Wait of one question to the recorder, and minimum interval of questions, in seconds.
_WAIT_S, _LEAST_WAIT_S = 60.0, 0.05
_THREAD = "workerdiag-deaths"


class DeathFollower:
    """Follows deaths until it is cancelled or the scheduler closes: asks the recorder, and judges in a thread."""

    def __init__(self, ask: Method, book: DeathBook, judge: JudgingProcess, *, settle_s: float = SETTLE_S) -> None:
        self._ask = ask
        self._book = book
        self._judge = judge
        self._settling = SettleWindow(settle_s)
        self._epoch, self._position = "", 0
        #: The settling deaths, as lines of JSON.
        self._deaths: list[bytes] = []
        self._one_at_a_time = asyncio.Lock()

    async def run(self) -> None:
        """Follow the deaths. A failure ends only this, with a line in the log."""
        with guarded("following the deaths of the scheduler", _logged("The page of deaths is no longer updated")):
            while await self._look():
                is_full = len(self._deaths) >= MAX_DEATHS or sum(map(len, self._deaths)) >= MAX_BYTES
                if self._deaths and (is_full or self._settling.is_due(monotonic_s())):
                    await self._conclude()

    async def learn_causes(self) -> None:
        """Add all known causes to the book, so that it can return zero counts."""
        if self._book.knows_causes:
            return
        try:
            self._book.add(await self._judged([]))
        except CALL_FAILURES as problem:
            logger.info("The known causes cannot be listed: %s", problem)

    async def _look(self) -> bool:
        due_at = self._settling.due_at
        wait_s = _WAIT_S if due_at is None else min(_WAIT_S, max(_LEAST_WAIT_S, due_at - monotonic_s()))
        reply = await self._ask(since=self._position, epoch=self._epoch, wait_s=wait_s)
        missed = reply["missed_count"] if reply["epoch"] == self._epoch else 0
        self._epoch, self._position = reply["epoch"], reply["position"]
        for death in reply["deaths"]:
            record = death.get("record") or {}
            announced = record.get("is_expected") is True
            # a cluster that scales down all day must not start processes
            if not is_deliberate(announced=announced, close_reason=record.get("close_reason")):
                self._deaths.append(json.dumps(death, default=str).encode())
                self._settling.arrived(monotonic_s())
            await asyncio.sleep(0)  # the scheduler has a whole cluster to serve
        self._book.settle(len(self._deaths), missed)
        await asyncio.sleep(_LEAST_WAIT_S)
        return reply.get("closing_reason") is None

    async def _conclude(self) -> None:
        """Judge what has settled, then pause for as long as that took: others need the processor too."""
        began = monotonic_s()
        deaths, self._deaths = self._deaths, []
        self._settling.judged()
        try:
            judgement = await self._judged(deaths)
        except CALL_FAILURES as problem:
            logger.warning("The page of deaths has no diagnosis for %d deaths: %s", len(deaths), problem)
            judgement = await in_thread(_THREAD, partial(unjudged, deaths, str(problem)), timeout_s=KILL_S)
        self._book.add(judgement)
        self._book.settle(0)
        await asyncio.sleep(monotonic_s() - began)

    async def _judged(self, deaths: Sequence[bytes]) -> Judgement:
        async with self._one_at_a_time:
            return await in_thread(_THREAD, lambda: self._judge.judge(deaths), timeout_s=KILL_S + 5.0)
