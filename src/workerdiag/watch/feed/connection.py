"""
A light connection to a scheduler: it registers no client, so that the scheduler has nothing to keep for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Mapping
from typing import cast

from workerdiag.model.dask import EventLoop, Method, Rpc
from workerdiag.sources.cluster import tasks

_CONNECT_S = 5.0
#: A scheduler that has not answered so long after it should have does not answer.
LATE_S = 10.0
_CLOSE_S = 1.0


class Connection:
    """
    What `workerdiag.sources.cluster` asks through in place of a ``distributed.Client``.

    Args:
        address: The scheduler's.
        connection_args: As ``distributed.comm.connect`` takes them.
        cluster: The cluster object of this process, if there is one.
    """

    #: It waits for nothing, and is used from within its event loop alone.
    asynchronous = True
    futures: Mapping[object, object] = {}

    def __init__(self, address: str, connection_args: Mapping[str, object], cluster: object = None) -> None:
        from distributed.core import rpc

        self.address = address
        self.status = "running"
        self.cluster = cluster
        self._rpc = cast("Method", rpc)(address, timeout=_CONNECT_S, connection_args=dict(connection_args))
        self.scheduler: Rpc = self._rpc
        self.run_on_scheduler: Method = self._run_on_scheduler

    async def _run_on_scheduler(self, function: Method, *args: object) -> object:
        """
        What *function* returns on the scheduler, or whatever it raises there.
        """
        from distributed.core import clean_exception
        from distributed.protocol.pickle import dumps

        pack = cast("Method", dumps)
        response = await self.scheduler.run_function(
            function=pack(function), args=pack(args), kwargs=pack({}), wait=True
        )
        if response["status"] == "error":
            _, problem, _ = clean_exception(**response)
            raise problem if problem is not None else RuntimeError(str(response.get("exception_text")))
        return response["result"]

    async def has_same_python(self) -> bool:
        """
        Whether the scheduler runs our release of Python, and so can run our functions.

        Both sides say so when they connect (``handshake_info`` in comm/core.py). Without that, the scheduler
        is asked for all its versions, which takes it some 10 ms the first time.
        """
        comm = await self._rpc.live_comm()
        self._rpc.comms[comm] = True  # whoever asks next may use it
        python = (getattr(comm, "remote_info", None) or {}).get("python")
        if not isinstance(python, tuple | list):
            return tasks.has_same_python(await tasks.fetch_versions(self))
        return tuple(python[:2]) == sys.version_info[:2]

    async def close(self) -> None:
        """
        Let go of the scheduler, also of one that does not answer.
        """
        self.status = "closed"
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self._rpc.close_rpc(), _CLOSE_S)

    # What else a client has, for the type's sake: nobody who has this connection calls it.
    loop: EventLoop = NotImplemented
    sync: Method = NotImplemented
    run: Method = NotImplemented
    register_plugin: Method = NotImplemented
    unregister_worker_plugin: Method = NotImplemented
