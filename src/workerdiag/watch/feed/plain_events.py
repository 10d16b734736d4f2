"""The same as a look, with the handlers of any scheduler: for another Python there, or forbidden functions.

It is asked every five seconds, and for all its events while these are small (`EventCopy`). Their times, in
microseconds, replace their numbers. Whether it closes, and which workers are paused, is not known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import islice

from workerdiag.deadline import Deadline
from workerdiag.model.dask import Client, Reply
from workerdiag.sources.cluster import queries, state
from workerdiag.sources.cluster.losses import last_noted, with_action
from workerdiag.sources.cluster.workers import fetch_identity
from workerdiag.sources.recorder.source import is_recording
from workerdiag.watch.feed.event_copy import EventCopy
from workerdiag.watch.feed.look_handler import LookReply, LookRequest
from workerdiag.wire.constants import DEATH_TOPIC

_POLL_S = 5.0
#: Maximum number of workers that the scheduler describes (an argument since 2025.4.0).
_MOST_WORKERS = 50
#: Number of workers to remember, including lost ones.
_MAX_KNOWN = 20_000


class PlainEvents:
    """Reads the removals of one scheduler with handlers that every scheduler has.

    Args:
        client: A connection to the scheduler.
    """

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
        last = (
            removals[-1][0] if len(removals) == wanted["most"] else max([since / 1e6, *(at for at, _ in new)])
        )
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
