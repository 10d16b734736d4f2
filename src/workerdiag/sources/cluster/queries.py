"""Requests to a live cluster, each bounded in time and size, none harmful if it fails.

An `Asker` sends each request once, and none after the scheduler stops responding.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from io import BytesIO
from typing import TYPE_CHECKING, Any, TypeVar

from workerdiag.deadline import MORE_TIME, Deadline
from workerdiag.errors import describe_error
from workerdiag.guard import guarded
from workerdiag.model.dask import Client, Reply, is_disallowed
from workerdiag.model.evidence import Gap
from workerdiag.model.identity import Identity
from workerdiag.model.vocabulary import GapReason, Place
from workerdiag.sources.cluster.scheduler_functions import (
    CutEvent,
    SnapshotRequest,
    by_value,
    workerdiag_looks_at_all,
    workerdiag_looks_at_topic,
    workerdiag_looks_for_losses,
)
from workerdiag.sources.internals import nannies_here, server_address
from workerdiag.values import frozen

if TYPE_CHECKING:
    import distributed

#: Records requested of a scheduler's log and of a nanny's log (both keep 10 000).
SCHEDULER_RECORDS = 1000
NANNY_RECORDS = 200
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
    """Return what *call* returns, or raise what it raises, or a TimeoutError, even if it cannot be cancelled.

    A call that was cancelled, as Dask does when a connection pool closes, is a ConnectionError.
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


async def fetch_log(client: Client) -> Sequence[tuple[float, str, str]]:
    """Return the last records of the scheduler's log, newest first."""
    found: Sequence[tuple[float, str, str]] = await client.scheduler.logs(n=SCHEDULER_RECORDS, timestamps=True)
    return found


async def fetch_nanny_log(client: Client, nanny: str) -> list[ServerLogRecord]:
    """Return the last records of a nanny's log, oldest first, even while it has no worker.

    ``broadcast`` connects to any address, including a nanny's. ``Client.get_worker_logs(workers=[nanny])``
    does the same, but cannot request the time of each record. Raises ConnectionError if the scheduler cannot.
    """
    message = {"op": "get_logs", "n": NANNY_RECORDS, "timestamps": True}
    reply = await client.scheduler.broadcast(msg=message, workers=[nanny], on_error="ignore")
    if nanny not in reply:
        raise ConnectionError("the scheduler cannot reach the nanny; it may have ended")
    return parse_records(reply[nanny])


async def fetch_worker_versions(client: Client, workers: Sequence[str]) -> Reply:
    """Return the package versions of at most five workers, by address; those that do not answer are missing."""
    asked = list(workers[:5])
    return dict(await client.scheduler.broadcast(msg={"op": "versions"}, workers=asked, on_error="ignore"))


def parse_records(reply: Sequence[tuple[float, str, str]]) -> list[ServerLogRecord]:
    """Convert a server's reply, newest first, to records, oldest first."""
    newest_last = reversed(reply)
    return [ServerLogRecord(float(created), str(level), str(text)) for created, level, text in newest_last]


def local_server_logs(client: Client) -> Iterator[ServerLog]:
    """Yield the logs of a LocalCluster's scheduler and nannies, which live in this process."""
    cluster = getattr(client, "cluster", None)
    workers = getattr(cluster, "workers", None)
    scheduler = getattr(cluster, "scheduler", None)
    servers: list[tuple[str | None, Any, int]] = [(None, scheduler, SCHEDULER_RECORDS)]
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
    reason, remedy = "malformed", "give the log of that process: explain(..., logs=[...])"
    if isinstance(problem, TimeoutError):
        reason, remedy = "timed-out", MORE_TIME
    elif is_disallowed(problem):
        reason, remedy = "forbidden", "allow it in distributed.scheduler.blocked-handlers"
    elif isinstance(problem, OSError | RuntimeError | AttributeError | KeyError):
        reason = "unreachable"
    return Gap(source=source, place=place, reason=reason, detail=description, remedy=remedy)


def connect(address: str, *, timeout_s: float, name: str = "workerdiag") -> distributed.Client:
    """Return a synchronous client that is not the default client; the caller closes it.

    Raises what Dask raises for an invalid address, or if no scheduler answers there.
    """
    from distributed import Client as DaskClient

    kind: Any = DaskClient
    client = kind.__new__(kind)
    try:
        client.__init__(address, timeout=timeout_s, set_as_default=False, name=name)
    except BaseException:
        # Dask's __del__ would wait twice the time-out for a loop that never started (client.py).
        client.status = "closed"
        raise
    made: distributed.Client = client
    return made


#: Default event topics: those that report deaths.
TOPICS = ("worker-restart-memory", "scheduler", "worker-fail-hard")


@frozen(kw_only=True)
class ClusterQuestion:
    """What to ask a cluster."""

    #: The workers that an exception names; if empty, those removed recently.
    about: tuple[Identity, ...] = ()
    #: Event topics in addition to ``all`` and the workers' own; if empty, `TOPICS`.
    topics: tuple[str, ...] = ()
    #: Keys of the tasks that those workers were executing at their last heartbeat.
    executing: tuple[str, ...] = ()
    #: Keys of the tasks that the exception names.
    tasks: tuple[str, ...] = ()
    #: Whether the caller's wait for a result timed out.
    gave_up: bool = False
    #: Whether another error was handed in: then the client may be about to learn of the tasks that failed.
    has_failed: bool = False
    #: How many workers the caller waited for in vain (``Client.wait_for_workers``).
    workers_awaited: int | None = None


