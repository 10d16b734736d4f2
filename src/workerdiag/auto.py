"""The client preload ``workerdiag.auto``; the function of that name is this module, called.

In Dask's configuration: ``distributed.client.preload: [workerdiag.auto]``, or in the environment
``DASK_DISTRIBUTED__CLIENT__PRELOAD=workerdiag.auto``.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING

from workerdiag.api.auto_notes import auto
from workerdiag.lazy import call_module as _call_module

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["auto", "dask_setup", "dask_teardown"]


def _is_preload() -> bool:
    """Whether Dask imports this module as a preload of its clients, while it makes the first of them."""
    config = sys.modules.get("dask.config")
    preloads = config.get("distributed.client.preload", ()) if config else ()
    return __name__ in ([preloads] if isinstance(preloads, str) else preloads)


@cache
def _watch_starts() -> None:
    """Add notes to what `distributed.Client` raises that reaches no scheduler: its preloads are not called then."""
    from workerdiag.recorder.internals import watch_starts

    async def on_failure(exc: OSError) -> None:
        from workerdiag.api.noted_calls import note_failed_start

        await note_failed_start(exc)

    watch_starts(on_failure)


def dask_setup(client: Client) -> None:
    """Switch the notes on; Dask calls it for each client."""
    _watch_starts()  # the module may have been imported before it was a preload
    auto(client)


def dask_teardown(client: Client) -> None:
    """Switch the notes off when the client closes."""
    auto(client, on=False)


if _is_preload():
    _watch_starts()
_call_module(__name__, "workerdiag.api.auto_notes", "auto")
