"""The parts of Dask that we touch: the types of its objects, and the texts that code depends on.

A part that some supported release lacks is read with `getattr` where it is needed. The texts are those of
distributed 2024.8.1 to 2026.8.0. Texts that show causes are in rules.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    import distributed
    from distributed import broker, scheduler

    Nanny = distributed.Nanny
    Scheduler = distributed.Scheduler
    Worker = distributed.Worker
    #: On the scheduler.
    TaskPrefix = scheduler.TaskPrefix
    TaskState = scheduler.TaskState
    WorkerState = scheduler.WorkerState
    #: The latest events of one topic on the scheduler, and the number of all.
    Topic = broker.Topic
    #: A server that knows its scheduler.
    Server = distributed.Nanny | distributed.Worker
else:  # annotations alone name them
    Nanny = Scheduler = Server = TaskPrefix = TaskState = Topic = Worker = WorkerState = Any

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
