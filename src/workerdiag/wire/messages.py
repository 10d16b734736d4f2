"""The messages of the recorder: what scheduler, nanny and finder of a box say of a death.

docs/recorder.md and docs/fair-blame.md describe them for other programs. Here are also the names and numbers by
which they recognise each other, and the one rule for whether two messages describe the same death.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, get_args

from attrs import asdict, evolve

from workerdiag.model.evidence import TaskFacts
from workerdiag.model.identity import differ
from workerdiag.model.timeline import MemoryAtKill
from workerdiag.values import frozen
from workerdiag.wire import MESSAGE_SCHEMA
from workerdiag.wire.black_box import BlackBox, RunningTask
from workerdiag.wire.plain import BrokenValueError, from_plain, to_plain


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
    #: Sizes of the tasks that ran, or else of the most suspicious ones; at most six.
    task_facts: tuple[TaskFacts, ...] = ()
    lost_result_count: int | None = None
    #: Scattered data that is gone for good.
    lost_scattered_count: int | None = None
    workers_remaining: int | None = None

    @property
    def was_paused(self) -> bool:
        """Whether the worker was paused last."""
        return bool(self.status_changes) and self.status_changes[-1].after == "paused"


#: Kinds of messages that stand for a death in a file.
ReportKind = Literal["nanny-report", "box-found"]
DEATH_KINDS = ("removal", "rescue", *get_args(ReportKind))


@frozen(kw_only=True)
class ExitReport:
    """How a process ended: by a signal or with a status."""

    signal: int | None = None
    status: int | None = None
    #: ``unreadable-code``: the nanny got 255, which Dask also reports for a code that it could not read.
    known_by: Literal["nanny", "unreadable-code", "faulthandler"] = "nanny"


@frozen(kw_only=True)
class CgroupCounters:
    """The control group of nanny and worker when the worker had ended; all processes of the group count."""

    path: str | None = None
    version: int | None = None
    current_bytes: int | None = None
    limit_bytes: int | None = None
    peak_bytes: int | None = None
    #: The kernel's kills when the worker started, and when it had ended.
    oom_kills_before: int | None = None
    oom_kills_after: int | None = None


@frozen(kw_only=True)
class StderrTail:
    """What came past Python to the file that standard error goes to, at most 16 KiB as JSON."""

    text: str
    #: Whether other workers with the recorder wrote there while this one lived.
    is_shared: bool = True


@frozen(kw_only=True)
class DeathReport:
    """What a nanny reports of the end of its worker process, or whoever finds the box that it left."""

    kind: ReportKind
    #: As the box has it, where there is one: a nanny learns of it late.
    worker_address: str | None = None
    worker_name: str | None = None
    pid: int | None = None
    nanny_address: str | None = None
    #: Name of the machine by its own account.
    hostname: str | None = None
    boot_id: str | None = None
    #: When the nanny learned of it, in seconds since the epoch.
    noticed_at: float | None = None
    #: When a box that was found had been written last.
    last_written_at: float | None = None
    exit: ExitReport | None = None
    #: Tasks that ran at that moment; None: no box was read.
    running_tasks: tuple[RunningTask, ...] | None = None
    #: ``running``, ``closing`` or ``closing_gracefully``: the worker had said that it closes.
    nanny_status: str | None = None
    #: ``nanny-kill``: the nanny had asked the worker to close; ``nanny-closing``: it closes itself.
    stop_requested: Literal["nanny-kill", "nanny-closing"] | None = None
    is_memory_terminated: bool = False
    #: What it had right before that.
    memory_at_kill: MemoryAtKill | None = None
    memory_limit_bytes: int | None = None
    #: Share of the limit at which the nanny ends its worker.
    terminate_fraction: float | None = None
    #: The most that any ended child of the nanny's process held: an upper bound.
    children_peak_rss_bytes: int | None = None
    cgroup: CgroupCounters | None = None
    stderr: StderrTail | None = None
    #: The nanny's own report, delivered by another process.
    is_late: bool = False
    #: Of a box that was found: whether the worker's nanny was running; None: it had none.
    is_nanny_running: bool | None = None
    box: BlackBox | None = None

    @property
    def was_asked_to_stop(self) -> bool:
        """Whether somebody asked the nanny to end the worker: too much memory is no request."""
        return self.stop_requested is not None and not self.is_memory_terminated

    @property
    def is_killed_by_kernel(self) -> bool:
        """Whether the kernel killed it because its control group, with a limit of its own, was out of memory."""
        group = self.cgroup or CgroupCounters()
        kills = (group.oom_kills_after or 0) - (group.oom_kills_before or 0)
        is_killed = self.exit is not None and self.exit.signal == 9  # SIGKILL (man 7 signal)
        return bool(is_killed and self.stop_requested is None and group.limit_bytes and kills > 0)


#: What can be done about a death: fewer tasks at once on every worker, a bigger worker for a task, its failure at
#: once, and everything as it was.
ActKind = Literal["lower-threads", "bigger-worker", "fail-task", "restore"]


@frozen(kw_only=True)
class RescueAct:
    """What `workerdiag.rescue` did because of a death, or would have done in a dry run."""

    kind: Literal["rescue"] = "rescue"
    act: ActKind
    is_dry_run: bool = False
    #: Whose call of `workerdiag.rescue` it is, which starts bigger workers; empty for a preload.
    asked_by: str = ""
    #: Seconds since the epoch, by the scheduler's clock.
    at: float | None = None
    #: One sentence: what was done and why.
    text: str = ""
    #: The task that it is about; None: all.
    task_key: str | None = None
    #: Of ``lower-threads``: the number of threads from now on.
    threads: int | None = None
    #: Of ``bigger-worker``: the memory that it may have.
    memory_bytes: int | None = None
    #: Of ``restore``: whether no worker died for memory any more once fewer tasks ran at once.
    has_sufficed: bool | None = None
    #: Of ``restore``: the memory of the bigger worker on which all finished that had killed others alone.
    sufficient_memory_bytes: int | None = None
    #: The death that led to it.
    worker_address: str | None = None
    pid: int | None = None
    noticed_at: float | None = None


@frozen(kw_only=True)
class RecorderState:
    """Whether the scheduler itself records from now on."""

    kind: Literal["recorder-state"] = "recorder-state"
    is_recording: bool = True


DeathMessage = RemovalRecord | DeathReport | RescueAct
Message = DeathMessage | RecorderState


_CLASSES: Mapping[str, type[Message]] = {
    "removal": RemovalRecord,
    **dict.fromkeys(get_args(ReportKind), DeathReport),
    "rescue": RescueAct,
    "recorder-state": RecorderState,
}


def encode_message(message: object) -> dict[str, object]:
    """A value of the wire as plain data, with the number of its shape."""
    return {"schema": MESSAGE_SCHEMA, **to_plain(message)}


def decode_message(plain: object, dropped: list[str] | None = None) -> Message | None:
    """The message in plain data from anybody, or None; *dropped* gets the path of each field that is left out."""
    if not isinstance(plain, Mapping) or plain.get("schema", MESSAGE_SCHEMA) != MESSAGE_SCHEMA:
        return None
    kind = plain.get("kind")
    cls = _CLASSES.get(kind) if isinstance(kind, str) else None
    if cls is None:
        return None
    content = {name: value for name, value in plain.items() if name != "schema"}
    try:
        return from_plain(cls, content, [] if dropped is None else dropped)
    except BrokenValueError:
        return None


#: Largest distance of messages about the same pid: clocks differ, and a death may be noticed late.
_SAME_PID_S = 600.0
#: The same without a pid: another process may soon have the address.
_SAME_ADDRESS_S = 60.0


@frozen(kw_only=True)
class DeathIdentity:
    """The parts of a message that identify a death. None: unknown."""

    #: Address; a nanny may still have that of the worker before.
    worker: str | None = None
    #: Given to the worker; others may have the same.
    name: str | None = None
    pid: int | None = None
    #: Address.
    nanny: str | None = None
    boot_id: str | None = None
    #: Name of the machine by its own account.
    host: str | None = None
    #: Seconds since the epoch, by the clock of whoever noticed it.
    noticed_at: float | None = None
    #: The message is of a box found later, or was delivered late: its time says little.
    found_later: bool = False

    @classmethod
    def of(cls, message: DeathMessage) -> DeathIdentity:
        """Whose death a message is about. A removal has no host: the scheduler knows an address, not a name."""
        known = {part: getattr(message, name, None) or None for part, name in _IDENTIFYING.items()}
        noticed_at, is_late = message.noticed_at, False
        if isinstance(message, DeathReport):
            noticed_at = message.last_written_at if noticed_at is None else noticed_at
            is_late = message.kind == "box-found" or message.is_late
        return cls(**known, noticed_at=noticed_at, found_later=is_late)

    def or_else(self, other: DeathIdentity) -> DeathIdentity:
        """Both in one; the parts known here win."""
        return evolve(other, **asdict(self, filter=lambda _, value: value is not None))

    def conflicts_with(self, other: DeathIdentity) -> bool:
        """Whether the two are certainly different processes."""
        return differ(self.pid, other.pid) or differ(self.boot_id, other.boot_id) or differ(self.host, other.host)


_IDENTIFYING = {
    "worker": "worker_address",
    "name": "worker_name",
    "pid": "pid",
    "nanny": "nanny_address",
    "boot_id": "boot_id",
    "host": "hostname",
}


def same_death(one: DeathIdentity, other: DeathIdentity) -> bool:
    """Whether both describe the end of one process.

    Either the worker's address is equal, or pid and nanny are: a nanny may not yet have the address of a
    worker that dies right after its start. A pid alone is not enough, since each container has a pid 7.
    """
    if one.conflicts_with(other):
        return False
    same_pid = _are_equal(one.pid, other.pid)
    if not _are_equal(one.worker, other.worker) and not (same_pid and _are_equal(one.nanny, other.nanny)):
        return False
    if one.noticed_at is None or other.noticed_at is None:
        return True
    if same_pid and (one.found_later or other.found_later):
        return True
    return abs(one.noticed_at - other.noticed_at) <= (_SAME_PID_S if same_pid else _SAME_ADDRESS_S)


def is_known_death(known: Collection[DeathIdentity], new: DeathIdentity) -> bool:
    """Whether *new* is the death that all of *known* describe, of which each may know another part."""
    return any(same_death(each, new) for each in known) and not any(each.conflicts_with(new) for each in known)


def _are_equal(one: object, other: object) -> bool:
    return one is not None and one == other
