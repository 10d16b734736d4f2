"""
A cluster that is not there: its workers die, and it goes and comes back, at the seconds a test says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from attrs import define, evolve, field

from workerdiag.errors import ClusterEndedError, SchedulerUnreachableError
from workerdiag.incidents.watched_incident import WatchedDeath
from workerdiag.model.evidence import Evidence, ProcessExit
from workerdiag.model.identity import Identity
from workerdiag.watch.feed.death_feed import Cursor, FeedBatch, StoredDeaths

#: When every simulation begins, in seconds since the epoch.
NOON = 1_764_000_000.0
ADDRESS = "tcp://10.0.0.1:8786"


def death(number: int, second: float, *, signal: int = 9, host: str = "10.0.0.4", **more) -> WatchedDeath:
    """
    One worker of many that died of a signal.
    """
    worker = f"tcp://{host}:{40000 + number}"
    identity = Identity(worker=worker, pid=7000 + number, host=host, name=f"w{number}")
    evidence = (ProcessExit(identity=identity, signal=signal, when=NOON + second, reporter="nanny log"),)
    values = {"id": f"death-{number}", "when": NOON + second, "identity": identity, "evidence": evidence}
    return WatchedDeath(**{**values, **more})


@define(eq=False)
class SimulatedFeed:
    """
    A feed whose questions take simulated seconds and no real ones; it is the clock of the test, too.
    """

    deaths: Sequence[WatchedDeath] = ()
    #: From and until when the scheduler does not answer, in seconds.
    outages: Sequence[tuple[float, float]] = ()
    #: When the cluster is closed, in seconds.
    ends_at: float | None = None
    #: From and until when no work goes on, in seconds.
    standstill: tuple[float, float] = (0.0, 0.0)
    standstill_evidence: tuple[Evidence, ...] = ()
    #: Deaths that were overwritten, by the second of the next answer.
    missed: dict[float, int] = field(factory=dict)
    #: What a scheduler wrote down before it went.
    written: Sequence[WatchedDeath] = ()
    #: How many more it wrote down than are read.
    unread_count: int = 0
    #: Name of the scheduler's run, from some seconds on.
    epochs: dict[float, str] = field(factory=lambda: {0.0: "first"})
    cluster: str = "prod"
    #: When the test is over, and what to do then.
    until: float = 3600.0
    at_end: Callable[[], None] = lambda: None
    second: float = field(default=0.0, init=False)
    polls: list[Cursor | None] = field(factory=list, init=False)
    is_closed: bool = field(default=False, init=False)

    def now(self) -> float:
        """
        The clock.
        """
        return NOON + self.second

    async def pause(self, seconds: float) -> None:
        """
        Let simulated time go by.
        """
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
            cluster=self.cluster,
            cursor=Cursor(epoch=self._epoch(), position=position + len(dead)),
            now=self.now(),
            deaths=tuple(evolve(each) for each in dead),
            missed_count=missed,
            standstill=self.standstill_evidence if stands else (),
        )

    async def stored(self, after: Cursor | None) -> StoredDeaths:
        del after
        deaths = tuple(each for each in self.written if each.when <= self.now())
        return StoredDeaths(deaths=deaths, missed_count=self.unread_count)

    async def close(self) -> None:
        self.is_closed = True

    def _epoch(self) -> str:
        return self.epochs[max(each for each in self.epochs if each <= self.second)]

    async def _pass(self, second: float) -> None:
        """
        Move the clock on; at the end of the test it stands still, and nothing comes any more.
        """
        await asyncio.sleep(0)
        if second <= self.second:
            return
        if second < self.until:
            self.second = second
            return
        self.second = self.until
        self.at_end()
        await asyncio.Event().wait()
