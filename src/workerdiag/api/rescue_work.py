"""Finishes work whose workers die for memory: `workerdiag.rescue` (docs/rescue.md)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any
from uuid import uuid4

from workerdiag.errors import InstallError, describe_error
from workerdiag.model.dask import Client
from workerdiag.recorder import internals
from workerdiag.units import bytes_of, parse_duration
from workerdiag.wire import ACT_TOPIC
from workerdiag.wire.messages import RescueAct, decode_message

logger = logging.getLogger("distributed.client.rescue")

#: Starts a worker of so many bytes that brings these resources.
AddWorker = Callable[[int, Mapping[str, float]], object]


def rescue(  # noqa: PLR0913  all but one have defaults
    client: Client,
    *,
    threads: int = 1,
    most_memory: str | int | None = None,
    most_workers: int = 1,
    add_worker: AddWorker | None = None,
    deadline: str | float = "10m",
    dry_run: bool = False,
) -> object:
    """Have the scheduler act on deaths for memory before it gives up, so that the work comes to its end.

    After a worker died that ran several tasks, all workers run fewer at once until the computation is over, and
    Dask's count of deaths against the tasks is taken back. With *most_memory*, a task that kills its worker alone
    goes to one bigger worker; without, it fails after two such deaths, with the reason as a note of its
    ``KilledWorker``. Nothing is done about other deaths, about those that are not proven to be for memory, and
    where stored results filled the memory. A second call replaces the first one.

    Args:
        client: A ``distributed.Client``; with an asynchronous one the call is awaitable, as in Dask.
        threads: How many tasks a worker may run at once after such a death.
        most_memory: The memory that a bigger worker may have, as ``"32 GiB"`` or in bytes; None: none is started.
        most_workers: How many bigger workers may be there at once.
        add_worker: Called with the bytes and the resources of a bigger worker to start one. Clusters of Dask's
            own on this machine (``LocalCluster``) do without it.
        deadline: The longest time that work waits for a bigger worker, as ``"10m"`` or in seconds; then it fails.
        dry_run: Only say what would be done, and change nothing.

    Returns:
        A `Rescue`.

    Raises:
        InstallError: The client is closed, its cluster can start no bigger worker by itself, or workerdiag cannot
            be imported everywhere. Nothing is changed.
        TypeError: *client* is no `distributed.Client`.
        ValueError: *threads*, *most_memory*, *most_workers* or *deadline* is no such number.
    """
    if not hasattr(client, "sync"):
        raise TypeError(f"client must be a distributed.Client, got {type(client).__name__}")
    if client.status == "closed":
        raise InstallError(("the cluster",), "the client is closed", "call it while the client is open")
    if threads < 1 or most_workers < 1:
        raise ValueError(f"threads and most_workers must be at least 1, got {threads} and {most_workers}")
    deadline_s = parse_duration(deadline) if isinstance(deadline, str) else float(deadline)
    most_bytes = None if most_memory is None else bytes_of(most_memory)
    if most_bytes is not None and add_worker is None:
        most_bytes = min(most_bytes, _most_of_cluster(client))
    made = Rescue(client, most_workers=most_workers, add_worker=add_worker)
    options = {"threads": threads, "most_memory_bytes": most_bytes, "deadline_s": deadline_s, "dry_run": dry_run}
    return client.sync(_start, client, made, options)


async def _start(client: Any, made: Rescue, options: Mapping[str, Any]) -> Rescue:
    from workerdiag.recorder.install import check_importable
    from workerdiag.recorder.rescue import PLUGIN_NAME, RescueMemoryDeaths, undo_rescue

    await check_importable(client)
    await client.run_on_scheduler(undo_rescue)
    if not options["dry_run"]:
        made.keep_nannies(options["deadline_s"])
    client.subscribe_topic(ACT_TOPIC, made.on_event)
    await client.register_plugin(RescueMemoryDeaths(**options, asked_by=made.id), name=PLUGIN_NAME)
    return made


def _most_of_cluster(client: Client) -> int:
    """The memory of the machine on which the client's cluster starts workers by itself."""
    cluster = getattr(client, "cluster", None)
    most_bytes = internals.startable_bytes(cluster)
    if most_bytes is None:
        what = f"a {type(cluster).__name__}" if cluster is not None else "a cluster that the client did not start"
        raise InstallError(
            where=("the cluster",),
            why=f"workerdiag cannot start a bigger worker on {what}",
            remedy="give add_worker, a function that starts one (docs/rescue.md), or leave out most_memory",
        )
    return most_bytes


