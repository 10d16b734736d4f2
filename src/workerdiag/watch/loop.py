"""The loop of a watcher: it asks for deaths, stores them, judges those that have settled, and sends notices.

A round never raises: a failure becomes a note in the watcher's status, and the next round follows. The loop
also knows what keeps the watcher from seeing its cluster, and reads the journals of schedulers that are gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Literal, TypeVar

from workerdiag.deadline import SettleWindow, in_thread
from workerdiag.errors import ClusterEndedError, SchedulerUnreachableError, describe_error
from workerdiag.guard import guarded
from workerdiag.incidents import WatchedIncident
from workerdiag.model.evidence import Evidence
from workerdiag.model.vocabulary import WatcherState
from workerdiag.redaction.secrets import redact_text
from workerdiag.rendering.wording import pluralize
from workerdiag.values import define, evolve, field, frozen
from workerdiag.watch.casebook import Casebook
from workerdiag.watch.feed.events import Cursor, FeedBatch
from workerdiag.watch.feed.scheduler_feed import SchedulerFeed
from workerdiag.watch.store import SinkStatus

#: Seconds that one question to the scheduler waits for a death.
POLL_S = 20.0
#: Seconds after which a feed without an answer counts as unreachable.
_LATE_S = 30.0
_PAUSE_S = 5.0
#: Time limit for judging the deaths that settled together, in seconds.
_JUDGE_S = 20.0
#: Time limit of the last question to the scheduler, in seconds.
_LAST_LOOK_S = 1.0
#: Seconds before each retry. After the last one the journal is given up.
_AGAIN_S = (5.0, 10.0, 20.0, 40.0)

_T = TypeVar("_T")


@define(eq=False, kw_only=True)
class WatchLoop:
    """The loop of one watcher, in its own event loop."""

    feed: SchedulerFeed
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
    _cursor: Cursor | None = field(default=None, init=False)
    _seen_at: float | None = field(default=None, init=False)
    _started_at: float = field(init=False)
    _failures: int = field(default=0, init=False)
    #: Cursor for the first of the schedulers that are gone whose journal is not read yet; None: all are read.
    _unread: Cursor | None = field(default=None, init=False)
    _read_failures: int = field(default=0, init=False)
    _read_failed_at: float = field(default=0.0, init=False)
    _stop: asyncio.Event = field(factory=asyncio.Event, init=False)
    _is_ended: bool = field(default=False, init=False)
    _is_resumed: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._settling = SettleWindow(self.book.settings.settle_s)
        self._blindness = Blindness(self.book.settings.blind_s)
        self._started_at = self.clock()

    def stop(self) -> None:
        """Stop the loop; called in its thread."""
        self._stop.set()

    async def run(self) -> None:
        """Run until the cluster ends or `stop` is called; then judge the deaths that have not settled."""
        try:
            while not self._stop.is_set() and not self._is_ended:
                await self._round()
            await self._finish()
        finally:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(self.feed.close(), _LAST_LOOK_S)

    async def _round(self) -> None:
        if not self._is_resumed:
            with self.noting("read the state"):
                self._cursor = self.book.cursor()
                if self.book.pending():
                    self._settling.arrived(self.clock())
                self._is_resumed = True
        await self._look(self._wait_s())
        await self._read_unread()
        if self._settling.is_due(self.clock()):
            await self._judge_deaths(_JUDGE_S)
        self._on_time()

    async def _finish(self) -> None:
        if not self._is_ended and self._seen_at is not None:
            await self._look(0.0, late_s=_LAST_LOOK_S)
        if self._settling.due_at is not None:
            await self._judge_deaths(5.0)
        if self._is_ended:
            with self.noting("end the cases"):
                self.book.end(self.clock())
            self.progress.changed(state="ended", problem="")

    def _wait_s(self) -> float:
        """Return the seconds that the next question may wait: until something else is due."""
        due = (each for each in (self._settling.due_at, self._read_due_at) if each is not None)
        return min(POLL_S, max(0.0, min(due, default=math.inf) - self.clock()))

    async def _look(self, wait_s: float, *, late_s: float = _LATE_S) -> None:
        with guarded("asking the scheduler for deaths") as asking:
            batch = await self._poll(wait_s, late_s)
            if batch is not None:
                await self._seen(batch)
        match asking.problem:
            case None:
                pass
            case ClusterEndedError():
                self._is_ended = True
                await self._read_last()
            case SchedulerUnreachableError() as unreachable:
                await self._not_seen(unreachable.problem)
            case problem:
                self._failed("note what the scheduler said", problem)
                await self._not_seen(describe_error(problem))

    async def _poll(self, wait_s: float, late_s: float) -> FeedBatch | None:
        """Return the feed's answer; None if the watcher is stopped meanwhile."""
        asking = asyncio.ensure_future(self.feed.poll(self._cursor, wait_s=wait_s))
        asking.add_done_callback(lambda asked: asked.cancelled() or asked.exception())  # else asyncio complains
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
            self._unread = self._unread or before
            await self._read_unread()
        now = self.clock()
        # a watcher restarted before the journal is read begins with the earlier scheduler too
        new_count = self.book.receive(batch) if self._unread is None else self.book.add(batch.deaths)
        self._cursor, self._seen_at = batch.cursor, now
        death_count = self.progress.status().death_count + new_count
        self.progress.changed(
            state="watching", cluster=self.book.cluster, seen_at=now, problem="", death_count=death_count
        )
        if new_count or (self.book.late and self._settling.due_at is None):
            self._settling.arrived(now)
        self._blindness.regained("scheduler")
        if batch.missed_count:
            lost = (
                "1 death or event was" if batch.missed_count == 1 else f"{batch.missed_count} deaths or events were"
            )
            self._blindness.missed(now, f"{lost} overwritten before the watcher read them")
        if batch.standstill:
            await self._stands_still(batch.standstill, batch.now)

    async def _not_seen(self, problem: str) -> None:
        now = self.clock()
        since = self._started_at if self._seen_at is None else self._seen_at
        was_blind = self._blindness.problem(now) is not None
        self._blindness.lost("scheduler", since, problem)
        self.progress.changed(problem=problem)
        if self._blindness.problem(now) is not None and not was_blind:
            await self._read_journal(self._cursor)
        if not self._stop.is_set():
            await self._sleep(min(_PAUSE_S, max(0.1, self._wait_s())))

    @property
    def _read_due_at(self) -> float | None:
        """Return when the next attempt to read a journal is due; None if there is nothing to read."""
        if self._unread is None:
            return None
        return self._read_failed_at + _AGAIN_S[self._read_failures - 1] if self._read_failures else 0.0

    async def _read_unread(self) -> None:
        """Read the journals of schedulers that were replaced, if an attempt is due."""
        now, due_at = self.clock(), self._read_due_at
        if due_at is None or self._read_failed_at <= now < due_at:
            return
        problem = await self._read_journal(self._unread)
        self._read_failures, self._read_failed_at = self._read_failures + 1, self.clock()
        if not problem or self._read_failures > len(_AGAIN_S):
            self._end_reading(problem)

    async def _read_last(self) -> None:
        """Try once more at the end of the cluster. Deaths may be missing if its scheduler was lost before."""
        problem = await self._read_journal(self._unread or self._cursor)
        is_missed = self._unread is not None or "scheduler" in self._blindness.obstacles
        self._end_reading(problem if is_missed else "")

    async def _read_journal(self, cursor: Cursor | None) -> str:
        """Try once to read the journal of a scheduler. Returns why that failed, or empty text."""
        with self.noting("read the journal of the previous scheduler") as reading:
            deaths, missed_count = await asyncio.wait_for(self.feed.stored(cursor), 30.0)
            new_count = self.book.add(deaths)
        if reading.problem is not None:
            return describe_error(reading.problem)
        if new_count:
            self._settling.arrived(self.clock())
        if missed_count:
            more = f"the journal of the previous scheduler has {pluralize(missed_count, 'more death')}"
            self._blindness.missed(self.clock(), f"{more} than can be read")
        return ""

    def _end_reading(self, problem: str) -> None:
        if problem:
            why = f"deaths before the scheduler went down may be missing: {problem}"
            self._blindness.missed(self.clock(), why)
        self._unread, self._read_failures, self._read_failed_at = None, 0, 0.0

    async def _sleep(self, seconds: float) -> None:
        waiting = [asyncio.ensure_future(self.pause(seconds)), asyncio.ensure_future(self._stop.wait())]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for each in waiting:
            each.cancel()

    async def _judge_deaths(self, timeout_s: float) -> None:
        """Judge all waiting deaths. If that fails, they keep waiting."""
        self._settling.judged()
        with self.noting("judge deaths") as judging:
            deaths = self.book.to_judge()
            incidents = await _judging(partial(self.judge, deaths, timeout_s=timeout_s), timeout_s)
            self.book.conclude(incidents, deaths, self.clock())
        if judging.problem is None:
            self._failures = 0
            self._blindness.regained("judge")
            return
        now = self.clock()
        self._failures += 1
        self._settling.arrived(now)
        if self._failures >= 3:
            why = f"deaths could not be judged: {describe_error(judging.problem)}"
            self._blindness.lost("judge", now, why)

    async def _stands_still(self, evidence: Sequence[Evidence], when: float) -> None:
        with self.noting("judge a standstill"):
            judge = partial(self.judge_standstill, evidence, when=when, timeout_s=_JUDGE_S)
            incident = await _judging(judge, _JUDGE_S)
            self.book.conclude([incident] if incident else [], (), self.clock())

    def _on_time(self) -> None:
        while self.book.bundle_problems:
            self._failed("save a death bundle", self.book.bundle_problems.pop(0))
        now = self.clock()
        problem = self._blindness.problem(now)
        if problem is not None:
            self.progress.changed(state="blind", problem=problem)
        with self.noting("note the time"):
            self.book.pass_time(now, seen_at=self._seen_at, problem=problem)

    def noting(self, doing: str) -> guarded:
        """Run a block; if it fails, the status says what could not be done."""
        return guarded(f"trying to {doing}", partial(self._failed, doing))

    def _failed(self, doing: str, problem: Exception) -> None:
        self.progress.note(doing, problem, self.clock())


