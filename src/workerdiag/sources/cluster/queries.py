"""Single requests to a live cluster, each bounded in time and size, none harmful if it fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from attrs import frozen

from workerdiag.deadline import MORE_TIME, Deadline
from workerdiag.errors import describe_error
from workerdiag.model.dask import Client, Reply, is_disallowed
from workerdiag.model.evidence import Gap
from workerdiag.model.vocabulary import GapReason, Place
from workerdiag.sources.internals import nannies_here, server_address

#: Records requested of a scheduler's log and of a nanny's log (both keep 10 000).
SCHEDULER_RECORDS = 1000
NANNY_RECORDS = 200
#: At most this many workers receive the same request.
_MAX_ASKED = 5
_T = TypeVar("_T")


@frozen
class ServerLogRecord:
    """One record of a server's log."""

    #: Seconds since the epoch, by the clock of the server.
    created: float
    level: str
    #: As the server would write it to a file; it may have several lines.
    text: str


@frozen(eq=False)
class ServerLog:
    """The last records of one server's log, oldest first."""

    records: Sequence[ServerLogRecord]
    #: Address of the nanny that keeps the log; None for the scheduler.
    nanny: str | None = None

    @property
    def name(self) -> str:
        """The name of the log in gaps and findings."""
        return f"nanny log of {self.nanny}" if self.nanny else "scheduler log"

    @property
    def is_cut(self) -> bool:
        """Whether the log may have more records than were read."""
        return len(self.records) >= (NANNY_RECORDS if self.nanny else SCHEDULER_RECORDS)


async def answer_in_time(call: Callable[[], Awaitable[_T]], deadline: Deadline) -> _T:
    """Return what *call* returns, or raise what it raises; on time even if it cannot be cancelled.

    Raises:
        TimeoutError: There is no answer by the deadline.
        ConnectionError: The call was cancelled, as Dask does when a connection pool closes.
    """
    given_s = deadline.left_s
    task = asyncio.ensure_future(call())
    task.add_done_callback(_consume_exception)
    try:
        await asyncio.wait({task}, timeout=given_s)
    finally:
        task.cancel()  # does nothing to a task that is done
    if not task.done():
        raise TimeoutError(f"no answer within {given_s:.1f} s")
    if task.cancelled():
        raise ConnectionError("the connection was closed")
    return task.result()


def _consume_exception(task: asyncio.Future[_T]) -> None:
    """Retrieve the exception of an abandoned task, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()


async def fetch_events(client: Client, topic: str) -> list[tuple[float, object]]:
    """Return the events that the scheduler keeps under *topic*, at most 1000, oldest first."""
    reply = await client.scheduler.events(topic=topic)
    return [(float(when), message) for when, message in reply]


async def fetch_scheduler_log(client: Client) -> list[ServerLogRecord]:
    """Return the last records of the scheduler's log, oldest first."""
    return parse_records(await client.scheduler.logs(n=SCHEDULER_RECORDS, timestamps=True))


async def fetch_nanny_log(client: Client, nanny: str) -> list[ServerLogRecord]:
    """Return the last records of a nanny's log, oldest first, even while it has no worker.

    ``broadcast`` connects to any address, including a nanny's. ``Client.get_worker_logs(workers=[nanny])``
    does the same, but cannot request the time of each record.

    Raises:
        ConnectionError: The scheduler cannot reach the nanny.
    """
    message = {"op": "get_logs", "n": NANNY_RECORDS, "timestamps": True}
    reply = await client.scheduler.broadcast(msg=message, workers=[nanny], on_error="ignore")
    if nanny not in reply:
        raise ConnectionError("the scheduler cannot reach the nanny; it may have ended")
    return parse_records(reply[nanny])


async def fetch_worker_versions(client: Client, workers: Sequence[str]) -> Reply:
    """Return the package versions of at most five workers, by address; those that do not answer are missing."""
    reply = await client.scheduler.broadcast(
        msg={"op": "versions"}, workers=list(workers[:_MAX_ASKED]), on_error="ignore"
    )
    return dict(reply)


def parse_records(reply: Sequence[tuple[float, str, str]]) -> list[ServerLogRecord]:
    """Convert a server's reply, newest first, to records, oldest first."""
    return [
        ServerLogRecord(float(created), str(level), str(text)) for created, level, text in reversed(reply)
    ]


def local_server_logs(client: Client) -> Iterator[ServerLog]:
    """Yield the logs of a LocalCluster's scheduler and nannies, which live in this process."""
    cluster = getattr(client, "cluster", None)
    workers = getattr(cluster, "workers", None)
    servers: list[tuple[str | None, Any, int]] = [
        (None, getattr(cluster, "scheduler", None), SCHEDULER_RECORDS)
    ]
    for worker in list(workers.values()) if isinstance(workers, dict) else ():
        address = getattr(worker, "address_safe", None) or server_address(worker)
        if address and any(cls.__name__ == "Nanny" for cls in type(worker).__mro__):
            servers.append((address, worker, NANNY_RECORDS))
    if len(servers) == 1:  # nannies whose workers died at start have left the cluster; their logs remain
        address = getattr(cluster, "scheduler_address", None)
        ended = [each for each in nannies_here() if each.scheduler_addr == address]
        servers += [(str(each.address_safe), each, NANNY_RECORDS) for each in ended]
    for nanny, server, count in servers:
        with suppress(Exception):  # the server has no log, or its thread is writing to it
            yield ServerLog(parse_records(server.get_logs(n=count, timestamps=True)), nanny)


def query_gap(source: str, problem: BaseException, *, place: Place = "other", status: str = "") -> Gap:
    """Return the gap for a request that failed with *problem*, with a remedy."""
    description = describe_error(problem, most_chars=300)
    if status:
        description += f" (client: {status})"
    reason: GapReason
    if isinstance(problem, TimeoutError):
        reason, remedy = "timed-out", MORE_TIME
    elif is_disallowed(problem):
        reason, remedy = "forbidden", "allow it in distributed.scheduler.blocked-handlers"
    elif isinstance(problem, OSError | RuntimeError | AttributeError | KeyError):
        reason, remedy = "unreachable", "give the log of that process: explain(..., logs=[...])"
    else:
        reason, remedy = "malformed", "give the log of that process: explain(..., logs=[...])"
    return Gap(source=source, place=place, reason=reason, detail=description, remedy=remedy)
