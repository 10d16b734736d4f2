"""The same as a look, with the handlers of any scheduler: for another Python there, or forbidden functions.

It is asked every five seconds, and for all its events while these are small. Their times, in microseconds,
replace their numbers. Whether it closes, and which workers are paused, is not known.

A removal names all tasks of its worker, and Dask sends all events whole: after many removals, one answer
holds the scheduler's event loop for tens of milliseconds. The scheduler's log has one line for each worker
that comes or goes (scheduler.py, 2024.8.1 to 2026.8.0), and the topic of that worker has its removal.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Mapping, Sequence
from itertools import islice

from attrs import frozen

from workerdiag.deadline import Deadline
from workerdiag.model.dask import Client, Reply, is_disallowed
from workerdiag.sources.cluster import queries, state
from workerdiag.sources.cluster.losses import last_noted, with_action
from workerdiag.sources.cluster.workers import fetch_identity
from workerdiag.sources.recorder.source import is_recording
from workerdiag.watch.feed.look_handler import LookReply, LookRequest
from workerdiag.wire import DEATH_TOPIC

_POLL_S = 5.0
#: Maximum number of workers that the scheduler describes (an argument since 2025.4.0).
_MOST_WORKERS = 50
_MAX_KNOWN = 20_000


class PlainEvents:
    """Reads the removals of one scheduler with handlers that every scheduler has."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._copy = EventCopy(client)
        #: Process (not known here), nanny and name of workers, by address, including lost ones.
        self._known: dict[str, tuple[object, object, object]] = {}

    @property
    def entries(self) -> Sequence[tuple[float, object]]:
        """The events of ``all`` at the last question, oldest first; empty before that."""
        return self._copy.entries

    async def ask(self, wanted: LookRequest) -> LookReply:
        """Return the removals after a time, at once if there are any, else after ``wait_s`` seconds."""
        deadline = Deadline.after(wanted["wait_s"])
        while True:
            reply = await self._ask_once(wanted)
            if reply["removals"] or reply["has_recorder"] or deadline.is_over:
                return reply
            await asyncio.sleep(deadline.share(at_most_s=_POLL_S).left_s)

    async def _ask_once(self, wanted: LookRequest) -> LookReply:
        identity = await fetch_identity(self._client, most_workers=_MOST_WORKERS)
        since = wanted["since"] if wanted["scheduler_id"] == identity["id"] else 0
        self._remember(identity["workers"])
        worker_count = int(identity.get("n_workers", len(identity["workers"])))
        entries = await self._copy.refresh(worker_count)
        now = last_noted(identity["workers"], entries)
        new = [(when, each) for when, each in entries if _position(when) > since]
        ages_s = wanted["lookback_s"]
        not_before = 0.0 if ages_s is None else now - ages_s
        recent = (each for each in with_action(new, "remove-worker") if each[0] >= not_before)
        removals = list(islice(recent, wanted["most"]))
        last = removals[-1][0] if len(removals) == wanted["most"] else max([since / 1e6, *(at for at, _ in new)])
        states: Mapping[str, int] = (await state.count_states(self._client))["states"]
        return {
            "scheduler_id": str(identity["id"]),
            "position": max(since, _position(last)),
            "now": now,
            "removals": [
                (when, await _close_reason(self._client, each), self._known.get(str(each["worker"])), each)
                for when, each in removals
            ],
            # the event of the cursor is kept, unless others have replaced it
            "missed_count": int(bool(since and entries and _position(entries[0][0]) > since)),
            "figures": {
                "worker_count": worker_count,
                "running_worker_count": worker_count,
                "waiting_count": sum(states.get(each, 0) for each in ("no-worker", "queued")),
                "assigned_count": states.get("processing", 0),
            },
            "closing_reason": None,
            "has_recorder": is_recording(await queries.fetch_events(self._client, DEATH_TOPIC)),
        }

    def _remember(self, workers: Mapping[str, Reply]) -> None:
        for address, each in workers.items():
            self._known.pop(address, None)  # the newest last
            self._known[address] = (None, each.get("nanny"), each.get("name"))
        while len(self._known) > _MAX_KNOWN:
            del self._known[next(iter(self._known))]


async def _close_reason(client: Client, removal: Reply) -> str | None:
    """Return why the worker closes, in its own words; None if it did not say."""
    if removal.get("expected"):
        return None
    events: Sequence[tuple[float, object]] = await queries.fetch_events(client, str(removal.get("worker")))
    reasons = [str(each.get("reason")) for _, each in with_action(events, "closing-worker")]
    return reasons[-1] if reasons else None


