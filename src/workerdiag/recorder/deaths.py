"""The latest deaths on a scheduler, in bounded memory, and the long-poll handler that answers watchers.

They outlive the scheduler's event topics, which hold a thousand events for an hour. Each answer carries a cursor
to continue from.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import takewhile
from operator import attrgetter

from attrs import define, field

from workerdiag.deadline import Deadline
from workerdiag.model.dask import Scheduler
from workerdiag.recorder import internals
from workerdiag.recorder.death_report import json_size
from workerdiag.wire.messages import DeathMessage, RescueAct, encode_message
from workerdiag.wire.plain import to_plain
from workerdiag.wire.recorded_death import ClusterFigures, RecordedDeath, WatchAnswer

MAX_DEATHS = 1000
MAX_BYTES = 16 * 2**20


@define(eq=False)
class RingEntry:
    """A death in the ring, with the numbers of its changes."""

    death: RecordedDeath
    #: Number of the change that added it.
    first_change: int
    #: Number of its last change; each message that adds to it is a change.
    last_change: int
    size_bytes: int = field(init=False)

    @size_bytes.default
    def _size_bytes(self) -> int:
        return json_size(to_plain(self.death))


class DeathRing:
    """The latest deaths, within limits: the oldest lose their black boxes first and are then dropped."""

    def __init__(self, most: int = MAX_DEATHS, most_bytes: int = MAX_BYTES) -> None:
        self._most = max(1, most)
        self._most_bytes = most_bytes
        #: In the order in which they were added.
        self._entries: list[RingEntry] = []
        #: Number of the last change, counted from 1.
        self.change_count = 0
        #: For each dropped death, the change that added it.
        self._dropped: deque[int] = deque(maxlen=100_000)
        self.dropped_count = 0

    def __iter__(self) -> Iterator[RecordedDeath]:
        return (entry.death for entry in self._entries)

    @property
    def size_bytes(self) -> int:
        """Total size in bytes."""
        return sum(entry.size_bytes for entry in self._entries)

    def changed_since(self, change: int) -> list[RingEntry]:
        """The deaths added or changed after *change*, in the order of their last changes."""
        changed = (entry for entry in self._entries if entry.last_change > change)
        return sorted(changed, key=attrgetter("last_change"))

    def dropped_since(self, change: int) -> int:
        """The number of deaths that were added after *change* and dropped since."""
        return sum(1 for _ in takewhile(lambda first: first > change, reversed(self._dropped)))

    def add(self, message: DeathMessage) -> bool:
        """Add a message to its death; returns False if it adds nothing."""
        places = reversed(range(len(self._entries)))
        place = next((place for place in places if self._entries[place].death.is_of(message)), None)
        if place is None:
            if isinstance(message, RescueAct):
                return False
            self.change_count += 1
            self._entries.append(RingEntry(RecordedDeath.of(message), self.change_count, self.change_count))
        else:
            entry = self._entries[place]
            death = entry.death.with_message(message)
            if death is entry.death:
                return False
            self.change_count += 1
            self._entries[place] = RingEntry(death, entry.first_change, self.change_count)
        self._enforce_limits()
        return True

    def _enforce_limits(self) -> None:
        while len(self._entries) > self._most:
            self._drop_oldest()
        excess = self.size_bytes - self._most_bytes
        for place, entry in enumerate(self._entries):
            if excess <= 0:
                break
            if (bare := entry.death.without_box()) is not entry.death:
                self._entries[place] = RingEntry(bare, entry.first_change, entry.last_change)
                excess -= entry.size_bytes - self._entries[place].size_bytes
        while self.size_bytes > self._most_bytes and len(self._entries) > 1:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        self._dropped.append(self._entries.pop(0).first_change)
        self.dropped_count += 1


#: Name of the handler.
HANDLER = "workerdiag_watch"
#: Upper limits of one answer. Serializing an answer of this size blocks the scheduler's event loop for up to
#: 2 ms.
MAX_ANSWER_DEATHS = 100
MAX_ANSWER_BYTES = 2**17
#: The longest wait; a client that disconnects is noticed only afterwards.
MAX_WAIT_S = 60.0
#: A closing scheduler waits this long for its last answers to be sent, also to clients that were answered
#: within `_LATELY_S` and may be about to ask again.
_FAREWELL_S = 0.2
_LATELY_S = 2.0


class DeathWatch:
    """Answers any number of clients, at no cost to the scheduler while no worker dies.

    A death is sent once its nanny has reported it, or a second after the removal. It is sent again when a
    later message adds to it. *is_report_due* says whether a nanny is about to report a death; answers pass on
    *journal*, where the records are appended.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        ring: DeathRing,
        *,
        is_report_due: Callable[[RecordedDeath], bool],
        journal: str | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._ring = ring
        self._is_report_due = is_report_due
        self._journal = journal
        self._epoch = uuid.uuid4().hex
        self._changed = asyncio.Event()
        self._closing_reason: str | None = None
        self._is_over = False
        self._waiting_count = 0
        #: Until then, a client that was just answered may be about to ask again.
        self._asked_lately = Deadline.after(0)

    def notify(self) -> None:
        """Wake all waiting clients after a change of the ring."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def close(self, closing_reason: str | None) -> None:
        """Answer all waiting clients, with the reason if the scheduler is closing."""
        self._is_over, self._closing_reason = True, closing_reason
        self.notify()
        if closing_reason is not None and (self._waiting_count or not self._asked_lately.is_over):
            await asyncio.sleep(_FAREWELL_S)

    async def answer(
        self,
        since: int = 0,
        epoch: str = "",
        wait_s: float = 0.0,
        most: int = MAX_ANSWER_DEATHS,
        most_bytes: int = MAX_ANSWER_BYTES,
        lookback_s: float | None = None,
    ) -> dict[str, object]:
        """A `WatchAnswer` as plain data: the deaths after the change *since* of this *epoch*, all of another one.

        It comes at once if there are any, else after at most *wait_s* seconds (60). At most 100 deaths and 128 KiB
        are answered, one death always; none that was noticed more than *lookback_s* seconds ago.
        """
        first = int(since) if epoch == self._epoch else 0
        deadline = Deadline.after(min(float(wait_s), MAX_WAIT_S))
        not_before = 0.0 if lookback_s is None else time.time() - lookback_s
        settled = partial(self._settled_since, first, most=most, most_bytes=most_bytes, not_before=not_before)
        deaths, position, has_more = settled()
        while not deaths and not self._is_over and not deadline.is_over:
            await self._wait(deadline, is_due=self._ring.change_count > first)
            deaths, position, has_more = settled()
        answer = WatchAnswer(
            epoch=self._epoch,
            position=position,
            now=time.time(),
            has_more=has_more,
            missed_count=self._ring.dropped_since(first),
            figures=ClusterFigures(**internals.cluster_figures(self._scheduler)),
            closing_reason=self._closing_reason,
            journal=self._journal,
        )
        plain = []
        for death in deaths:
            plain.append(to_plain(death))
            await asyncio.sleep(0)  # lets the event loop serve the cluster
        self._asked_lately = Deadline.after(_LATELY_S)
        return encode_message(answer) | {"deaths": plain}

    async def _wait(self, deadline: Deadline, *, is_due: bool) -> None:
        changed = self._changed
        wait_s = min(deadline.left_s, 0.1) if is_due else deadline.left_s
        self._waiting_count += 1
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), wait_s)
        finally:
            self._waiting_count -= 1

    def _settled_since(
        self, first: int, *, most: int, most_bytes: int, not_before: float
    ) -> tuple[list[RecordedDeath], int, bool]:
        """The deaths for one answer, the number of their last change, and whether there are more.

        A death that waits for a report holds back all later changes, so that the cursor skips none.
        """
        left = max(0, min(int(most_bytes), MAX_ANSWER_BYTES))
        found: list[RecordedDeath] = []
        position = first
        for kept in self._ring.changed_since(first):
            if not self._is_over and self._is_report_due(kept.death):
                break
            if kept.death.time < not_before:
                position = kept.last_change
                continue
            if found and (len(found) >= max(1, min(int(most), MAX_ANSWER_DEATHS)) or kept.size_bytes > left):
                return found, position, True
            left -= kept.size_bytes
            position = kept.last_change
            found.append(kept.death)
        return found, position, False
