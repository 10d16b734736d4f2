"""What a scheduler knew of a worker when it removed it; docs/fair-blame.md describes it for other programs."""

from __future__ import annotations

from typing import Literal

from attrs import frozen

from workerdiag.wire.same_death import DeathIdentity


@frozen(kw_only=True)
class Heartbeat:
    """What a worker said of itself last."""

    #: Seconds since the epoch, by the scheduler's clock.
    at: float | None = None
    #: Age when the worker was removed.
    age_s: float | None = None
    rss_bytes: int | None = None
    managed_bytes: int | None = None
    spilled_bytes: int | None = None
    open_files: int | None = None


@frozen(kw_only=True)
class StatusChange:
    """A change of a worker's status, such as from ``running`` to ``paused``."""

    at: float
    before: str
    after: str


@frozen(kw_only=True)
class HeartbeatTask:
    """A task that ran at the last heartbeat."""

    key: str
    #: For how long it had run then.
    running_s: float | None = None


@frozen(kw_only=True)
class SuspectTask:
    """A task with the losses that Dask counts against it, this one included."""

    key: str
    suspicious_count: int = 0


@frozen(kw_only=True)
class RemovalRecord:
    """What the scheduler knew of a worker when it removed it."""

    kind: Literal["removal"] = "removal"
    worker_address: str | None = None
    worker_name: str | None = None
    pid: int | None = None
    nanny_address: str | None = None
    #: Host part of the worker's address.
    address_host: str | None = None
    #: Seconds since the epoch, by the scheduler's clock.
    noticed_at: float | None = None
    stimulus_id: str | None = None
    #: Whether the scheduler expected it.
    is_expected: bool = False
    #: Why the worker closes, if it said so.
    close_reason: str | None = None
    #: The last ten, oldest first.
    status_changes: tuple[StatusChange, ...] = ()
    nthreads: int | None = None
    memory_limit_bytes: int | None = None
    last_heartbeat: Heartbeat = Heartbeat()
    #: Tasks that ran at the last heartbeat and were not finished.
    executing_at_heartbeat: tuple[HeartbeatTask, ...] = ()
    #: Keys of those that had left their thread.
    seceded_keys: tuple[str, ...] = ()
    #: At most 200 keys of the tasks that were assigned, running and most suspicious ones first.
    assigned_keys: tuple[str, ...] = ()
    assigned_count: int | None = None
    #: The most suspicious of them.
    suspects: tuple[SuspectTask, ...] = ()
    #: Tasks that fail with ``KilledWorker`` by this removal.
    given_up: tuple[SuspectTask, ...] = ()
    allowed_failures: int | None = None
    lost_result_count: int | None = None
    #: Scattered data that is gone for good.
    lost_scattered_count: int | None = None
    workers_remaining: int | None = None

    @property
    def was_paused(self) -> bool:
        """Whether the worker was paused last."""
        return bool(self.status_changes) and self.status_changes[-1].after == "paused"

    @property
    def identity(self) -> DeathIdentity:
        """Whose removal it is. The host is no part of it: the scheduler knows an address, not a name."""
        return DeathIdentity(
            worker=self.worker_address or None,
            name=self.worker_name or None,
            pid=self.pid or None,
            nanny=self.nanny_address or None,
            noticed_at=self.noticed_at,
        )