async def _judging(judge: Callable[[], _T], timeout_s: float) -> _T:
    return await in_thread("workerdiag-watch-judge", judge, timeout_s=timeout_s + _LATE_S)


#: ``scheduler``: it does not answer. ``overrun``: deaths were lost unread. ``judge``: judging fails.
Obstacle = Literal["scheduler", "overrun", "judge"]


@define
class Blindness:
    """Whether the watcher sees the cluster. Each obstacle counts until it is removed."""

    #: Minimum duration of an obstacle, in seconds: a restart of the scheduler does not count.
    patience_s: float
    #: Since when each is there, and what it is.
    obstacles: dict[Obstacle, tuple[float, str]] = field(factory=dict, init=False)

    def lost(self, obstacle: Obstacle, since: float, problem: str) -> None:
        """Note an obstacle. A known one keeps its start and gets the new wording."""
        self.obstacles[obstacle] = (self.obstacles.get(obstacle, (since, ""))[0], problem)

    def missed(self, now: float, problem: str) -> None:
        """Note deaths that nobody will read. This counts for the minimum duration."""
        known = self.obstacles.pop("overrun", None)
        self.lost("overrun", now, f"{known[1]}; then {problem}"[:300] if known else problem)

    def regained(self, obstacle: Obstacle) -> None:
        """Note that an obstacle is removed."""
        self.obstacles.pop(obstacle, None)

    def problem(self, now: float) -> str | None:
        """Return why the watcher is blind; None if it sees."""
        if (past := self.obstacles.get("overrun")) is not None and now - past[0] >= self.patience_s:
            del self.obstacles["overrun"]
        problems = [
            problem
            for obstacle, (since, problem) in self.obstacles.items()
            if obstacle != "scheduler" or now - since >= self.patience_s
        ]
        return "; ".join(problems) or None


