"""What a feed returns: the deaths of a cluster, a cursor, a standstill, and whether its scheduler closes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Protocol, TypeVar

from attrs import field, frozen

from workerdiag.incidents.incident import WatchedDeath
from workerdiag.model.dask import Reply
from workerdiag.model.evidence import Evidence
from workerdiag.wire.recorded_death import ClusterFigures


@frozen(kw_only=True)
class Cursor:
    """The position up to which the deaths of a cluster were read."""

    #: Identifies the run of the scheduler: a restarted one counts from the beginning.
    epoch: str
    #: Number of the last death or event read, as the scheduler counts them.
    position: int = 0


@frozen(kw_only=True)
class FeedBatch:
    """The result of one question to a scheduler, its recorder, or of reading its events."""

    cursor: Cursor
    #: The scheduler's clock, in seconds since the epoch.
    now: float
    #: Oldest first.
    deaths: tuple[WatchedDeath, ...] = ()
    #: Ids of those without a report of a nanny.
    unreported: frozenset[str] = frozenset()
    #: Number of deaths or events that were overwritten unread.
    missed_count: int = 0
    figures: ClusterFigures = field(factory=ClusterFigures)
    #: Evidence of a standstill; empty without one.
    standstill: tuple[Evidence, ...] = field(default=(), eq=False, repr=False)
    #: Why the scheduler closes; None: it does not.
    closing_reason: str | None = None
    #: The journal of the scheduler; None: none, or not known.
    journal: str | None = None


@frozen(kw_only=True)
class StoredDeaths:
    """The journal of a scheduler that is gone."""

    #: Oldest first.
    deaths: tuple[WatchedDeath, ...] = ()
    #: Number of further deaths, too many to read; some may be known.
    missed_count: int = 0


class DeathFeed(Protocol):
    """A source of deaths. It connects and reconnects automatically, and keeps no cluster alive."""

    async def poll(self, after: Cursor | None, *, wait_s: float) -> FeedBatch:
        """Return the deaths since *after*, at once if there are any, else after at most *wait_s* seconds.

        Raises:
            SchedulerUnreachableError: The scheduler does not answer; it may again.
            ClusterEndedError: The cluster was closed: nothing more will come.
        """

    async def stored(self, after: Cursor | None) -> StoredDeaths:
        """Return the deaths in the journal of a scheduler that is gone (the recorder's ``append-to``)."""

    async def close(self) -> None:
        """Close the connection."""


#: A closing scheduler answers all questions, and then closes all connections; the answer may arrive later.
_GRACE_S = 0.05
#: Longest wait for a farewell, in seconds: the question lasts this long even if its asker is gone.
LISTEN_S = 10.0

_T = TypeVar("_T")


async def with_farewell(asking: Awaitable[_T], listening: Awaitable[Reply]) -> tuple[_T, str | None]:
    """Return the result of *asking*, and why the scheduler began to close meanwhile; None if unknown.

    It answers *listening* with its ``closing_reason`` as soon as it closes: programs often end soon after a death.
    """
    heard = asyncio.ensure_future(listening)
    try:
        found = await asking
        done, _ = await asyncio.wait({heard}, timeout=_GRACE_S)
    finally:
        heard.cancel()
    if not done or heard.cancelled() or heard.exception() is not None:
        return found, None
    reason = heard.result().get("closing_reason")
    return found, None if reason is None else str(reason)
