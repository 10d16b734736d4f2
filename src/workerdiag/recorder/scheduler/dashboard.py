"""The one door from the recorder on a scheduler to what reasons about its deaths, and shows them there.

By name: the recorder imports nothing that reasons, and where the dashboard cannot be loaded it records on.
"""

from __future__ import annotations

import logging
import pkgutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from workerdiag.errors import describe_error
from workerdiag.settings import setting

if TYPE_CHECKING:
    from workerdiag.model.dask import Scheduler

logger = logging.getLogger("distributed.scheduler.recorder")

#: Takes the scheduler, and returns what closes it again, or None.
DASHBOARD: Final = "workerdiag.integrations.dashboard.page:attach"


def open_dashboard(scheduler: Scheduler) -> Callable[[], object] | None:
    """Show deaths in the scheduler's dashboard; returns what ends that, or None. It does not raise."""
    if setting("recorder.dashboard") == "hide":
        return None
    try:
        attach: Callable[[Scheduler], Callable[[], object] | None] = pkgutil.resolve_name(DASHBOARD)
        undo = attach(scheduler)
    except Exception as problem:  # noqa: BLE001  a page is no reason to stop a scheduler
        logger.warning("Deaths are not shown in the dashboard: %s", describe_error(problem))
        return None
    return undo
