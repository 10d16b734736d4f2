"""The deaths of a scheduler in its dashboard: a page, JSON, reports, and counts for Prometheus.

The recorder on the scheduler imports this by name (`workerdiag.recorder.scheduler.dashboard`), and without
the reasoning. Only public parts of Dask's web server are used, and `attach` returns what undoes everything.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from workerdiag.errors import describe_error
from workerdiag.integrations.dashboard.death_history import DeathBook
from workerdiag.integrations.dashboard.follower import DeathFollower
from workerdiag.integrations.dashboard.judge_client import JudgingProcess
from workerdiag.integrations.dashboard.routes import (
    INDIVIDUAL_PAGE,
    PAGE,
    application,
    page_in_dashboard,
    plain_page,
)
from workerdiag.integrations.prometheus import export_counts
from workerdiag.recorder.scheduler.death_watch import HANDLER

if TYPE_CHECKING:
    from workerdiag.model.dask import Scheduler

logger = logging.getLogger("distributed.scheduler.recorder")

#: Undoes the changes of a function.
Undo = Callable[[], object]


def attach(scheduler: Scheduler) -> Undo | None:
    """Show the deaths of a recording scheduler. Returns an undo function, or None without a web server.

    It must be called on the scheduler's event loop.
    """
    web: object = getattr(scheduler, "http_application", None)
    ask = getattr(scheduler, "handlers", {}).get(HANDLER)
    if web is None or ask is None:
        return None
    book, judge = DeathBook(), JudgingProcess()
    follower = DeathFollower(ask, book, judge)
    loop = asyncio.get_running_loop()
    task = loop.create_task(follower.run())
    learning: list[asyncio.Task[None]] = []
    undo: list[Undo] = [task.cancel, judge.stop]

    def learn() -> None:
        if not learning:
            learning.append(loop.create_task(follower.learn_causes()))

    parts: dict[str, Callable[[], Undo | None]] = {
        "page": partial(_add_page, scheduler, web, book),
        "counter": partial(export_counts, book, lambda: loop.call_soon_threadsafe(learn)),
    }
    for name, add in parts.items():
        try:
            undone = add()
        except Exception as problem:  # noqa: BLE001  Dask's dashboard must not suffer from ours
            logger.warning("Deaths are not shown in the dashboard (%s): %s", name, describe_error(problem))
        else:
            undo += [undone] if undone is not None else []

    def detach() -> None:
        for each in (*undo, *(learner.cancel for learner in learning)):
            try:
                each()
            except Exception as problem:  # noqa: BLE001  as above
                logger.info("The page of deaths was not taken away: %s", describe_error(problem))

    return detach


def _add_page(scheduler: Scheduler, web: Any, book: DeathBook) -> Undo:
    """Add the routes of the page, JSON and reports, and a link in Dask's dashboard if there is one."""
    individual = plain_page()
    page, undo_naming = individual, None
    try:
        page, undo_naming = _page_in_dashboard(scheduler, web, individual)
    except Exception as problem:  # noqa: BLE001  as above
        logger.warning("Dask's dashboard does not name the page /%s: %s", PAGE, describe_error(problem))
    routes = application(book, page=page, individual=individual)
    web.add_application(routes)

    def undo() -> None:
        web.applications.remove(routes)
        if undo_naming is not None:
            undo_naming()

    return undo


def _page_in_dashboard(scheduler: Scheduler, web: Any, plain: bytes) -> tuple[bytes, Undo | None]:
    """Return the page with Dask's navigation and a link to it; the *plain* page without a dashboard."""
    # Bokeh's application is missing if the dashboard is switched off or Bokeh is not installed.
    dashboard = next((each for each in web.applications if hasattr(each, "app_paths")), None)
    if dashboard is None:
        return plain, None
    from distributed.dashboard.scheduler import template_variables

    variables = template_variables(scheduler)
    undo = _name_page(dashboard, variables)
    return page_in_dashboard(variables), undo


def _name_page(dashboard: Any, variables: Mapping[str, list[Any]]) -> Undo:
    """Add the page to Dask's navigation, and to the list that JupyterLab's extension reads.

    That list has the paths of Bokeh's applications (``IndividualPlots`` in http/scheduler/info.py), so an
    empty application is the placeholder for our page, which `application` serves.
    """
    from bokeh.application import Application
    from bokeh.server.contexts import ApplicationContext

    pages, plots, listed = variables["pages"], variables["plots"], f"/{INDIVIDUAL_PAGE}"
    plot = {"url": INDIVIDUAL_PAGE, "name": "Deaths"}
    dashboard.applications[listed] = ApplicationContext(Application(), url=listed)
    pages.insert(len(pages) - 1, PAGE)
    plots.append(plot)
    plots.sort(key=lambda each: str(each["name"]))

    def undo() -> None:
        dashboard.applications.pop(listed, None)
        plots.remove(plot)
        pages.remove(PAGE)

    return undo
