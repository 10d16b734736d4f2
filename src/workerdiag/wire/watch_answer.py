"""What the recorder on the scheduler answers whoever follows the deaths."""

from __future__ import annotations

from attrs import frozen

from workerdiag.wire.recorded_death import RecordedDeath


@frozen(kw_only=True)
class ClusterFigures:
    """How a cluster stands, in numbers that cost its scheduler next to nothing."""

    worker_count: int = 0
    #: Workers that take tasks: neither paused nor closing.
    running_worker_count: int = 0
    #: Tasks that could run but have no worker.
    waiting_count: int = 0
    #: Tasks that are assigned to workers.
    assigned_count: int = 0
    #: Of these, the ones that ran at the last heartbeats.
    executing_count: int = 0


@frozen(kw_only=True)
class WatchAnswer:
    """The deaths that came, or of which more became known, after a change that the asker names."""

    #: Another one for each start of the recorder: changes are counted from 1 in each.
    epoch: str
    #: Number of the last change that the answer has; what to ask after next time.
    position: int = 0
    #: The scheduler's clock, in seconds since the epoch.
    now: float
    #: In the order of their last changes.
    deaths: tuple[RecordedDeath, ...] = ()
    #: Whether there were more than the answer has room for.
    has_more: bool = False
    #: Deaths after that change which the ring no longer has.
    missed_count: int = 0
    figures: ClusterFigures = ClusterFigures()
    #: Why the scheduler closes, in its own word; None: it does not.
    closing_reason: str | None = None
    #: Where the records are appended, without what may be a password; None: nowhere.
    journal: str | None = None
