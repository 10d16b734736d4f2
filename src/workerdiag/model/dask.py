"""The parts of Dask that we touch: its objects as protocols, and the texts that code depends on.

Protocols have what every supported release has; a part that some release lacks is read with `getattr` where
it is needed. The texts are those of distributed 2024.8.1 to 2026.8.0. Texts that show causes are in rules.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableSet
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

#: A nanny noted the end of its worker (nanny.py, ``_death_message``), with the process id.
PROCESS_ENDED = re.compile(r"Worker process (\d+) (?:was killed by|exited with)")
#: The same with the signal, known or not; as text, because probes search with it remotely.
PROCESS_ENDED_BY = (
    r"Worker process (\d+) (?:was killed by (?:signal (\d+)|(unknown) signal)|exited with status \d+)"
)
#: How a KilledWorker words itself: since 2022.9.2, and before (as a tuple). Bounded, and only as its text
#: begins: any other search takes seconds for text that nearly fits, and holds the interpreter meanwhile.
KILLED_WORKER = re.compile(
    r"\s*Attempted to run task '?(?P<task>.{1,2000}?)'? on \d{1,9} different workers[\s\S]{0,300}?"
    r"last worker that attempt(?:ed)? to run the task was (?P<worker>\w{1,20}://[^\s,]{1,300}?)\.?(?:\s|$)"
)
KILLED_WORKER_OLD = re.compile(
    r"\s*\('?(?P<task>.{1,2000}?)'?, <Worker(?:State)? '?(?P<worker>\w{1,20}://[^',\s>]{1,300})"
)
#: How the errors begin that an actor raises whose worker is lost (actor.py).
LOST_ACTOR = ("Unable to contact Actor's worker", "Worker holding Actor was lost")
#: A method of Dask whose arguments and result have no types there.
Method = Callable[..., Any]
#: Plain data in a reply or an event of a server; its values have no types.
Reply = Mapping[str, Any]


def is_other_nanny(text: str, nanny: str) -> bool:
    """Whether a log record is about the start or end of a nanny at another address."""
    return "Nanny at" in text and "://" in text and nanny not in text


def removed_worker(line: str) -> tuple[str, str] | None:
    """Address and name of the worker whose removal the line reports, if its name is not its address.

    ``Remove worker addr: tcp://10.0.0.4:4002 name: w-0 (stimulus_id='...')``, since 2024.12.0.
    """
    worker, named, rest = line.partition("Remove worker addr: ")[2].partition(" name: ")
    name = rest.rpartition(" (stimulus_id=")[0]
    return (worker, name) if named and name and name != worker else None


def is_disallowed(problem: object) -> bool:
    """Whether a server refused because of ``blocked-handlers``, or because it must not unpickle functions."""
    return isinstance(problem, PermissionError) or "explicitly disallowed" in str(problem)


def is_worker_death(exc: BaseException | None) -> bool:
    """Whether Dask raised it because workers died: a ``KilledWorker`` (distributed.scheduler)."""
    return any(
        each.__name__ == "KilledWorker" and each.__module__ == "distributed.scheduler" for each in type(exc).__mro__
    )


class Rpc(Protocol):
    """A connection to a server: each operation that the server handles is a method."""

    address: str

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]: ...


class EventLoop(Protocol):
    """The event loop of a server or a client (``tornado.ioloop.IOLoop``)."""

    asyncio_loop: AbstractEventLoop
    call_later: Method
    add_callback: Method


class Status(Protocol):
    """The status of a server or a worker."""

    name: str


class TaskPrefix(Protocol):
    """A task prefix: the tasks whose keys begin alike, with the counts of the scheduler."""

    name: str
    suspicious: int
    states: Mapping[str, int]
    #: Bytes of all results of its tasks so far.
    nbytes_total: int
    #: Seconds; negative until a task of the kind has finished.
    duration_average: float


class TaskState(Protocol):
    """A task on the scheduler."""

    key: object
    state: str
    suspicious: int
    prefix: TaskPrefix
    #: The tasks whose results it needs.
    dependencies: Collection[TaskState]
    #: Bytes of its result; negative: not known.
    nbytes: int
    run_spec: object
    processing_on: WorkerState | None
    waiters: Collection[TaskState]
    who_wants: Collection[object]


class WorkerState(Protocol):
    """A worker on the scheduler."""

    address: str
    name: object
    nanny: str | None
    pid: int
    status: Status
    nthreads: int
    memory_limit: int
    last_seen: float
    metrics: Reply
    processing: Mapping[TaskState, float] | set[TaskState]
    executing: Mapping[TaskState, float]
    extra: Reply
    local_directory: str


class Server(Protocol):
    """A scheduler, a worker or a nanny."""

    address: str
    status: Status
    loop: EventLoop
    connection_args: object
    get_logs: Method
    #: Of a worker and a nanny: the connection to the scheduler.
    scheduler: Rpc


class Topic(Protocol):
    """The latest events of one topic on the scheduler, and the number of all (broker.py)."""

    events: deque[tuple[float, Any]]
    count: int


class Scheduler(Protocol):
    """The scheduler, from inside its process."""

    address: str
    id: str
    loop: EventLoop
    workers: Mapping[str, WorkerState]
    tasks: Mapping[object, TaskState]
    task_prefixes: Mapping[str, TaskPrefix]
    clients: Mapping[str, object]
    plugins: Mapping[str, object]
    handlers: dict[str, Method]
    add_plugin: Method
    remove_plugin: Method
    get_events: Method
    log_event: Method


class WorkerStateMachine(Protocol):
    """The tasks of a worker (``WorkerState`` in worker_state_machine.py)."""

    nthreads: int
    #: Tasks on a worker (``TaskState`` in worker_state_machine.py), by their keys.
    tasks: Mapping[object, Any]


class MemoryManager(Protocol):
    """The memory manager of a worker."""

    memory_limit: int | None


class Worker(Server, Protocol):
    """A worker, from inside its process."""

    name: object
    nanny: str | None
    id: str
    local_directory: str
    state: WorkerStateMachine
    executors: Mapping[str, object]
    active_threads: dict[int, object]
    active_threads_lock: AbstractContextManager[object]
    active_keys: MutableSet[object]
    memory_manager: MemoryManager
    finished: Method


class NannyProcess(Protocol):
    """The worker process of a nanny, as the nanny knows it."""

    pid: int | None
    kill: Method
    on_exit: Method | None


class Nanny(Server, Protocol):
    """A nanny, from inside its process."""

    process: NannyProcess
    pid: int | None
    address_safe: str
    memory_manager: object
    periodic_callbacks: dict[str, object]
    worker_address: str | None
    log_event: Method
    _on_worker_exit_sync: Method


class Client(Protocol):
    """A client of a cluster (``distributed.Client``)."""

    status: str
    asynchronous: bool
    loop: EventLoop
    cluster: object
    scheduler: Rpc
    futures: Mapping[object, object]
    sync: Method
    run: Method
    run_on_scheduler: Method
    register_plugin: Method
    unregister_worker_plugin: Method
