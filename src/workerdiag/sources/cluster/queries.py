"""
Single questions to a live cluster: each bounded in time and size, each able to fail without harm.
"""

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

#: Records asked of a scheduler's log and of a nanny's log (both keep 10 000).
SCHEDULER_RECORDS = 1000
NANNY_RECORDS = 200
#: Workers that are asked for the same, at most.
_MAX_ASKED = 5
_T = TypeVar("_T")


@frozen
class ServerLogRecord:
    """
    One record of a server's log.
    """

    #: Seconds since the epoch, by the clock of the server.
    created: float
    level: str
    #: As the server would write it to a file; may have several lines.
    text: str


@frozen(eq=False)
class ServerLog:
    """
    The last records of one server's log, oldest first.
    """

    records: Sequence[ServerLogRecord]
    #: Address of the nanny that keeps it; None: the scheduler does.
    nanny: str | None = None

    @property
    def name(self) -> str:
        """
        What gaps and findings call it.
        """
        return f"nanny log of {self.nanny}" if self.nanny else "scheduler log"

    @property
    def is_cut(self) -> bool:
        """
        Whether there may be more records than were read.
        """
        return len(self.records) >= (NANNY_RECORDS if self.nanny else SCHEDULER_RECORDS)


async def answer_in_time(call: Callable[[], Awaitable[_T]], deadline: Deadline) -> _T:
    """
    What *call* returns, or whatever it raises; on time, also if it cannot be cancelled.

    Raises:
        TimeoutError: It did not answer in time.
        ConnectionError: It was cancelled, as Dask does when a connection pool closes.
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
    """
    Look at the exception of a task that nobody waits for, so that asyncio does not log it.
    """
    if not task.cancelled():
        task.exception()


async def fetch_events(client: Client, topic: str) -> list[tuple[float, object]]:
    """
    The events that the scheduler keeps under *topic*, at most 1000, oldest first.
    """
    reply = await client.scheduler.events(topic=topic)
    return [(float(when), message) for when, message in reply]


async def fetch_scheduler_log(client: Client) -> list[ServerLogRecord]:
    """
    The last records of the scheduler's log, oldest first.
    """
    return parse_records(await client.scheduler.logs(n=SCHEDULER_RECORDS, timestamps=True))


async def fetch_nanny_log(client: Client, nanny: str) -> list[ServerLogRecord]:
    """
    The last records of a nanny's log, oldest first, also while it has no worker.

    ``broadcast`` connects to the addresses it is given, so a nanny's will do; this is
    ``Client.get_worker_logs(workers=[nanny])``, which cannot ask for the time of each record.

    Raises:
        ConnectionError: The nanny does not answer the scheduler.
    """
    message = {"op": "get_logs", "n": NANNY_RECORDS, "timestamps": True}
    reply = await client.scheduler.broadcast(msg=message, workers=[nanny], on_error="ignore")
    if nanny not in reply:
        raise ConnectionError("the scheduler cannot reach the nanny; it may have ended")
    return parse_records(reply[nanny])


async def fetch_worker_versions(client: Client, workers: Sequence[str]) -> Reply:
    """
    What some workers say of their packages, by address; those that do not answer are left out.
    """
    reply = await client.scheduler.broadcast(
        msg={"op": "versions"}, workers=list(workers[:_MAX_ASKED]), on_error="ignore"
    )
    return dict(reply)


def parse_records(reply: Sequence[tuple[float, str, str]]) -> list[ServerLogRecord]:
    """
    A server's reply, newest first, as records, oldest first.
    """
    return [
        ServerLogRecord(float(created), str(level), str(text)) for created, level, text in reversed(reply)
    ]


def local_server_logs(client: Client) -> Iterator[ServerLog]:
    """
    Logs of a LocalCluster's servers, which live in this process: the scheduler's and each nanny's.
    """
    cluster = getattr(client, "cluster", None)
    workers = getattr(cluster, "workers", None)
    servers: list[tuple[str | None, Any, int]] = [
        (None, getattr(cluster, "scheduler", None), SCHEDULER_RECORDS)
    ]
    for worker in list(workers.values()) if isinstance(workers, dict) else ():
        address = getattr(worker, "address_safe", None) or server_address(worker)
        if address and any(cls.__name__ == "Nanny" for cls in type(worker).__mro__):
            servers.append((address, worker, NANNY_RECORDS))
    if len(servers) == 1:  # those whose worker died as it came have left the cluster; their log is still here
        address = getattr(cluster, "scheduler_address", None)
        ended = [each for each in nannies_here() if each.scheduler_addr == address]
        servers += [(str(each.address_safe), each, NANNY_RECORDS) for each in ended]
    for nanny, server, count in servers:
        with suppress(Exception):  # it has none, or its thread writes to the log at this moment
            yield ServerLog(parse_records(server.get_logs(n=count, timestamps=True)), nanny)


def query_gap(source: str, problem: BaseException, *, place: Place = "other", status: str = "") -> Gap:
    """
    Why a question was not answered, and what would help.
    """
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
