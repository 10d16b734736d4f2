"""
How a worker that was configured to record has its nanny record as well.

The command ``dask worker`` gives its nannies the preloads of ``--preload-nanny`` alone, and not those of
the configuration (cli/dask_worker.py, 2024.8.1 to 2026.8.0).
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from workerdiag.recorder import internals
from workerdiag.recorder.settings import PLUGIN_NAME


def enable_nanny_recorder(worker: Any, owner: str) -> None:
    """
    Ask the nanny of a worker to record, as soon as it answers.
    """
    recording = internals.get_recording(worker)
    if recording is not None:
        recording.tasks.append(asyncio.ensure_future(_register_plugin(worker, owner)))


async def _register_plugin(worker: Any, owner: str) -> None:
    """
    Waits while the nanny starts; one that refuses records nothing.
    """
    import pickle

    from distributed.core import rpc

    from workerdiag.recorder.nanny.nanny_recording import RecorderNanny

    connect: Any = rpc  # without types
    plugin = pickle.dumps(RecorderNanny(owner))
    with contextlib.suppress(Exception):
        async with connect(worker.nanny, connection_args=worker.connection_args) as nanny:
            await nanny.plugin_add(plugin=plugin, name=f"{PLUGIN_NAME}-{owner}")
