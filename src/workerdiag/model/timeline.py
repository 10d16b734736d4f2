"""
What dead workers did in their last moments: memory, tasks and events by time, as drawings show them.
"""

from __future__ import annotations

from typing import Literal

from attrs import frozen

from workerdiag.model.identity import NO_IDENTITY, Identity
from workerdiag.model.normalize import normalize_fields

#: What happened beside deaths: a worker came up (``start``), took no new work and took it again (``pause``,
#: ``resume``), closed itself, was asked to stop, was lost to the scheduler (``connection-lost``,
#: ``removal``), was started anew; Dask gave up on a task (``blame``); something else was wrong (``trouble``).
MomentKind = Literal[
    "start",
    "pause",
    "resume",
    "trouble",
    "self-closed",
    "stop-request",
    "connection-lost",
    "removal",
    "restart",
    "blame",
]


@frozen(kw_only=True, field_transformer=normalize_fields)
class MemorySample:
    """
    Memory at one moment, in bytes; None where a number is not known.
    """

    #: Seconds since the epoch.
    at: float
    #: Resident set size of the process.
    process_bytes: int | None = None
    #: Results that Dask holds in memory, and on disk.
    managed_bytes: int | None = None
    spilled_bytes: int | None = None
    #: The control group of the process, with everything else that is in it.
    group_bytes: int | None = None


@frozen(kw_only=True, field_transformer=normalize_fields)
class MemoryLimits:
    """
    The limits that applied to one process; None where one is not known.
    """

    #: What Dask lets the worker have, in bytes.
    worker_bytes: int | None = None
    #: The hard limit of its control group, in bytes.
    group_bytes: int | None = None
    #: Shares of *worker_bytes* at which Dask spills results, pauses the worker and ends it.
    spill_fraction: float | None = None
    pause_fraction: float | None = None
    terminate_fraction: float | None = None


@frozen(kw_only=True, field_transformer=normalize_fields)
class TaskSpan:
    """
    A task on a thread of a worker that died.
    """

    key: str
    #: Name of the thread; empty where it is not known.
    thread: str = ""
    #: Seconds since the epoch.
    started_at: float
    #: None: it ran when the process ended.
    ended_at: float | None = None
    #: Whether its thread received the fatal signal; None: not known.
    crashed: bool | None = None


@frozen(kw_only=True, field_transformer=normalize_fields)
class ProcessHistory:
    """
    The last minutes of one worker process.
    """

    identity: Identity
    #: Oldest first.
    samples: tuple[MemorySample, ...] = ()
    limits: MemoryLimits = MemoryLimits()
    tasks: tuple[TaskSpan, ...] = ()
    #: The most that its control group held, as the kernel counted it; only where the group has a limit.
    group_peak_bytes: int | None = None
    #: Whether the flight recorder sampled it, and not only logs and heartbeats.
    recorded: bool = False
    #: When it ended, or when that was noticed, in seconds since the epoch.
    when: float | None = None


@frozen(kw_only=True, field_transformer=normalize_fields)
class Moment:
    """
    Something that happened around the deaths.
    """

    #: Seconds since the epoch.
    at: float
    kind: MomentKind
    identity: Identity = NO_IDENTITY
    #: In the words of whoever reported it, in one line.
    text: str = ""


@frozen(kw_only=True, field_transformer=normalize_fields)
class Timeline:
    """
    What is known of the time around the deaths.
    """

    #: Of the first deaths that nobody asked for, in their order.
    histories: tuple[ProcessHistory, ...] = ()
    #: Oldest first.
    moments: tuple[Moment, ...] = ()