def _position(when: float) -> int:
    return round(when * 1e6)


Entry = tuple[float, object]

#: Maximum number of tasks in the removals of one answer; more hold the scheduler for over 2 ms
#: (`benchmarks/watch_loop.py`).
_MOST_TASKS = 6000
#: Log records per question; more hold the scheduler for over 3 ms.
_MOST_RECORDS = 400
#: Events that a scheduler keeps, by default (``low-level-log-length``).
_MOST_EVENTS = 1000
_CHANGE = re.compile(r"(Register|Remove) worker (?:addr: |<WorkerState ')([^\s',>]+)")


@frozen
class _WorkerChange:
    when: float
    has_come: bool
    worker: str


class EventCopy:
    """The events of ``all``: sent by the scheduler while they are small, else updated from its log.

    The log must account for the number of workers. If it does not, because its level is above INFO or too
    much happened at once, the scheduler is asked for all events, even if they are large.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        #: Oldest first; None: not read yet.
        self._entries: Sequence[Entry] | None = None
        #: Upper bound of the number of tasks in the scheduler's removals.
        self._task_count = 0
        #: Time of the last log record read; None: the log may not be read.
        self._logged_at: float | None = 0.0
        #: Whether the log has records about workers.
        self._is_told = False
        self._worker_count = 0

    @property
    def entries(self) -> Sequence[Entry]:
        """The events at the last `refresh`, oldest first."""
        return self._entries or ()

    async def refresh(self, worker_count: int) -> Sequence[Entry]:
        """Return the events until now, oldest first; *worker_count* is what the scheduler says."""
        changes = await self._read_log()
        is_known = await self._is_accounted_for(changes or (), worker_count)
        new = await self._new_entries(changes or ()) if self._entries is not None else ()
        task_count = self._task_count + _count_tasks(new)
        if self._entries is None or changes is None or not is_known or task_count <= _MOST_TASKS:
            self._entries = await queries.fetch_events(self._client, "all")
            self._task_count = _count_tasks(self._entries)
        else:
            entries = sorted((*self._entries, *new), key=lambda each: each[0])
            self._entries, self._task_count = entries[-_MOST_EVENTS:], task_count
        return self._entries

    async def _read_log(self) -> Sequence[_WorkerChange] | None:
        """Return the workers added and removed since the last time; None if the log may be incomplete."""
        if (since := self._logged_at) is None:
            return None
        try:
            reply = await self._client.scheduler.logs(start=since, n=_MOST_RECORDS, timestamps=True)
        except Exception as problem:
            if not is_disallowed(problem):
                raise
            self._logged_at = None
            return None
        records = [each for each in queries.parse_records(reply) if each.created > since]
        changes = [
            _WorkerChange(each.created, found[1] == "Register", found[2])
            for each in records
            if (found := _CHANGE.search(each.text)) is not None
        ]
        self._logged_at = max([since, *(each.created for each in records)])
        self._is_told = self._is_told or bool(changes)
        return changes if self._is_told and len(reply) < _MOST_RECORDS else None

    async def _is_accounted_for(self, changes: Collection[_WorkerChange], worker_count: int) -> bool:
        """Whether the changes explain the current number of workers, which may be changing."""
        by_log = self._worker_count + sum(1 if each.has_come else -1 for each in changes)
        later = worker_count
        if by_log != worker_count:
            reply = await fetch_identity(self._client, most_workers=0)
            later = int(reply.get("n_workers", len(reply["workers"])))
        is_known = min(worker_count, later) <= by_log <= max(worker_count, later)
        self._worker_count = by_log if is_known else later
        return is_known

    async def _new_entries(self, changes: Collection[_WorkerChange]) -> list[Entry]:
        new: list[Entry] = [
            (each.when, {"action": "add-worker", "worker": each.worker}) for each in changes if each.has_come
        ]
        for worker in dict.fromkeys(each.worker for each in changes if not each.has_come):
            first = min(each.when for each in changes if each.worker == worker)
            events = await queries.fetch_events(self._client, worker)
            removals = with_action(events, "remove-worker")
            new += [(when, {**each, "worker": worker}) for when, each in removals if when >= first]
        return new


def _count_tasks(entries: Collection[Entry]) -> int:
    names = ("processing-tasks", "lost-computed-tasks", "lost-scattered-tasks")
    removals = with_action(list(entries), "remove-worker")
    return sum(len(each.get(name) or ()) for _, each in removals for name in names)
