"""Evidence: what was seen on a cluster, and the protocol of sources that yield it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from attrs.validators import ge, in_, optional

from workerdiag.model.identity import NO_IDENTITY, Identity
from workerdiag.model.normalize import EventValue, normalize_fields
from workerdiag.model.signals import signal_of_status
from workerdiag.model.timeline import CodeLine, ProcessHistory
from workerdiag.model.vocabulary import (
    GAP_REASONS,
    PLACES,
    STREAMS,
    ExceptionRelation,
    GapReason,
    Place,
    Stream,
    as_stream,
)
from workerdiag.values import field, frozen


@frozen
class LogText:
    """A piece of log text handed in by the caller."""

    text: str = field()
    #: The writer. None, or a name that is no `Stream`: determined line by line.
    stream: Stream | None = field(default=None, converter=as_stream)
    #: Address or name of the worker of this text, if the caller knows it.
    worker: str | None = None


@frozen(kw_only=True, slots=False, field_transformer=normalize_fields)
class LogChunk:
    """The next bytes of one log. Chunks of one *origin* follow each other in order."""

    #: Path, URL or other name under which a person finds the text.
    origin: str
    data: bytes = field(repr=lambda data: f"<{len(data)} bytes>")
    stream: Stream | None = field(default=None, validator=optional(in_(STREAMS)))
    identity: Identity = NO_IDENTITY
    #: Number of its first line in *origin* behind text that was left out; None: it goes on where the last ended.
    first_line: int | None = field(default=None, validator=optional(ge(1)))

    @cached_property
    def newline_count(self) -> int:
        """Number of line ends, computed once for all readers."""
        return self.data.count(b"\n")


@frozen(kw_only=True, field_transformer=normalize_fields)
class Event:
    """A record of a scheduler, a platform or an operating system."""

    #: Topic of ``Client.get_events`` (``worker-restart-memory``, a worker address, ...), or one of `SOURCE_TOPICS`.
    topic: str
    #: What is said, flat: strings, numbers, booleans.
    fields: Mapping[str, EventValue] = field(factory=dict, hash=False)
    when: float | None = None
    identity: Identity = NO_IDENTITY

    def describe(self) -> str:
        """The event as one line of text."""
        field_text = ", ".join(f"{key}={value}" for key, value in self.fields.items())
        return f"event {self.topic}: {field_text}" if field_text else f"event {self.topic}"


@frozen(kw_only=True, field_transformer=normalize_fields)
class ProcessExit:
    """How one process ended, as its parent or the kernel learned it (``man 2 waitpid``)."""

    identity: Identity
    #: Signal number, if a signal ended it.
    signal: int | None = None
    #: Exit status 0 to 255 (or an NTSTATUS on Windows), if it exited by itself.
    status: int | None = None
    when: float | None = None
    #: The reporter: ``nanny log``, ``kubernetes``, ...
    reporter: str = ""

    @classmethod
    def of_container(cls, exit_code: int, **facts: Any) -> ProcessExit:
        """The end of a container's first process; platforms add 128 to a signal. *facts* are the other fields."""
        signal = signal_of_status(exit_code)
        return cls(signal=signal, status=exit_code if signal is None else None, **facts)


@frozen(kw_only=True, field_transformer=normalize_fields)
class MemoryReading:
    """How much memory one worker process held at one moment."""

    identity: Identity
    #: Resident set size of the process, in bytes.
    rss_bytes: int | None = None
    #: The enforced limit, in bytes; None if unknown or if there is none.
    limit_bytes: int | None = None
    when: float | None = None


@frozen(kw_only=True, field_transformer=normalize_fields)
class ExceptionFacts:
    """An exception that the caller caught, without the object."""

    #: Qualified name, e.g. ``distributed.scheduler.KilledWorker``.
    type: str
    text: str
    relation: ExceptionRelation = "raised"
    #: Whether it was raised inside a task and carried to the client by Dask.
    from_task: bool = False
    #: Whether Dask itself may have raised it, so that a lost worker may be behind it.
    maybe_dask: bool = True
    #: Whether its traceback shows that the caller's own process raised it, so that no worker took part.
    in_caller: bool = False
    #: The innermost line outside libraries, of the task or of the caller, as ``function (file:line)``, if known.
    raised_at: str = ""
    #: That line with its neighbours, each with its number: ``> 12  total += d["pressure"]``.
    source: tuple[str, ...] = ()
    #: Key of the task it is about, if it says.
    task: str | None = None
    allowed_failures: int | None = None
    #: The worker it names (``KilledWorker.last_worker``).
    identity: Identity = NO_IDENTITY
    #: Tasks that were executing there at the last heartbeat; None if not known.
    executing: tuple[str, ...] | None = None
    #: How many threads that worker had for tasks.
    threads: int | None = None
    limit_bytes: int | None = None
    when: float | None = None

    @property
    def class_name(self) -> str:
        """The name of its class without the module."""
        return self.type.rpartition(".")[2]


