"""
What the feed asks a scheduler without the recorder: nested functions, so that it needs no workerdiag.

One of them is run there once for each connection. It gives the scheduler one more question that it answers,
for each run of a function is a line in its log, a note in its events, and code to unpack on its event loop.
The scheduler counts the events of each topic (``Topic.count`` in broker.py), and keeps the last thousand; it
notes each function that it runs among those of ``all``. That note is taken out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypedDict, cast

from workerdiag.model.dask import Method, Reply, Scheduler, Topic
from workerdiag.recorder.internals import schedulers
from workerdiag.sources.cluster.scheduler_functions import packer, pauses
from workerdiag.sources.internals import topics_reader

#: The question; with the number of the form of request and reply, as watchers of two releases may ask.
LOOK = "workerdiag_look_2"


class LookRequest(TypedDict):
    """
    What a look is to bring.
    """

    #: The number of the last event that is known, and of which scheduler; empty: none.
    since: int
    scheduler_id: str
    #: Whether to bring all workers that are there, or only those that joined since.
    all_workers: bool
    #: At most 60 seconds.
    wait_s: float
    #: Removals, at most.
    most: int
    #: Removals noticed more seconds ago are passed over; None: none are.
    lookback_s: float | None


class LookReply(TypedDict):
    """
    What it brings.
    """

    scheduler_id: str
    #: Number of the last event that was looked at.
    position: int
    #: The scheduler's clock, in seconds since the epoch.
    now: float
    #: When, why the worker closes if it said so, and the scheduler's event; oldest first.
    removals: list[tuple[float, str | None, Reply]]
    missed_count: int
    #: Process, nanny and name, by address; the scheduler sends the items as pickles one after the other.
    workers: Mapping[str, tuple[object, object, object]]
    #: As `ClusterFigures` has them.
    figures: Mapping[str, int]
    #: Why the scheduler closes; None: it does not.
    closing_reason: str | None
    has_recorder: bool


def look_installer() -> Method:
    """
    The function to run on the scheduler: it lets it answer `LOOK`.

    The question takes a `LookRequest` as *wanted* and returns a `LookReply`.
    """
    look, forget = _looker(), _forgetter()

    async def workerdiag_looks_for_removals(name: str, dask_scheduler: Scheduler) -> None:
        from distributed.protocol.serialize import to_serialize

        pack = cast("Method", to_serialize)

        async def answer(wanted: LookRequest) -> object:
            return pack(await look(wanted, dask_scheduler))

        forget(dask_scheduler)
        dask_scheduler.handlers[name] = answer

    return workerdiag_looks_for_removals


def _looker() -> Method:
    read, describe, reason_of, packed = _event_reader(), _describer(), _reason_reader(), packer()
    figures, closing = schedulers.figures_reader(), schedulers.closing_reader()
    topics_of = topics_reader()

    async def look(wanted: LookRequest, dask_scheduler: Scheduler) -> dict[str, object]:
        from asyncio import CancelledError, sleep
        from time import monotonic, time

        topic = topics_of(dask_scheduler)["all"]
        is_known = wanted["scheduler_id"] == dask_scheduler.id
        since = min(wanted["since"], topic.count) if is_known else 0
        until = monotonic() + min(wanted["wait_s"], 60.0)
        not_before = 0.0 if wanted["lookback_s"] is None else time() - wanted["lookback_s"]
        known: dict[str, tuple[object, ...]] = {}
        removals, position, missed, workers = [], since, 0, b""
        try:
            if wanted["all_workers"]:
                await describe(dask_scheduler, list(dask_scheduler.workers), known)
            while True:
                removals, joined, position, missed = read(topic, since, wanted["most"], not_before)
                if removals:
                    await sleep(0)  # the scheduler has a whole cluster to serve
                await describe(dask_scheduler, joined, known)  # while they are there
                is_over = "workerdiag_watch" in dask_scheduler.handlers or monotonic() >= until
                if removals or is_over or closing(dask_scheduler) is not None:
                    break
                await sleep(min(0.2, max(0.0, until - monotonic())))
            if closing(dask_scheduler) is None:
                workers = await packed(known.items())
                await sleep(0)  # packing the reply takes a moment as well
        except CancelledError:  # a scheduler that closes ends all questions so: it is told why
            if closing(dask_scheduler) is None:
                raise
        return {
            "scheduler_id": dask_scheduler.id,
            "position": position,
            "now": time(),
            "removals": [(when, reason_of(dask_scheduler, each), each) for when, each in removals],
            "missed_count": missed if is_known else 0,
            "workers": workers,
            "figures": figures(dask_scheduler),
            "closing_reason": closing(dask_scheduler),
            "has_recorder": "workerdiag_watch" in dask_scheduler.handlers,
        }

    return look


def _forgetter() -> Method:
    topics_of = topics_reader()

    def forget(scheduler: Scheduler) -> None:
        """
        Take the note of the function that runs out of the events, which nobody has counted yet.

        No other note: a watcher that was away would be told deaths again that lie before it.
        """
        topic = topics_of(scheduler)["all"]
        message = topic.events[-1][1] if topic.events else None
        function = message.get("function") if isinstance(message, dict) else None
        if isinstance(function, bytes) and b"workerdiag_looks_for" in function:
            topic.events.pop()
            topic.count -= 1

    return forget


def _event_reader() -> Method:
    def shorten(message: Reply) -> dict[str, object]:
        """
        A removal with at most 20 keys of the tasks that were on the worker, and how many there were.
        """
        keys = message.get("processing-tasks") or ()
        shortened = {**message, "processing_count": len(keys)}
        shortened["processing-tasks"] = [str(key)[:200] for _, key in zip(range(20), keys, strict=False)]
        for lost in ("lost-computed-tasks", "lost-scattered-tasks"):
            shortened[lost] = len(message.get(lost) or ())
        return shortened

    def read(
        topic: Topic, since: int, most: int, not_before: float
    ) -> tuple[list[object], set[str], int, int]:
        """
        The removals after an event, who joined, the number of the last event, and how many were overwritten.

        Where notes of functions were taken out, numbers are too high, and never too low.
        """
        from itertools import islice

        events = topic.events
        position = first = max(since, topic.count - len(events))
        found: list[object] = []
        joined: set[str] = set()
        for when, message in list(islice(reversed(events), topic.count - first))[::-1]:
            if len(found) == most:
                break
            position += 1
            action = message.get("action") if isinstance(message, dict) else None
            if action == "add-worker":
                joined.add(message["worker"])
            elif action == "remove-worker" and when >= not_before:
                found.append((when, shorten(message)))
        was_full = len(events) >= (events.maxlen or 0) - 10
        return found, joined, position, first - since if was_full else 0

    return read


def _reason_reader() -> Method:
    topics_of = topics_reader()

    def reason_of(scheduler: Scheduler, removal: Reply) -> str | None:
        """
        Why the worker closes, as it told the scheduler itself; None if it did not.
        """
        topics = topics_of(scheduler)
        worker = str(removal.get("worker"))
        if worker not in topics:
            return None  # asking for it would make it
        for _, message in reversed(topics[worker].events):
            if isinstance(message, dict) and message.get("action") == "closing-worker":
                return str(message.get("reason"))[:200]
        return None

    return reason_of


def _describer() -> Method:
    begin = pauses()

    async def describe(
        scheduler: Scheduler, addresses: Iterable[str], known: dict[str, tuple[object, ...]]
    ) -> None:
        """
        Add process, nanny and name of workers to those that are *known*.
        """
        pause = begin()
        for address in addresses:
            worker = scheduler.workers.get(address)
            if worker is not None and address not in known:
                known[address] = (worker.pid, worker.nanny, str(worker.name)[:200])
            await pause()

    return describe