class Rescue:
    """What `rescue` returns: what was done so far, and how to end it."""

    def __init__(self, client: Client, *, most_workers: int, add_worker: AddWorker | None) -> None:
        self._client: Any = client
        #: Stands in each act of this call; another call, which replaces it, has another one.
        self.id = uuid4().hex
        self._most_workers = most_workers
        self._add_worker = add_worker
        self._history: list[RescueAct] = []
        self._numbers = count(1)
        #: Names of the workers that were started here.
        self._added: list[str] = []
        #: What was asked of the caller's function since the last restore.
        self._asked_count = 0
        #: Pending work on the client's event loop.
        self._pending: set[asyncio.Future[Any]] = set()
        self._let_nannies_go: internals.Undo | None = None

    @property
    def history(self) -> tuple[RescueAct, ...]:
        """What was done since the call, oldest first; in a dry run, what would have been done."""
        return tuple(self._history)

    def undo(self) -> object:
        """Undo all that is in force, end bigger workers, and act no more; an asynchronous client awaits it."""
        return self._client.sync(self._undo)

    def __str__(self) -> str:
        acts = [f"{'would: ' if each.is_dry_run else ''}{each.text}" for each in self._history]
        return "\n".join(acts) or "Nothing had to be done."

    def keep_nannies(self, timeout_s: float) -> None:
        """Have the client's cluster not end the nanny of a worker that is starting again after a death."""
        self._let_nannies_go = internals.keep_nannies(self._client.cluster, timeout_s)

    def on_event(self, event: tuple[float, object]) -> None:
        """Note what the scheduler does, and do what only a client can; called for each act."""
        act = decode_message(event[1])
        if not isinstance(act, RescueAct) or act.asked_by != self.id:
            return
        self._history.append(act)
        if act.is_dry_run:
            return
        if act.act == "bigger-worker" and act.memory_bytes:
            self._start_worker(act.memory_bytes)
        elif act.act == "restore":
            self._asked_count = 0
            self._spawn(self._end_added())

    def _start_worker(self, memory_bytes: int) -> None:
        from workerdiag.recorder.rescue import RESOURCE

        resources = {RESOURCE: 1.0}
        if self._asked_count >= self._most_workers:
            return
        self._asked_count += 1
        if self._add_worker is not None:
            loop = asyncio.get_running_loop()
            self._spawn(loop.run_in_executor(None, self._add_worker, memory_bytes, resources))
        elif len(self._added) < self._most_workers:
            name = f"bigger-{next(self._numbers)}"
            self._added.append(name)
            internals.start_worker(self._client.cluster, name, memory_bytes, resources)

    def _spawn(self, work: Any) -> None:
        future = asyncio.ensure_future(work)
        self._pending.add(future)
        future.add_done_callback(self._on_done)

    def _on_done(self, future: asyncio.Future[Any]) -> None:
        self._pending.discard(future)
        if not future.cancelled() and (problem := future.exception()) is not None:
            logger.warning("No bigger worker was started or ended: %s", describe_error(problem))

    async def _end_added(self, *, move_results: bool = False) -> None:
        """End the workers that were started here; one that holds results stays, unless these are moved."""
        cluster = self._client.cluster
        for name in list(self._added):
            address = internals.address_of_worker(cluster, name)
            if address is not None:
                held = await asyncio.wait_for(self._client.scheduler.has_what(workers=[address]), 5.0)
                if held.get(address) and not move_results:
                    continue
            await internals.stop_worker(cluster, name)
            self._added.remove(name)

    async def _undo(self) -> None:
        from workerdiag.recorder.rescue import undo_rescue

        await self._client.run_on_scheduler(undo_rescue)
        self._client.unsubscribe_topic(ACT_TOPIC)
        if self._let_nannies_go is not None:
            self._let_nannies_go()
        await self._end_added(move_results=True)
