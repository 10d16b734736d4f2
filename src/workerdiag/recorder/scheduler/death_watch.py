"""
The scheduler's handler for whoever follows the deaths: a long poll, with numbers to go on from.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable
from functools import partial

from workerdiag.deadline import Deadline
from workerdiag.model.dask import Scheduler
from workerdiag.recorder.internals import schedulers
from workerdiag.recorder.scheduler.ring import DeathRing
from workerdiag.wire.messages import encode_message
from workerdiag.wire.plain import to_plain
from workerdiag.wire.recorded_death import RecordedDeath
from workerdiag.wire.watch_answer import ClusterFigures, WatchAnswer

#: Name of the handler.
HANDLER = "workerdiag_watch"
#: Bounds of one answer, whatever is asked for: it is packed on the scheduler's event loop in one go, which
#: takes up to 2 ms for so much.
MAX_DEATHS = 100
MAX_BYTES = 2**17
#: The longest wait: an asker that went away is not noticed before.
MAX_WAIT_S = 60.0
#: While a report is due, its time is looked at this often.
_DUE_POLL_S = 0.1
#: A scheduler that closes waits this long for answers that say so to get out: also to those who were answered
#: so lately that they are about to ask again.
_FAREWELL_S = 0.2
_LATELY_S = 2.0


class DeathWatch:
    """
    Answers any number of askers; none of them makes the scheduler do anything while nothing happens.

    A death is answered once its nanny has reported it, or a second after the removal; and again, as a
    change, when more becomes known of it later.

    Args:
        scheduler: Whose deaths they are.
        ring: Has the deaths.
        is_report_due: Whether a nanny is about to report that death.
        journal: Where the records are appended, for the answers.
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
        #: Until when somebody may be about to ask again.
        self._asked_lately = Deadline.after(0)

    def notify(self) -> None:
        """
        Wake all who wait: the ring has changed.
        """
        self._changed.set()
        self._changed = asyncio.Event()

    async def close(self, closing_reason: str | None) -> None:
        """
        Let all who wait go, and tell them if the scheduler closes.
        """
        self._is_over, self._closing_reason = True, closing_reason
        self.notify()
        if closing_reason is not None and (self._waiting_count or not self._asked_lately.is_over):
            await asyncio.sleep(_FAREWELL_S)

    async def answer(
        self,
        since: int = 0,
        epoch: str = "",
        wait_s: float = 0.0,
        most: int = MAX_DEATHS,
        most_bytes: int = MAX_BYTES,
        lookback_s: float | None = None,
    ) -> dict[str, object]:
        """
        The deaths after a change: at once if there are any, else after at most *wait_s* seconds.

        Args:
            since: Number of the last change that is known.
            epoch: Which start of the recorder counted it; of another one, all deaths are answered.
            wait_s: At most 60 seconds.
            most: How many deaths, at most 100.
            most_bytes: How long the answer may be, at most 128 KiB; one death is answered in any case.
            lookback_s: Deaths noticed more seconds ago are passed over; None: none are.

        Returns:
            A `WatchAnswer` as plain data.
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
            figures=ClusterFigures(**schedulers.cluster_figures(self._scheduler)),
            closing_reason=self._closing_reason,
            journal=self._journal,
        )
        plain = []
        for death in deaths:
            plain.append(to_plain(death))
            await asyncio.sleep(0)  # the scheduler has a whole cluster to serve
        self._asked_lately = Deadline.after(_LATELY_S)
        return encode_message(answer) | {"deaths": plain}

    async def _wait(self, deadline: Deadline, *, is_due: bool) -> None:
        changed = self._changed
        wait_s = min(deadline.left_s, _DUE_POLL_S) if is_due else deadline.left_s
        self._waiting_count += 1
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), wait_s)
        finally:
            self._waiting_count -= 1

    def _settled_since(
        self, first: int, *, most: int, most_bytes: int, not_before: float
    ) -> tuple[list[RecordedDeath], int, bool]:
        """
        The deaths for one answer, the number of their last change, and whether there are more.

        What waits for a report holds back what changed after it, so that nothing is passed over.
        """
        left = max(0, min(int(most_bytes), MAX_BYTES))
        found: list[RecordedDeath] = []
        position = first
        for kept in self._ring.changed_since(first):
            if not self._is_over and self._is_report_due(kept.death):
                break
            if kept.death.time < not_before:
                position = kept.last_change
                continue
            if found and (len(found) >= max(1, min(int(most), MAX_DEATHS)) or kept.size_bytes > left):
                return found, position, True
            left -= kept.size_bytes
            position = kept.last_change
            found.append(kept.death)
        return found, position, False
