"""Reads the journals of schedulers that are gone. A failure is retried, and the last one is reported."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from attrs import define, field

from workerdiag.errors import describe_error
from workerdiag.watch.blindness import Blindness
from workerdiag.watch.casebook import Casebook
from workerdiag.watch.feed.death_feed import Cursor, DeathFeed

#: Seconds before each retry. After the last one the journal is given up.
_AGAIN_S = (5.0, 10.0, 20.0, 40.0)
#: Time limit of one attempt, in seconds.
_READ_S = 30.0


@define(eq=False, kw_only=True)
class JournalRecovery:
    """Reads the journals of schedulers that are gone."""

    feed: DeathFeed
    book: Casebook
    blindness: Blindness
    #: Seconds since the epoch.
    clock: Callable[[], float]
    #: Called when there are new deaths.
    found: Callable[[], None]
    #: Called with each failure, and the activity that failed.
    failed: Callable[[str, Exception], None]
    #: Cursor for the first scheduler whose journal is not read yet.
    _after: Cursor | None = field(default=None, init=False)
    _failures: int = field(default=0, init=False)
    _failed_at: float = field(default=0.0, init=False)

    @property
    def is_over(self) -> bool:
        """Whether all journals are read."""
        return self._after is None

    @property
    def due_at(self) -> float | None:
        """Return when the next attempt is due; None if there is nothing to read."""
        if self._after is None:
            return None
        return self._failed_at + _AGAIN_S[self._failures - 1] if self._failures else 0.0

    async def begin(self, after: Cursor) -> None:
        """Read the journal of a scheduler that was replaced, now or in `go_on`."""
        self._after = self._after or after
        await self.go_on()

    async def go_on(self) -> None:
        """Read what is not read yet, if an attempt is due."""
        now, due_at = self.clock(), self.due_at
        if due_at is None or self._failed_at <= now < due_at:
            return
        problem = await self.read(self._after)
        self._failures, self._failed_at = self._failures + 1, self.clock()
        if problem and self._failures <= len(_AGAIN_S):
            return
        if problem:
            self._miss(problem)
        self._end()

    async def finish(self, cursor: Cursor | None) -> None:
        """Try once more at the end of the cluster. Deaths may be missing if its scheduler was lost before."""
        problem = await self.read(self._after or cursor)
        if problem and (not self.is_over or self.blindness.has_lost("scheduler")):
            self._miss(problem)
        self._end()

    async def read(self, cursor: Cursor | None) -> str:
        """Try once to read the journal of a scheduler. Returns why that failed, or empty text."""
        try:
            stored = await asyncio.wait_for(self.feed.stored(cursor), _READ_S)
            new_count = self.book.add(stored.deaths)
        except Exception as problem:  # noqa: BLE001  the watcher goes on
            self.failed("read what the scheduler before wrote down", problem)
            return describe_error(problem)
        if new_count:
            self.found()
        if stored.missed_count:
            self.blindness.too_many(self.clock(), stored.missed_count)
        return ""

    def _end(self) -> None:
        """Note that there is no journal to read."""
        self._after, self._failures, self._failed_at = None, 0, 0.0

    def _miss(self, problem: str) -> None:
        self.blindness.missed(self.clock(), f"deaths before the scheduler went may be missing: {problem}")
