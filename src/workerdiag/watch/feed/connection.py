"""The scheduler to ask, and a light connection to it that registers no client."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from attrs import define, field

from workerdiag.deadline import CALL_FAILURES, in_thread
from workerdiag.errors import SchedulerUnreachableError, describe_error
from workerdiag.model.dask import EventLoop, Method, Rpc, is_disallowed

#: Maximum size of a scheduler file, which has some hundred bytes, and some hundred more for each worker.
_MAX_FILE_BYTES = 64 * 2**20
#: ``host:port``, with or without a protocol.
_SCHEDULER_ADDRESS = re.compile(r"(\w+://\S+|[\w.\-]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5})")
_EXAMPLE = "tcp://10.0.0.1:8786"
_CONNECT_S = 5.0
#: Seconds after the due time at which a scheduler counts as not answering.
LATE_S = 10.0
_CLOSE_S = 1.0


def _configured_args() -> Mapping[str, object]:
    from distributed.security import Security

    args: Mapping[str, object] = Security().get_connection_args("client")  # type: ignore[no-untyped-call]
    return args


@define(kw_only=True)
class Target:
    """A scheduler, at whatever address it has now."""

    #: Its name for people; stable for a target.
    cluster_name: str
    #: Returns the current address; may be slow, and raise anything.
    find: Callable[[], str] = field(repr=False)
    #: TLS arguments of ``distributed.comm.connect``.
    connection_args: Mapping[str, object] = field(factory=_configured_args, repr=False)
    #: The cluster object of this process, if there is one.
    cluster: object = field(default=None, repr=False)
    #: The last address of the scheduler.
    last_address: str = ""

    async def address(self) -> str:
        """Return the current address of the scheduler. Raises SchedulerUnreachableError if it cannot be found."""
        try:
            address = await in_thread("workerdiag-watch-address", self.find, timeout_s=10.0)
        except CALL_FAILURES as problem:
            raise self._unknown(f"no address of it: {problem}") from None
        if str(address).startswith(("http://", "https://")):
            raise self._unknown(f"{address} is a dashboard; give the scheduler's address, such as {_EXAMPLE}")
        if not _SCHEDULER_ADDRESS.fullmatch(str(address)):
            raise self._unknown(f"not the address of a scheduler: {str(address)[:200]!r}")
        self.last_address = str(address)
        return self.last_address

    def _unknown(self, problem: str) -> SchedulerUnreachableError:
        return SchedulerUnreachableError(self.last_address or self.cluster_name, problem)

    @property
    def is_closed(self) -> bool:
        """Whether the cluster object says that the cluster was closed."""
        status = getattr(getattr(self.cluster, "status", None), "name", "")
        return status in ("closing", "closed")


def read_target(target: object, name: str | None = None) -> Target:
    """Return the scheduler to ask, by a client, its address, its file, or a callable that returns its address.

    Without a *name* it has that of its cluster object, else the address or path. Raises TypeError.
    """
    if isinstance(target, str) and _SCHEDULER_ADDRESS.fullmatch(target):
        return Target(cluster_name=name or target, find=lambda: target)
    if isinstance(target, str | Path):
        path = Path(target).expanduser()
        return Target(cluster_name=name or str(path), find=lambda: _address_in_file(path))
    if hasattr(target, "scheduler") and hasattr(target, "connection_args"):
        return _of_client(target, name)
    if callable(target):
        called = getattr(target, "__qualname__", type(target).__name__)
        return Target(cluster_name=name or f"scheduler of {called}", find=target)
    raise TypeError(
        "expected a Client, an address (tcp://host:8786), the path of a scheduler file, or a callable that "
        f"returns an address, got {type(target).__name__}"
    )


def _of_client(client: Any, name: str | None) -> Target:
    """Return the scheduler of a client. A cluster object knows its address even after it has moved."""
    cluster = getattr(client, "cluster", None)
    last = str(getattr(client.scheduler, "address", None) or "")

    def find() -> str:
        nonlocal last
        known = getattr(cluster, "scheduler_address", None) or getattr(client.scheduler, "address", None)
        last = str(known) if known and _SCHEDULER_ADDRESS.fullmatch(str(known)) else last
        return last

    if not find():
        raise TypeError("the client is closed: give an open one, or the address of the scheduler")
    own = str(getattr(cluster, "name", None) or "")
    is_generated = re.fullmatch(r"[0-9a-f]{8}", own)  # deploy/spec.py: new each time, so it says nothing
    return Target(
        cluster_name=name or (own if own and not is_generated else last),
        find=find,
        connection_args=client.connection_args,
        cluster=cluster,
    )


def _address_in_file(path: Path) -> str:
    """Return the address in a scheduler file; raises ValueError if it is none, or is being written."""
    if not path.exists():
        raise FileNotFoundError(f"there is no scheduler file {path}; an address looks like {_EXAMPLE}")
    if path.stat().st_size > _MAX_FILE_BYTES:
        raise ValueError(f"{path} is too large for a scheduler file")
    content = json.loads(path.read_text(encoding="utf-8"))
    address = content.get("address") if isinstance(content, dict) else None
    if not isinstance(address, str):
        raise ValueError(f'{path} has no "address", as scheduler files have')  # noqa: TRY004  not its type
    return address


def _configured_refusal() -> str:
    """Return why a scheduler with the configuration of this process runs no functions; empty if it does.

    Clusters often share a configuration. The first refusal costs a scheduler some 40 ms.
    """
    import dask

    config: Method = dask.config.get
    if "run_function" in (config("distributed.scheduler.blocked-handlers", None) or ()):
        return "distributed.scheduler.blocked-handlers has run_function"
    if config("distributed.scheduler.pickle", None) is False:
        return "distributed.scheduler.pickle is false"
    return ""


class Connection:
    """A light substitute for a ``distributed.Client`` for `workerdiag.sources.cluster`."""

    #: It is only used within its event loop.
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
        #: Why no function may run on the scheduler; empty: none has been refused.
        self._refusal = _configured_refusal()

    async def _run_on_scheduler(self, function: Method, *args: object) -> object:
        """Run *function* on the scheduler, and return its result or raise its exception.

        After one refusal, a PermissionError, nothing more is sent: each is a traceback in the scheduler's log.
        """
        from distributed.core import clean_exception
        from distributed.protocol.pickle import dumps

        pack = cast("Method", dumps)
        if self._refusal:
            raise PermissionError(self._refusal)
        try:
            response = await self.scheduler.run_function(
                function=pack(function), args=pack(args), kwargs=pack({}), wait=True
            )
        except Exception as refusal:
            if not is_disallowed(refusal):
                raise
            self._refusal = describe_error(refusal)
            raise PermissionError(self._refusal) from None
        if response["status"] == "error":
            _, problem, _ = clean_exception(**response)
            raise problem if problem is not None else RuntimeError(str(response.get("exception_text")))
        return response["result"]

    async def has_same_python(self) -> bool:
        """Whether the scheduler runs our release of Python, and so can run our functions.

        Both sides say so when they connect (``handshake_info`` in comm/core.py).
        """
        comm = await self._rpc.live_comm()
        self._rpc.comms[comm] = True  # the next question may use it
        return tuple(comm.remote_info["python"][:2]) == sys.version_info[:2]

    async def close(self) -> None:
        """Close the connection, even if the scheduler does not answer."""
        self.status = "closed"
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self._rpc.close_rpc(), _CLOSE_S)

    # Other methods of a client, for the type; nobody calls them on this connection.
    loop: EventLoop = NotImplemented
    sync: Method = NotImplemented
    run: Method = NotImplemented
    register_plugin: Method = NotImplemented
    unregister_worker_plugin: Method = NotImplemented
