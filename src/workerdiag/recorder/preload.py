"""
Switches the recorder on by configuration, one name for all processes of a cluster.

::

    distributed:
      scheduler: {preload: [workerdiag.recorder.preload]}
      nanny: {preload: [workerdiag.recorder.preload]}
      worker: {preload: [workerdiag.recorder.preload]}

Dask imports this module in every such process, and in that of the command line too; only `dask_setup`
does anything. The command ``dask worker`` ignores the configuration's ``nanny.preload``, so a worker also
has its nanny record.
"""

from __future__ import annotations

from typing import Any

_OWNER = "preload"


async def dask_setup(server: Any) -> None:
    """
    Begin to record in a worker, a nanny or a scheduler; anything else, such as a client, is left alone.
    """
    from distributed import Nanny, Scheduler, Worker

    from workerdiag.recorder.recording import start_recording

    if isinstance(server, Worker):
        from workerdiag.recorder.worker.worker_recording import WorkerRecording

        start_recording(server, WorkerRecording, _OWNER)
        if server.nanny:
            from workerdiag.recorder.nanny.setup import enable_nanny_recorder

            enable_nanny_recorder(server, _OWNER)
    elif isinstance(server, Nanny):
        from workerdiag.recorder.nanny.nanny_recording import NannyRecording

        start_recording(server, NannyRecording, _OWNER)
    elif isinstance(server, Scheduler):
        await _begin_in_scheduler(server)


async def _begin_in_scheduler(scheduler: Any) -> None:
    from workerdiag.recorder.internals import set_recording
    from workerdiag.recorder.scheduler.plugin import RecorderScheduler
    from workerdiag.recorder.settings import PLUGIN_NAME

    if PLUGIN_NAME not in scheduler.plugins:
        plugin = RecorderScheduler()
        await plugin.start(scheduler)
        scheduler.add_plugin(plugin, name=PLUGIN_NAME)
    set_recording(scheduler, _OWNER)


def dask_teardown(server: Any) -> None:
    """
    The worker or nanny closes.
    """
    from distributed import Nanny, Worker

    if isinstance(server, Worker | Nanny):
        from workerdiag.recorder.recording import stop_recording

        stop_recording(server, _OWNER)
