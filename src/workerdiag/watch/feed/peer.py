"""
What answers at an address that is no scheduler's.

Only a scheduler that never answered is asked who it is: the answer of a large one names all its workers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from workerdiag.errors import WorkerdiagError, describe_error, utf8_safe
from workerdiag.watch.feed.connection import Connection

_ASK_S = 5.0
_MAX_NAME_CHARS = 200
_CHECK = (
    "if a scheduler is there, it is stuck; else give the scheduler's own port (8786 by default), not that of "
    "its dashboard or of another program, with tcp:// or tls:// as the scheduler has it"
)


class WrongPeerError(WorkerdiagError):
    """
    A worker, a nanny or another Dask server answers in place of a scheduler.
    """


class PeerCheck:
    """
    Whether what answers at the address is a scheduler.
    """

    def __init__(self) -> None:
        #: Where a scheduler answered last, and where something else did.
        self._scheduler = self._other = ""

    def answered(self, address: str) -> None:
        """
        Note that a scheduler answers there.
        """
        self._scheduler, self._other = address, ""

    async def check_again(self, connection: Connection) -> None:
        """
        Ask again who it is, if it was no scheduler: other questions are tracebacks in its log.

        Raises:
            WrongPeerError: It is still none.
        """
        if connection.address == self._other and (problem := await _other_server(connection)):
            raise WrongPeerError(problem)

    async def explain(self, connection: Connection | None, problem: Exception) -> str:
        """
        What to tell people of a question that failed.
        """
        if isinstance(problem, WrongPeerError):
            return str(problem)
        said = _described(problem)
        if connection is None or connection.address == self._scheduler or _is_nobody_there(problem):
            return said
        if _may_be_foreign(problem):
            return f"{said} ({_CHECK})"
        other = await _other_server(connection)
        self._other = connection.address if other else ""
        return other or said


def _described(problem: BaseException) -> str:
    """
    The problem, and what the operating system says of it: Dask words each failure to connect as a time-out.
    """
    said, origin = describe_error(problem), problem
    while (earlier := origin.__cause__ or origin.__context__) is not None:
        origin = earlier
    if isinstance(origin, OSError) and origin is not problem and origin.strerror:
        return f"{said}: {origin.strerror}"
    return said


async def _other_server(connection: Connection) -> str | None:
    """
    Which Dask server it is in place of a scheduler; None if it is one, or does not say.
    """
    try:
        reply = await asyncio.wait_for(connection.scheduler.identity(), _ASK_S)
    except Exception:  # noqa: BLE001  the failure before it is told
        return None
    if not isinstance(reply, Mapping) or "type" not in reply or "workers" in reply:
        return None
    kind, scheduler = (
        utf8_safe(str(reply.get(key) or ""))[:_MAX_NAME_CHARS] for key in ("type", "scheduler")
    )
    address = f", {scheduler}" if scheduler else ""
    return f"{connection.address} is a {kind}, not a scheduler: give the scheduler's address{address}"


def _may_be_foreign(problem: Exception) -> bool:
    """
    Whether nothing came back that Dask could read.
    """
    from distributed.comm.core import CommClosedError

    return isinstance(problem, TimeoutError | CommClosedError | MemoryError)


def _is_nobody_there(problem: Exception) -> bool:
    """
    Whether no connection came about.
    """
    return isinstance(problem, OSError) and not _may_be_foreign(problem)
