"""
What a black box says, as values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import asdict, field, frozen

#: Shape of `box_to_dict`.
SCHEMA = 1


@frozen(kw_only=True)
class RunningTask:
    """
    A task that was running on a thread when the box was last written.
    """

    #: Which of the box's slots; one thread has one.
    slot: int
    #: Key of the task, at most 200 bytes of it.
    key: str
    #: Whether the key is longer than that.
    clipped: bool = False
    #: As ``threading.get_ident`` has it.
    thread_id: int
    thread_name: str
    #: When it began, in seconds since the epoch.
    since: float
    #: The same by the machine's monotonic clock, in seconds.
    since_monotonic_s: float


@frozen(kw_only=True)
class FinishedTask:
    """
    A task that ended.
    """

    slot: int
    key: str
    clipped: bool = False
    #: When it began and ended, in seconds since the epoch.
    started: float
    ended: float
    duration_s: float
    #: ``ok``, ``error`` or what else the recorder calls it.
    outcome: str


@frozen(kw_only=True)
class Sample:
    """
    Process, control group and host at one moment; None where it was not known.
    """

    #: Seconds since the epoch, and by the machine's monotonic clock.
    when: float
    monotonic_s: float
    process_rss_bytes: int | None = None
    #: What Dask knows the worker's results to take, in memory and on disk.
    managed_bytes: int | None = None
    spilled_bytes: int | None = None
    #: What Dask lets the worker have.
    memory_limit_bytes: int | None = None
    cgroup_current_bytes: int | None = None
    cgroup_limit_bytes: int | None = None
    #: How many processes the kernel has killed in the control group (``oom_kill`` of ``memory.events``).
    cgroup_oom_kills: int | None = None
    host_available_bytes: int | None = None
    open_files: int | None = None
    open_files_limit: int | None = None
    thread_count: int | None = None


@frozen(kw_only=True)
class Lag:
    """
    How late the event loop was, and how contended the GIL, at one moment.
    """

    when: float
    monotonic_s: float
    loop_s: float
    #: Share of time from 0 to 1; None if not measured.
    gil: float | None = None


@frozen(kw_only=True)
class BlackBox:
    """
    All that could be read of a black box.
    """

    #: Who wrote it; docs/black-box.md has the names.
    identity: Mapping[str, str] = field(hash=False)
    #: What the worker was last about to do; empty if it did not say.
    state: str = ""
    #: Tasks that were running, by slot.
    executing: tuple[RunningTask, ...] = ()
    #: The last tasks that ended, oldest first; as are samples and lags.
    finished: tuple[FinishedTask, ...] = ()
    samples: tuple[Sample, ...] = ()
    lags: tuple[Lag, ...] = ()
    #: The last that was logged or written to standard error.
    lines: bytes = field(default=b"", repr=lambda data: f"<{len(data)} bytes>")
    #: What `faulthandler` wrote in the process's last moment.
    fault: str = ""
    #: What could not be read, for a person.
    torn: tuple[str, ...] = ()
    #: When the box was made, and when anything was last written to it, in seconds since the epoch.
    created_at: float = 0.0
    written_at: float = 0.0


def box_to_dict(box: BlackBox) -> dict[str, Any]:
    """
    The box as dictionaries, lists, text, numbers and None, with ``schema`` for its shape.
    """
    plain = asdict(box, value_serializer=lambda _, __, value: _json_value(value))
    return {"schema": SCHEMA, **plain}


def _json_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return list(value) if isinstance(value, tuple) else value