@frozen(kw_only=True)
class WatcherNote:
    """A failure in the watcher, which continued."""

    #: The activity that failed: ``judge deaths``.
    doing: str
    #: What was wrong, for a person, without secrets.
    problem: str
    #: The first and the last time, in seconds since the epoch.
    first_at: float
    last_at: float
    count: int = 1

    def __str__(self) -> str:
        times = f" ({self.count} times)" if self.count > 1 else ""
        return f"could not {self.doing}: {self.problem}{times}"


@frozen(kw_only=True)
class WatcherStatus:
    """The status of a watcher."""

    state: WatcherState
    #: Name of the cluster; empty until it was seen.
    cluster: str = ""
    #: When the scheduler last answered, in seconds since the epoch; None: never.
    seen_at: float | None = None
    #: Why it is blind or not connected; empty: it sees.
    problem: str = ""
    #: Number of deaths that this watcher has read, including deliberate stops.
    death_count: int = 0
    sinks: tuple[SinkStatus, ...] = ()
    #: Failures, the newest last.
    notes: tuple[WatcherNote, ...] = ()


@define(eq=False)
class WatcherProgress:
    """The status that the watcher's thread changes and other threads read."""

    _status: WatcherStatus = field(factory=lambda: WatcherStatus(state="connecting"), init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    def status(self) -> WatcherStatus:
        """Return the current status."""
        return self._status

    def changed(self, **changes: Any) -> None:
        """Note new values of the status; a *problem* without its secrets."""
        if "problem" in changes:
            changes["problem"] = redact_text(changes["problem"])
        with self._lock:
            self._status = evolve(self._status, **changes)

    def note(self, doing: str, problem: BaseException, now: float) -> None:
        """Note a failure. Repeats are counted."""
        note = WatcherNote(doing=doing, problem=redact_text(describe_error(problem)), first_at=now, last_at=now)
        with self._lock:
            notes = list(self._status.notes)
            if notes and (notes[-1].doing, notes[-1].problem) == (note.doing, note.problem):
                notes[-1] = evolve(notes[-1], last_at=now, count=notes[-1].count + 1)
            else:
                notes.append(note)
            self._status = evolve(self._status, notes=tuple(notes[-20:]))