@frozen(kw_only=True, field_transformer=normalize_fields)
class TaskInput:
    """The result of another task that a task needs."""

    key: str
    #: As the scheduler has it; None: not known, as before it has been computed.
    size_bytes: int | None = None


@frozen(kw_only=True, field_transformer=normalize_fields)
class TaskFacts:
    """What the scheduler knew of a task when it lost the worker: sizes and numbers, no data."""

    key: str
    #: Whether it ran at the last heartbeat.
    ran: bool = False
    #: How many results it needs, the bytes of all whose size is known, and the largest of them.
    input_count: int = 0
    input_bytes: int | None = None
    inputs: tuple[TaskInput, ...] = ()
    #: An estimate of its own specification: its function's arguments as they stand in the graph.
    spec_bytes: int | None = None
    #: How many tasks of its kind (task prefix) have finished.
    finished_siblings: int = 0


@frozen(kw_only=True, field_transformer=normalize_fields)
class TasksAtLoss:
    """The tasks of one worker when it was lost: those that were executing, and those that only waited."""

    identity: Identity
    #: Keys of the tasks that were executing.
    tasks: tuple[str, ...] = ()
    #: For each of *tasks*, the name of its thread (empty if not known), and its seconds of execution.
    threads: tuple[str, ...] = ()
    seconds: tuple[float | None, ...] = ()
    #: For each, whether its thread received the signal that ended the process; None if not known.
    crashed: tuple[bool | None, ...] = ()
    #: The lines of the user's code at which tasks were when the nanny ended the process for its memory.
    lines: tuple[CodeLine, ...] = ()
    #: Whether the process itself recorded it as it happened; else it is from the last heartbeat.
    exact: bool = False
    #: Whether other assigned tasks may have been executing, because they can have begun after that heartbeat.
    maybe_more: bool = False
    #: Keys of the tasks that were assigned to it, executing or not, as far as they were recorded.
    assigned: tuple[str, ...] = ()
    #: Sizes of those that ran, or else of some that were assigned, as the scheduler knew them.
    facts: tuple[TaskFacts, ...] = ()
    #: Whether Dask counts this loss against the tasks assigned (``suspicious``).
    counted: bool = True
    #: Tasks that Dask gave up on with this loss (``KilledWorker``), and how many losses it allows.
    gave_up: tuple[str, ...] = ()
    allowed_failures: int | None = None
    when: float | None = None

    def each_task(self) -> Iterator[tuple[str, str, float | None, bool | None]]:
        """Each of *tasks* with its thread, its seconds and whether that crashed, as far as they are known."""
        unknown = (None,) * len(self.tasks)
        threads = (*self.threads, *("",) * len(self.tasks))
        yield from zip(self.tasks, threads, (*self.seconds, *unknown), (*self.crashed, *unknown), strict=False)


@frozen(kw_only=True, field_transformer=normalize_fields)
class Gap:
    """A place that was not, or not completely, read."""

    #: Its name for a person: ``kernel log of 10.0.0.7``, a path, a URL.
    source: str
    place: Place = field(default="other", validator=in_(PLACES))
    reason: GapReason = field(validator=in_(GAP_REASONS))
    #: What was tried and what came back, for a person.
    detail: str = ""
    #: The one thing that would close the gap.
    remedy: str = ""


@frozen(kw_only=True, field_transformer=normalize_fields)
class Inspected:
    """A place that was read completely, so that absence there counts."""

    place: Place = field(default="other", validator=in_(PLACES))
    identity: Identity = NO_IDENTITY


Evidence = (
    LogChunk | Event | ProcessExit | MemoryReading | ProcessHistory | ExceptionFacts | TasksAtLoss | Gap | Inspected
)


class EvidenceSource(Protocol):
    """A place that can be asked what it knows about dead workers.

    Sources only read, and are asked while things are on fire: whatever cannot be read in time is yielded as a
    `Gap`, never raised.
    """

    @property
    def name(self) -> str:
        """The name of this place in gaps and reports."""

    def collect(self, *, budget_s: float) -> Iterator[Evidence]:
        """Yield the evidence, oldest first, within *budget_s* seconds."""


class LogExcerpt(NamedTuple):
    """Consecutive bytes of a log.

    Offsets count all bytes that were given of the log; each omission counts as one byte.
    """

    #: Offset of the first byte.
    start: int
    #: Number of its line, from 1.
    line: int
    data: bytes

    @property
    def end(self) -> int:
        """The offset after the last byte."""
        return self.start + len(self.data)

    def part(self, begin: int, end: int) -> LogExcerpt:
        """The bytes *begin* to *end*, counted within the excerpt."""
        line = self.line + self.data.count(b"\n", 0, begin)
        return LogExcerpt(self.start + begin, line, self.data[begin:end])