class Asker:
    """Sends the requests of one round, without those answered in an earlier one.

    *answers*, by request name, are those of earlier rounds; the round adds its own.
    """

    def __init__(self, client: Client, answers: dict[str, Any], deadline: Deadline) -> None:
        self._client = client
        self._answers = answers
        self._deadline = deadline.share(0.95)  # the rest is for returning on time
        #: False once the scheduler has failed to answer in this round.
        self.is_responsive = True
        #: What this round could not get, and why.
        self.gaps: list[Gap] = []

    async def ask(self, what: str, call: Callable[[], Awaitable[object]], *, place: Place) -> Any:
        """Return the answer of *call*, or None and note a gap of *place*; *what* names the request uniquely."""
        if what in self._answers:
            return self._answers[what]
        if not self.is_responsive:
            return None
        with guarded(f"asking for {what}") as asking:
            self._answers[what] = await answer_in_time(call, self.request_deadline())
        if (problem := asking.problem) is not None:
            # Nothing answers after a time-out or another error of the connection; a refusal is an answer.
            is_silent = isinstance(problem, OSError) and not is_disallowed(problem)
            status = self.status()
            self.is_responsive = status == "running" and not is_silent
            source = place if self.is_responsive else f"scheduler: {place}"
            place = place if self.is_responsive else "scheduler"
            self.gaps.append(query_gap(source, problem, place=place, status=status))
        return self._answers.get(what)

    def gap(self, place: Place, reason: GapReason, detail: str, remedy: str) -> None:
        """Note a gap."""
        self.gaps.append(Gap(source=place, place=place, reason=reason, detail=detail, remedy=remedy))

    def refuse(self, detail: str, remedy: str) -> None:
        """Note a gap for the whole round, because of the state of the client."""
        self.is_responsive = False
        self.gap("scheduler", "unreachable", detail, remedy)

    def abort(self, problem: Exception) -> None:
        """Note a gap for the whole round, which failed with *problem*."""
        self.is_responsive = False
        self.gaps.append(query_gap("scheduler", problem, place="scheduler", status=self.status()))

    def request_deadline(self) -> Deadline:
        """Return the deadline of a request sent now."""
        return self._deadline.share(0.8 if self.status() == "running" else 0.2)

    def status(self) -> str:
        """Return the client's connection status, such as ``running``."""
        return str(getattr(self._client, "status", "unknown"))


class TruncatedList(list[object]):
    """The first members of a larger collection."""

    def __init__(self, members: Sequence[object], whole: int) -> None:
        super().__init__(members)
        #: Size of the whole collection.
        self.whole = whole


async def take_snapshot(client: Client, wanted: SnapshotRequest) -> Reply:
    """Return what is *wanted*, by name, from a scheduler with our release of Python."""
    reply = pickle.loads(await client.run_on_scheduler(by_value(workerdiag_looks_at_all), wanted))  # noqa: S301  trusted
    return {
        **reply,
        "events": {topic: unpickled(packed) for topic, packed in reply["events"].items()},
        "log": None if reply["log"] is None else unpickled(reply["log"]),
        "workers": dict(unpickled(reply["workers"])),
    }


def unpickled(packed: bytes) -> list[Any]:
    """Return the objects in concatenated pickles; like all replies of a scheduler, they are trusted."""
    found, file = [], BytesIO(packed)
    while file.tell() < len(packed):
        found.append(pickle.load(file))  # noqa: S301  trusted
    return found


async def look_at_topic(client: Client, topic: str) -> list[tuple[float, object]]:
    """Return the untruncated events of one topic; unlike ``get_events``, this never creates the topic."""
    found = await client.run_on_scheduler(by_value(workerdiag_looks_at_topic), topic)
    return [(float(when), message) for when, message in found]


async def count_recent_losses(client: Client) -> int:
    """Return how many unexpected removals the last thousand events have, of a scheduler with our release of Python.

    It takes the scheduler less than a millisecond.
    """
    return int(await client.run_on_scheduler(by_value(workerdiag_looks_for_losses)))


def snapshot_events(snapshot: Reply, topic: str) -> list[tuple[float, object]] | None:
    """Return the events of a topic; None if the snapshot lacks it."""
    found = snapshot.get("events", {}).get(topic)
    return None if found is None else _restored_events(found)


def early_removals(snapshot: Reply) -> list[tuple[float, object]]:
    """Return the first relevant removals that the topic ``all`` has already dropped."""
    removals = snapshot.get("removals")
    if not removals:
        return []
    kept_since = min((when for when, _, _ in snapshot["events"]["all"]), default=float("inf"))
    return [each for each in _restored_events(removals["some"]) if each[0] < kept_since]


def _restored_events(found: Iterable[CutEvent]) -> list[tuple[float, object]]:
    restored = []
    for when, message, counts in found:
        whole = message
        if counts and isinstance(message, dict):
            whole = {**message, **{key: TruncatedList(message[key], counts[key]) for key in counts}}
        restored.append((float(when), whole))
    return restored
