"""Recognizes other programs at the address of a scheduler.

Only a peer that never answered like a scheduler is asked for its identity: that of a large scheduler names
all its workers.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

from workerdiag.errors import WorkerdiagError, describe_error, system_error, utf8_safe
from workerdiag.watch.feed.connection import Connection

_ASK_S = 5.0
_MAX_NAME_CHARS = 200
_CHECK = (
    "if a scheduler is there, it is stuck; else give the scheduler's own port (8786 by default), not that of "
    "its dashboard or of another program, with tcp:// or tls:// as the scheduler has it"
)


class WrongPeerError(WorkerdiagError):
    """A worker, a nanny or another Dask server answers instead of a scheduler."""


class PeerCheck:
    """Checks whether a scheduler answers at the address."""

    def __init__(self) -> None:
        #: The last address of a scheduler, and the last address of something else.
        self._scheduler = self._other = ""

    def answered(self, address: str) -> None:
        """Note that a scheduler answers at the address."""
        self._scheduler, self._other = address, ""

    async def check_again(self, connection: Connection) -> None:
        """Ask for its identity again, if it was not a scheduler: other questions cause tracebacks in its log.

        Raises:
            WrongPeerError: It is still not a scheduler.
        """
        if connection.address == self._other and (problem := await _other_server(connection)):
            raise WrongPeerError(problem)

    async def explain(self, connection: Connection | None, problem: Exception) -> str:
        """Return the message for people about a failed question."""
        if isinstance(problem, WrongPeerError):
            return str(problem)
        said = await _described(problem, connection)
        if connection is None or connection.address == self._scheduler or _is_nobody_there(problem):
            return said
        if _may_be_foreign(problem):
            return f"{said} ({_CHECK})"
        other = await _other_server(connection)
        self._other = connection.address if other else ""
        return other or said


async def _described(problem: Exception, connection: Connection | None) -> str:
    """Return the problem with the error of the system: to Dask every failure to connect is a time-out.

    Dask's last attempt may have had too little time to fail by itself (comm/core.py, 2024.8.1 to 2026.8.0).
    """
    reason = system_error(problem)
    if not reason and connection is not None and _is_nobody_there(problem):
        reason = await _connection_error(connection.address)
    return f"{describe_error(problem)}: {reason}" if reason else describe_error(problem)


async def _connection_error(address: str) -> str:
    """Return the error of the system for a plain connection, such as "Connection refused"; empty without one."""
    from distributed.comm.addressing import get_address_host_port

    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(*get_address_host_port(address)), _ASK_S)
        writer.close()
    except Exception as problem:  # noqa: BLE001  the failure before it is reported
        number = problem.errno if isinstance(problem, OSError) else None
        return os.strerror(number) if number and number > 0 else ""
    return ""


async def _other_server(connection: Connection) -> str | None:
    """Return the Dask server that answers instead of a scheduler; None for a scheduler, or if it does not say."""
    try:
        reply = await asyncio.wait_for(connection.scheduler.identity(), _ASK_S)
    except Exception:  # noqa: BLE001  the failure before it is reported
        return None
    if not isinstance(reply, Mapping) or "type" not in reply or "workers" in reply:
        return None
    kind, scheduler = (
        utf8_safe(str(reply.get(key) or ""))[:_MAX_NAME_CHARS] for key in ("type", "scheduler")
    )
    address = f", {scheduler}" if scheduler else ""
    return f"{connection.address} is a {kind}, not a scheduler: give the scheduler's address{address}"


def _may_be_foreign(problem: Exception) -> bool:
    """Whether no reply came that Dask can read."""
    from distributed.comm.core import CommClosedError

    return isinstance(problem, TimeoutError | CommClosedError | MemoryError)


def _is_nobody_there(problem: Exception) -> bool:
    """Whether no connection was made."""
    return isinstance(problem, OSError) and not _may_be_foreign(problem)
