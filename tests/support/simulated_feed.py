"""A simulated cluster: its workers die, and it goes and comes back, at times set by the test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from attrs import define, evolve, field

from workerdiag.errors import ClusterEndedError, SchedulerUnreachableError
from workerdiag.incidents import WatchedDeath
from workerdiag.model.evidence import Evidence, ProcessExit
from workerdiag.model.identity import Identity
from workerdiag.watch.feed.events import Cursor, FeedBatch

#: Begin of every simulation, in seconds since the epoch.
NOON = 1_764_000_000.0
ADDRESS = "tcp://10.0.0.1:8786"


def death(number: int, second: float, *, signal: int = 9, host: str = "10.0.0.4", **more) -> WatchedDeath:
    """Return one of many workers that died of a signal."""
    worker = f"tcp://{host}:{40000 + number}"
    identity = Identity(worker=worker, pid=7000 + number, host=host, name=f"w{number}")
    evidence = (ProcessExit(identity=identity, signal=signal, when=NOON + second, reporter="nanny log"),)
    values = {"id": f"death-{number}", "when": NOON + second, "identity": identity, "evidence": evidence}
    return WatchedDeath(**{**values, **more})


@define(eq=False)
class SimulatedFeed:
    """A feed whose questions take simulated time only. It is also the clock of the test."""

    deaths: Sequence[WatchedDeath] = ()
    #: Times in which the scheduler does not answer, as start and end in seconds.
    outages: Sequence[tuple[float, float]] = ()
    #: Time at which the cluster is closed, in seconds.
    ends_at: float | None = None
    #: Start and end of the standstill, in seconds.
    standstill: tuple[float, float] = (0.0, 0.0)
    standstill_evidence: tuple[Evidence, ...] = ()
    #: Number of overwritten deaths, by the second of the next answer.
    missed: dict[float, int] = field(factory=dict)
    #: Deaths that a scheduler wrote to its journal before it ended.
    written: Sequence[WatchedDeath] = ()
    #: How many more deaths it wrote than are read.
    unread_count: int = 0
    #: Name of the scheduler's run, by the second at which it starts.
    epochs: dict[float, str] = field(factory=lambda: {0.0: "first"})
    cluster: str = "prod"
    #: End of the test, in seconds, and what to do then.
    until: float = 3600.0
    at_end: Callable[[], None] = lambda: None
    second: float = field(default=0.0, init=False)
    polls: list[Cursor | None] = field(factory=list, init=False)
    is_closed: bool = field(default=False, init=False)

    def now(self) -> float:
        """Return the simulated time."""
        return NOON + self.second

    async def pause(self, seconds: float) -> None:
        """Let simulated time pass."""
        await self._pass(self.second + seconds)

    async def poll(self, after: Cursor | None, *, wait_s: float) -> FeedBatch:
        self.polls.append(after)
        position = after.position if after and after.epoch == self._epoch() else 0
        ordered = sorted(self.deaths, key=lambda each: each.when)
        coming = [each.when - NOON for each in ordered[position:]]
        changes = [*self.missed, *(self.standstill if any(self.standstill) else ())]
        if not coming or coming[0] > self.second:
            later = [each for each in [*coming[:1], *changes] if each > self.second]
            await self._pass(min([self.second + wait_s, *later]))
        if self.ends_at is not None and self.second >= self.ends_at:
            raise ClusterEndedError(ADDRESS)
        if any(start <= self.second < end for start, end in self.outages):
            raise SchedulerUnreachableError(ADDRESS, "connection refused")
        dead = [each for each in ordered[position:] if each.when <= self.now()]
        missed = sum(self.missed.pop(each) for each in list(self.missed) if each <= self.second)
        stands = self.standstill[0] <= self.second < self.standstill[1]
        return FeedBatch(
            cursor=Cursor(epoch=self._epoch(), position=position + len(dead)),
            now=self.now(),
            deaths=tuple(evolve(each) for each in dead),
            missed_count=missed,
            standstill=self.standstill_evidence if stands else (),
        )

    async def stored(self, after: Cursor | None) -> tuple[Sequence[WatchedDeath], int]:
        del after
        deaths = tuple(each for each in self.written if each.when <= self.now())
        return deaths, self.unread_count

    async def close(self) -> None:
        self.is_closed = True

    def _epoch(self) -> str:
        return self.epochs[max(each for each in self.epochs if each <= self.second)]

    async def _pass(self, second: float) -> None:
        """Advance the clock. At the end of the test it stands still, and nothing more happens."""
        await asyncio.sleep(0)
        if second <= self.second:
            return
        if second < self.until:
            self.second = second
            return
        self.second = self.until
        self.at_end()
        await asyncio.Event().wait()
