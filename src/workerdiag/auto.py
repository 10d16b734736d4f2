"""The client preload ``workerdiag.auto``; the function of that name is this module, called.

In Dask's configuration: ``distributed.client.preload: [workerdiag.auto]``, or in the environment
``DASK_DISTRIBUTED__CLIENT__PRELOAD=workerdiag.auto``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workerdiag.api.auto_notes import auto
from workerdiag.lazy import call_module as _call_module

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["auto", "dask_setup", "dask_teardown"]


def dask_setup(client: Client) -> None:
    """Switch the notes on; Dask calls it for each client."""
    auto(client)


def dask_teardown(client: Client) -> None:
    """Switch the notes off when the client closes."""
    auto(client, on=False)


_call_module(__name__, "workerdiag.api.auto_notes", "auto")
