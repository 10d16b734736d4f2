"""The loop of a watcher: it asks for deaths, stores them, judges those that have settled, and sends notices.

A round never raises: a failure becomes a note in the watcher's status, and the next round follows.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from attrs import define, field

from workerdiag.deadline import in_thread
from workerdiag.errors import ClusterEndedError, SchedulerUnreachableError, StateInUseError, describe_error
from workerdiag.incidents.incident import SettleWindow, WatchedIncident
from workerdiag.model.evidence import Evidence
from workerdiag.watch.blindness import Blindness
from workerdiag.watch.casebook import Casebook
from workerdiag.watch.feed.death_feed import Cursor, DeathFeed, FeedBatch
from workerdiag.watch.journal_recovery import JournalRecovery
from workerdiag.watch.progress import WatcherProgress

#: Seconds that one question to the scheduler waits for a death.
POLL_S = 20.0
#: Seconds after which a feed without an answer counts as unreachable.
_LATE_S = 30.0
#: Seconds between two questions to a scheduler that does not answer.
_PAUSE_S = 5.0
#: Time limit for judging the deaths that settled together, in seconds.
_JUDGE_S = 20.0
#: Seconds after which a continuing standstill is judged again.
_STANDSTILL_AGAIN_S = 60.0
#: Consecutive failures to judge that make the watcher blind.
_MAX_FAILURES = 3
#: Time limits at the end, in seconds: the last question to the scheduler, and the last judgement.
_LAST_LOOK_S = 1.0
_LAST_JUDGE_S = 5.0

_T = TypeVar("_T")


@define(eq=False, kw_only=True)
class WatchLoop:
    """The loop of one watcher, in its own event loop."""

    feed: DeathFeed
    book: Casebook
    #: Judges deaths within a number of seconds; returns incidents.
    judge: Callable[..., Sequence[WatchedIncident]]
    #: Judges the evidence of a standstill at a time within a number of seconds; returns an incident.
    judge_standstill: Callable[..., WatchedIncident | None]
    progress: WatcherProgress
    #: Seconds since the epoch.
    clock: Callable[[], float]
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    _settling: SettleWindow = field(init=False)
    _blindness: Blindness = field(init=False)
    _journals: JournalRecovery = field(init=False)
    _cursor: Cursor | None = field(default=None, init=False)
    _seen_at: float | None = field(default=None, init=False)
    _started_at: float = field(init=False)
    _standstill_at: float | None = field(default=None, init=False)
    _failures: int = field(default=0, init=False)
    _stop: asyncio.Event = field(factory=asyncio.Event, init=False)
    _is_ended: bool = field(default=False, init=False)
    #: The other watcher that has the state now, if any.
    _usurper: str = field(default="", init=False)
    #: Whether the state has been read.
    _is_resumed: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._settling = SettleWindow(self.book.settings.settle_s)
        self._blindness = Blindness(self.book.settings.blind_s)
        self._started_at = self.clock()
        self._journals = JournalRecovery(
            feed=self.feed,
            book=self.book,
            blindness=self._blindness,
            clock=self.clock,
            found=lambda: self._settling.arrived(self.clock()),
            failed=self._failed,
        )

    def stop(self) -> None:
        """Stop the loop; called in its thread."""
        self._stop.set()

    async def run(self) -> None:
        """Run until the cluster ends or `stop` is called; then judge the deaths that have not settled."""
        try:
            while not self._stop.is_set() and not self._is_ended:
                await self._round()
            if self._usurper:
                self.progress.changed("closed", self._usurper)
            else:
                await self._finish()
        finally:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(self.feed.close(), _LAST_LOOK_S)

    async def _round(self) -> None:
        if not self._is_resumed:
            with self._noting("read the state"):
                self._resume()
        await self._look(self._wait_s())
        await self._journals.go_on()
        if self._settling.is_due(self.clock()):
            await self._judge_deaths(_JUDGE_S)
        self._on_time()

    async def _finish(self) -> None:
        if not self._is_ended and self._seen_at is not None:
            await self._look(0.0, late_s=_LAST_LOOK_S)
        if self._settling.due_at is not None:
            await self._judge_deaths(_LAST_JUDGE_S)
        if self._is_ended:
            with self._noting("end the cases"):
                self.book.end(self.clock())
            self.progress.changed("ended")

    def _resume(self) -> None:
        """Resume where an earlier watcher stopped."""
        self._cursor = self.book.cursor()
        if self.book.pending():
            self._settling.arrived(self.clock())
        self._is_resumed = True

    def _wait_s(self) -> float:
        """Return the seconds that the next question may wait: until something else is due."""
        due = (each for each in (self._settling.due_at, self._journals.due_at) if each is not None)
        return min(POLL_S, max(0.0, min(due, default=math.inf) - self.clock()))

    async def _look(self, wait_s: float, *, late_s: float = _LATE_S) -> None:
        """Ask the scheduler once, and note its answer, or that there is none."""
        try:
            batch = await self._poll(wait_s, late_s)
            if batch is not None:
                await self._seen(batch)
        except ClusterEndedError:
            self._is_ended = True
            await self._journals.finish(self._cursor)
        except SchedulerUnreachableError as problem:
            await self._not_seen(problem.problem)
        except Exception as problem:  # noqa: BLE001  the watcher goes on
            self._failed("note what the scheduler said", problem)
            await self._not_seen(describe_error(problem))

    async def _poll(self, wait_s: float, late_s: float) -> FeedBatch | None:
        """Return the feed's answer; None if the watcher is stopped meanwhile."""
        asking = asyncio.ensure_future(self.feed.poll(self._cursor, wait_s=wait_s))
        asking.add_done_callback(_retrieve)
        stopping = asyncio.ensure_future(self._stop.wait())
        waited_for = {asking} if self._stop.is_set() else {asking, stopping}
        try:
            await asyncio.wait(waited_for, timeout=wait_s + late_s, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return asking.result()
            if self._stop.is_set():
                return None
            problem = f"no answer within {wait_s + late_s:.0f} s"
            raise SchedulerUnreachableError(address=self.book.cluster, problem=problem)
        finally:
            asking.cancel()
            stopping.cancel()

    async def _seen(self, batch: FeedBatch) -> None:
        before = self._cursor
        if before is not None and before.epoch != batch.cursor.epoch:
            await self._journals.begin(before)
        now = self.clock()
        # a watcher restarted before the journal is read begins with the earlier scheduler too
        new_count = self.book.receive(batch) if self._journals.is_over else self.book.add(batch.deaths)
        self._cursor, self._seen_at = batch.cursor, now
        self.progress.seen(now, batch.cluster, new_count)
        if new_count or (self.book.late and self._settling.due_at is None):
            self._settling.arrived(now)
        self._blindness.regained("scheduler")
        if batch.missed_count:
            self._blindness.overrun(now, batch.missed_count)
        await self._stands_still(batch.standstill, batch.now)

    async def _not_seen(self, problem: str) -> None:
        now = self.clock()
        since = self._started_at if self._seen_at is None else self._seen_at
        was_blind = self._blindness.problem(now) is not None
        self._blindness.lost("scheduler", since, problem)
        self.progress.not_seen(problem)
        if self._blindness.problem(now) is not None and not was_blind:
            await self._journals.read(self._cursor)
        if not self._stop.is_set():
            await self._sleep(min(_PAUSE_S, max(0.1, self._wait_s())))

    async def _sleep(self, seconds: float) -> None:
        waiting = [asyncio.ensure_future(self.pause(seconds)), asyncio.ensure_future(self._stop.wait())]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for each in waiting:
            each.cancel()

    async def _judge_deaths(self, timeout_s: float) -> None:
        """Judge all waiting deaths. If that fails, they keep waiting."""
        self._settling.judged()
        try:
            deaths = self.book.to_judge()
            incidents = await _judging(partial(self.judge, deaths, timeout_s=timeout_s), timeout_s)
            self.book.conclude(incidents, deaths, self.clock())
        except Exception as problem:  # noqa: BLE001  the watcher goes on
            now = self.clock()
            self._failures += 1
            self._settling.arrived(now)
            self._failed("judge deaths", problem)
            if self._failures >= _MAX_FAILURES:
                self._blindness.lost("judge", now, f"deaths could not be judged: {describe_error(problem)}")
        else:
            self._failures = 0
            self._blindness.regained("judge")

    async def _stands_still(self, evidence: Sequence[Evidence], when: float) -> None:
        now = self.clock()
        if not evidence:
            self._standstill_at = None
        elif self._standstill_at is None or not 0 <= now - self._standstill_at < _STANDSTILL_AGAIN_S:
            self._standstill_at = now
            with self._noting("judge a standstill"):
                judge = partial(self.judge_standstill, evidence, when=when, timeout_s=_JUDGE_S)
                incident = await _judging(judge, _JUDGE_S)
                self.book.conclude([incident] if incident else [], (), self.clock())

    def _on_time(self) -> None:
        """Say what is due by time: blind, sees again, resolved, reminders, the digest."""
        for failure in self.book.bundles.take_problems() if self.book.bundles is not None else ():
            self._failed("save a death bundle", failure)
        now = self.clock()
        problem = self._blindness.problem(now)
        if problem is not None:
            self.progress.changed("blind", problem)
        with self._noting("note the time"):
            self.book.pass_time(now, seen_at=self._seen_at, problem=problem)

    @contextlib.contextmanager
    def _noting(self, doing: str) -> Iterator[None]:
        try:
            yield
        except Exception as problem:  # noqa: BLE001  the watcher goes on
            self._failed(doing, problem)

    def _failed(self, doing: str, problem: Exception) -> None:
        """Note a failure. The loop continues unless another watcher has the state now."""
        self.progress.note(doing, problem, self.clock())
        if isinstance(problem, StateInUseError):
            self._usurper = str(problem)
            self._stop.set()


async def _judging(judge: Callable[[], _T], timeout_s: float) -> _T:
    """Call *judge* in a daemon thread, and return its result."""
    return await in_thread("workerdiag-watch-judge", judge, timeout_s=timeout_s + _LATE_S)


def _retrieve(asked: asyncio.Future[FeedBatch]) -> None:
    """Retrieve the outcome of an abandoned question, so that asyncio does not complain."""
    if not asked.cancelled():
        asked.exception()
