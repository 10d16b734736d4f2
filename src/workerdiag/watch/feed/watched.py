"""
What one question to a scheduler brought, however it was asked.
"""

from __future__ import annotations

from attrs import field, frozen

from workerdiag.incidents.deaths import WatchedDeath
from workerdiag.watch.deaths import Cursor
from workerdiag.wire.watch_answer import ClusterFigures


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
