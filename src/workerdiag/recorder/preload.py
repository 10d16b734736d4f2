"""Switches the recorder on by configuration, one name for all processes of a cluster.

Dask imports the module that ``distributed.scheduler.preload``, ``.nanny.preload`` and ``.worker.preload`` name in
every such process, and in that of the command line; only `dask_setup` acts. The command ``dask worker`` gives its
nannies the preloads of ``--preload-nanny`` alone (cli/dask_worker.py), so a worker also has its nanny record.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from workerdiag.model.dask import Method

_OWNER = "preload"


async def dask_setup(server: object) -> None:
    """Begin to record in a worker, a nanny or a scheduler; anything else, such as a client, is left alone."""
    from distributed import Nanny, Scheduler, Worker

    from workerdiag.recorder.internals import get_recording
    from workerdiag.recorder.recording import start_recording

    if isinstance(server, Worker):
        from workerdiag.recorder.worker import WorkerRecording

        start_recording(server, WorkerRecording, _OWNER)
        if server.nanny and (recording := get_recording(server)) is not None:
            recording.spawn(_ask_nanny(server))
    elif isinstance(server, Nanny):
        from workerdiag.recorder.nanny import NannyRecording

        start_recording(server, NannyRecording, _OWNER)
    elif isinstance(server, Scheduler):
        from workerdiag.recorder.internals import set_recording
        from workerdiag.recorder.scheduler import RecorderScheduler
        from workerdiag.wire import PLUGIN_NAME

        if PLUGIN_NAME not in server.plugins:
            plugin = RecorderScheduler()
            await plugin.start(server)
            server.add_plugin(plugin, name=PLUGIN_NAME)
        set_recording(server, _OWNER)


async def _ask_nanny(worker: Any) -> None:
    """Ask the nanny of a worker to record, as soon as it answers; one that refuses records nothing."""
    import pickle

    from distributed.core import rpc

    from workerdiag.recorder.nanny import RecorderNanny
    from workerdiag.wire import PLUGIN_NAME

    connect = cast("Method", rpc)
    plugin = pickle.dumps(RecorderNanny(_OWNER))
    with contextlib.suppress(Exception):
        async with connect(worker.nanny, connection_args=worker.connection_args) as nanny:
            await nanny.plugin_add(plugin=plugin, name=f"{PLUGIN_NAME}-{_OWNER}")


def dask_teardown(server: object) -> None:
    """The worker or nanny closes."""
    from distributed import Nanny, Worker

    if isinstance(server, Worker | Nanny):
        from workerdiag.recorder.recording import stop_recording

        stop_recording(server, _OWNER)
