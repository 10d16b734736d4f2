"""The scheduler preload ``workerdiag.rescue``; the function of that name is this module, called.

In Dask's configuration: ``distributed.scheduler.preload: [workerdiag.rescue]``. It only says what it would do,
unless ``workerdiag.rescue.mode`` is ``act``.
"""

from __future__ import annotations

from typing import Any

from workerdiag.api.rescue_work import rescue
from workerdiag.lazy import call_module as _call_module

__all__ = ["dask_setup", "rescue"]


async def dask_setup(scheduler: Any) -> None:
    """Begin on a scheduler, as Dask's configuration says (``workerdiag.rescue.*``); nothing else is touched."""
    from distributed import Scheduler

    if not isinstance(scheduler, Scheduler):
        return
    from workerdiag.recorder.rescue import PLUGIN_NAME, RescueMemoryDeaths
    from workerdiag.settings import seconds, setting
    from workerdiag.units import bytes_of

    most_memory = setting("rescue.most-memory")
    plugin = RescueMemoryDeaths(
        most_memory_bytes=bytes_of(most_memory) if most_memory else None,
        deadline_s=seconds("rescue.deadline"),
        dry_run=setting("rescue.mode") != "act",
    )
    await plugin.start(scheduler)
    scheduler.add_plugin(plugin, name=PLUGIN_NAME)


_call_module(__name__, "workerdiag.api.rescue_work", "rescue")
