"""The content of a black box, as its reader returns it and as a report carries it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from workerdiag.model.timeline import CodeLine, MemoryCensus
from workerdiag.values import evolve, field, frozen

Stage = Literal["running", "closing", "closed"]
#: Regions of the file (`workerdiag.recorder.box.layout`).
RegionName = Literal["identity", "state", "running", "finished", "samples", "lags", "objects", "lines"]
#: What a process cannot record.
MissingPart = Literal[
    "box",
    "running-tasks",
    "tasks-without-slot",
    "last-output",
    "fatal-signals",
    "exit-status",
    "topic-limit",
    "events",
    "journal",
    "journal-overflow",
]


@frozen(kw_only=True)
class RunningTask:
    """A task that was running when the box was last written."""

    #: Key of the task, at most 200 bytes of it.
    key: str
    #: Whether the key is longer than that.
    is_clipped: bool = False
    #: Slot of the box; each thread has its own.
    slot: int | None = None
    #: As ``threading.get_ident`` has it; 0 in an executor whose threads are not known.
    thread_id: int | None = None
    thread_name: str = ""
    #: Seconds since the epoch.
    started_at: float | None = None
    #: The task ended while faulthandler wrote the stacks, in seconds since the epoch.
    ended_at: float | None = None
    #: Whether its thread received the fatal signal; None: not known.
    is_on_crashed_thread: bool | None = None
    #: The line of the user's code at which its thread was when the process was asked to end (SIGTERM).
    line: CodeLine | None = None


@frozen(kw_only=True)
class FinishedTask:
    """A task that ended."""

    key: str
    is_clipped: bool = False
    slot: int | None = None
    #: Seconds since the epoch.
    started_at: float
    ended_at: float
    duration_s: float
    #: ``ended``, or another word of at most 32 bytes.
    outcome: str


@frozen(kw_only=True)
class Sample:
    """Process, control group and host at one moment; None where a number is not known."""

    #: Seconds since the epoch.
    at: float
    process_rss_bytes: int | None = None
    #: What Dask knows the worker's results to take, in memory and on disk.
    managed_bytes: int | None = None
    spilled_bytes: int | None = None
    #: What Dask lets the worker have.
    memory_limit_bytes: int | None = None
    cgroup_current_bytes: int | None = None
    cgroup_limit_bytes: int | None = None
    #: Processes that the kernel has killed in the control group (``oom_kill`` of ``memory.events``).
    cgroup_oom_kills: int | None = None
    host_available_bytes: int | None = None
    open_files: int | None = None
    open_files_limit: int | None = None
    thread_count: int | None = None
    #: What the process may write to, touched or not, its threads' stacks included (``VmData``).
    process_data_bytes: int | None = None


@frozen(kw_only=True)
class Lag:
    """The delay of the event loop and the contention of the GIL at one moment."""

    #: Seconds since the epoch.
    at: float
    loop_s: float
    #: Share of time from 0 to 1; None if not measured.
    gil_contention: float | None = None


@frozen(kw_only=True)
class UnreadablePart:
    """Cells of one region that could not be read."""

    region: RegionName
    unreadable_count: int
    #: All cells of the region.
    cell_count: int


@frozen(kw_only=True)
class BlackBox:
    """All that could be read of a black box; in a report, without the running tasks and cut to size."""

    #: Who wrote it; docs/black-box.md has the names.
    identity: Mapping[str, str] = field(factory=dict, hash=False)
    #: What the worker was last about to do; None if that is not known.
    stage: Stage | None = None
    #: Why it closes, in Dask's words; empty if it did not say.
    close_reason: str = ""
    #: Tasks that were running, by slot.
    running_tasks: tuple[RunningTask, ...] = ()
    #: The last tasks that ended, oldest first; as are samples and lags.
    finished_tasks: tuple[FinishedTask, ...] = ()
    samples: tuple[Sample, ...] = ()
    lags: tuple[Lag, ...] = ()
    #: What held the most memory as it came near its limit.
    censuses: tuple[MemoryCensus, ...] = ()
    #: The last that was logged or written to standard error.
    last_output: str = field(default="", repr=lambda text: f"<{len(text)} characters>")
    #: What `faulthandler` wrote in the process's last moment.
    faulthandler_dump: str = ""
    #: The stacks of all threads whenever the process was asked to end (SIGTERM), and when that was last; not sent.
    stop_stacks: str = field(default="", repr=lambda text: f"<{len(text)} characters>")
    stopped_at: float = 0.0
    unreadable_parts: tuple[UnreadablePart, ...] = ()
    #: When the box was made, and when anything was last written to it, in seconds since the epoch.
    created_at: float = 0.0
    written_at: float = 0.0

    def with_stacks(self, text: str, written_at: float = 0.0) -> BlackBox:
        """The box with what faulthandler wrote: a crash begins with its signal's name, all else is of stops."""
        stop_stacks, start, crash = text.partition("Fatal Python error: ")
        return evolve(self, faulthandler_dump=start + crash, stop_stacks=stop_stacks, stopped_at=written_at)

    @property
    def missing(self) -> frozenset[str]:
        """What the worker could not record, as `MissingPart`; a later release may write other codes."""
        return frozenset(self.identity.get("missing", "").split())

    @property
    def has_all_running_tasks(self) -> bool:
        """Whether no task can have run that the box does not have."""
        return not self.missing & {"running-tasks", "tasks-without-slot"} and not any(
            each.region == "running" for each in self.unreadable_parts
        )
