"""
What the watcher learns of a cluster: deaths, how far they were read, and what stands still.
"""

from __future__ import annotations

from typing import Protocol

from attrs import field, frozen

from workerdiag.incidents.watched_incident import WatchedDeath
from workerdiag.model.evidence import Evidence
from workerdiag.wire.watch_answer import ClusterFigures


@frozen(kw_only=True)
class Cursor:
    """
    How far the deaths of a cluster were read.
    """

    #: Which run of the scheduler: a restarted one counts from the beginning.
    epoch: str
    #: Number of the last death or event that was read, as its keeper counts them.
    position: int = 0


@frozen(kw_only=True)
class FeedBatch:
    """
    What one question to the scheduler brought.
    """

    #: Name of the cluster, as people know it; else the address of its scheduler.
    cluster: str
    cursor: Cursor
    #: The scheduler's clock, in seconds since the epoch.
    now: float
    #: Oldest first.
    deaths: tuple[WatchedDeath, ...] = ()
    #: Deaths or events that were overwritten before anybody read them.
    missed_count: int = 0
    #: Evidence that no work goes on although tasks wait; empty: it does.
    standstill: tuple[Evidence, ...] = field(default=(), eq=False, repr=False)


@frozen(kw_only=True)
class StoredDeaths:
    """
    What a scheduler, which is gone, wrote down before it went.
    """

    #: Oldest first.
    deaths: tuple[WatchedDeath, ...] = ()
    #: Deaths that are too many to be read; some of them may be known already.
    missed_count: int = 0


class DeathFeed(Protocol):
    """
    Where deaths come from. It connects, and connects again, by itself, and keeps no cluster alive.
    """

    async def poll(self, after: Cursor | None, *, wait_s: float) -> FeedBatch:
        """
        The deaths since *after*, at once if there are any, else after at most *wait_s* seconds.

        Raises:
            SchedulerUnreachableError: The scheduler does not answer; it may again.
            ClusterEndedError: The cluster was closed: nothing more will come.
        """

    async def stored(self, after: Cursor | None) -> StoredDeaths:
        """
        The deaths that a scheduler, which is gone, wrote down before it went (the recorder's ``append-to``).
        """

    async def close(self) -> None:
        """
        Let go of the scheduler.
        """


@frozen(kw_only=True)
class Look:
    """
    What one question brought, from a recorder or from events.
    """

    cursor: Cursor
    #: The scheduler's clock, in seconds since the epoch.
    now: float
    #: Oldest first.
    deaths: tuple[WatchedDeath, ...] = ()
    missed_count: int = 0
    figures: ClusterFigures = field(factory=ClusterFigures)
    #: Ids of deaths that no nanny has reported.
    unreported: frozenset[str] = frozenset()
    #: Why the scheduler closes; None: it does not.
    closing_reason: str | None = None
    #: Where the scheduler appends its records; None: nowhere, or not known.
    journal: str | None = None
