"""The last moments of dead workers: memory, tasks and events by time, for drawings."""

from __future__ import annotations

from typing import Literal

from workerdiag.model.identity import NO_IDENTITY, Identity
from workerdiag.model.normalize import normalize_fields
from workerdiag.units import format_bytes
from workerdiag.values import frozen

#: A worker came up, stopped accepting work, accepted it again, or had something else wrong.
_LifeMoment = Literal["start", "pause", "resume", "trouble"]
#: It closed itself, was asked to stop, was lost to the scheduler, was restarted; or Dask gave up on a task.
_LossMoment = Literal["self-closed", "stop-request", "connection-lost", "removal", "restart", "blame"]
#: What happened besides deaths.
MomentKind = Literal[_LifeMoment, _LossMoment]


@frozen(kw_only=True, field_transformer=normalize_fields)
class CodeLine:
    """A line of the user's own code, outside of Python, Dask and installed packages."""

    file: str
    line: int
    function: str = ""
    #: Key of the task that was at this line; None: not known.
    task: str | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}{f', in {self.function}' if self.function else ''}"


@frozen(kw_only=True, field_transformer=normalize_fields)
class MemorySample:
    """Memory at one moment, in bytes; None: not known."""

    #: Seconds since the epoch.
    at: float
    #: Resident set size of the process.
    process_bytes: int | None = None
    #: Results that Dask holds in memory, and on disk.
    managed_bytes: int | None = None
    spilled_bytes: int | None = None
    #: The cgroup of the process, with everything else in it.
    group_bytes: int | None = None
    #: What the process has asked for, touched or not (``VmData``). Of it 8 MiB for each thread's stack are hardly
    #: ever touched, so it is its growth that says what is about to be filled.
    asked_bytes: int | None = None


@frozen(kw_only=True, field_transformer=normalize_fields)
class HeldObject:
    """What one variable held: name, type and size, never a value."""

    #: As the code has it: ``cols``, ``self.history``, ``CACHE``.
    name: str
    #: With its package, unless it is Python's own: ``list``, ``numpy.ndarray``.
    type: str
    #: An estimate, with all that the object holds.
    size_bytes: int
    #: Elements of a list, tuple, set, dictionary or deque; None for everything else.
    count: int | None = None
    #: Where the function was whose variable it is, and the task; None for a variable of a module.
    line: CodeLine | None = None
    #: The module whose variable it is; empty for a variable of a function.
    module: str = ""

    @property
    def where(self) -> str:
        """``file:line, in function``, or the module whose variable it is."""
        return str(self.line) if self.line else f"module {self.module}"

    def __str__(self) -> str:
        elements = f" of {self.count:,}" if self.count is not None else ""
        return f"{self.name}{elements} with {format_bytes(self.size_bytes)} ({self.where})"


@frozen(kw_only=True, field_transformer=normalize_fields)
class MemoryCensus:
    """The largest objects of tasks and the user's modules at 75, 85 or 92 % of the limit; one may be in another."""

    #: Seconds since the epoch.
    at: float
    #: What the process held, and the lowest limit that ends it.
    rss_bytes: int | None = None
    limit_bytes: int | None = None
    #: Whether there was time to look at all variables.
    is_complete: bool = True
    objects: tuple[HeldObject, ...] = ()


@frozen(kw_only=True, field_transformer=normalize_fields)
class MemoryAtKill:
    """The nanny's last look at a process, right before it ended it for its memory (``/proc/PID/status``)."""

    #: Seconds since the epoch.
    at: float
    #: Resident (``VmRSS``), the most that ever was (``VmHWM``), and swapped out.
    rss_bytes: int | None = None
    peak_rss_bytes: int | None = None
    swapped_bytes: int | None = None
    #: As `MemorySample.asked_bytes`.
    asked_bytes: int | None = None


@frozen(kw_only=True, field_transformer=normalize_fields)
class MemoryLimits:
    """The limits that applied to one process; None: not known."""

    #: Dask's memory limit of the worker, in bytes.
    worker_bytes: int | None = None
    #: The hard limit of its cgroup, in bytes.
    group_bytes: int | None = None
    #: Fractions of *worker_bytes* at which Dask spills results, pauses the worker and ends it.
    spill_fraction: float | None = None
    pause_fraction: float | None = None
    terminate_fraction: float | None = None


@frozen(kw_only=True, field_transformer=normalize_fields)
class TaskSpan:
    """A task on a thread of a worker that died."""

    key: str
    #: Name of the thread; empty if not known.
    thread: str = ""
    #: Seconds since the epoch.
    started_at: float
    #: Seconds since the epoch; None: it still ran when the process ended.
    ended_at: float | None = None
    #: Whether its thread received the fatal signal; None: not known.
    crashed: bool | None = None


@frozen(kw_only=True, field_transformer=normalize_fields)
class ProcessHistory:
    """The last minutes of one worker process."""

    identity: Identity
    #: Oldest first.
    samples: tuple[MemorySample, ...] = ()
    limits: MemoryLimits = MemoryLimits()
    tasks: tuple[TaskSpan, ...] = ()
    #: What held the most memory as it came near its limit, oldest first.
    censuses: tuple[MemoryCensus, ...] = ()
    #: None unless its nanny ended it for its memory.
    at_kill: MemoryAtKill | None = None
    #: Peak memory of its cgroup, as the kernel counted it; only if the cgroup has a limit.
    group_peak_bytes: int | None = None
    #: Whether the samples come from the flight recorder, not only from logs and heartbeats.
    recorded: bool = False
    #: When it ended, or when its end was noticed, in seconds since the epoch.
    when: float | None = None


@frozen(kw_only=True, field_transformer=normalize_fields)
class Moment:
    """Something that happened around the deaths."""

    #: Seconds since the epoch.
    at: float
    kind: MomentKind
    identity: Identity = NO_IDENTITY
    #: The reporter's words, in one line.
    text: str = ""


@frozen(kw_only=True, field_transformer=normalize_fields)
class Timeline:
    """What happened around the deaths, as far as it is known."""

    #: The histories of the first deaths that nobody asked for, in order.
    histories: tuple[ProcessHistory, ...] = ()
    #: Oldest first.
    moments: tuple[Moment, ...] = ()
