"""Every private part of distributed that the recorder uses, each in one function.

The watcher and client-side code use these functions too; `workerdiag.sources.internals` holds those for sources.
If a release lacks the private part, the function returns None and the recorder omits that one fact.
tests/lab/test_recorder_contract.py tests each function with every supported release (2024.8.1 to 2026.8.0).
Public parts (plugins, preloads, events, periodic callbacks, logging) are used directly.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, MutableSet
from contextlib import suppress
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakMethod

if TYPE_CHECKING:
    from types import FrameType

    from workerdiag.model.dask import Method, Nanny, Scheduler, TaskState, Worker, WorkerState

#: Undoes a change that a function here made.
Undo = Callable[[], None]
_ATTRIBUTE = "_workerdiag_recording"
#: Of our function in the place of a method of Dask's: the clients it is for, and what stood there.
_WATCHED, _ORIGINAL = "_workerdiag_watched", "_workerdiag_original"


def get_recording(server: object) -> Any:
    """The active recording of a worker or nanny; None if there is none."""
    return getattr(server, _ATTRIBUTE, None)


def set_recording(server: object, recording: object) -> None:
    """Make `get_recording` return *recording*."""
    if recording is None:
        vars(server).pop(_ATTRIBUTE, None)
    else:
        setattr(server, _ATTRIBUTE, recording)


def stream_handlers(client: object) -> dict[str, Method]:
    """What a client calls for each kind of message from the scheduler (``Client._stream_handlers``), or nothing."""
    handlers = getattr(client, "_stream_handlers", None)
    return handlers if isinstance(handlers, dict) else {}


def replace_method(client: object, name: str, method: Method) -> Undo | None:
    """Have *method* called in the place of the client's own; returns what ends that, or None if it has none."""
    if not callable(getattr(client, name, None)):
        return None
    setattr(client, name, method)

    def undo() -> None:
        if vars(client).get(name) == method:  # bound methods are equal, not identical
            delattr(client, name)

    return undo


def watch_iterations(client: object, call: Method) -> Undo | None:
    """Have ``next()`` of `distributed.as_completed` wait through *call*; returns what ends that, or None."""
    from distributed import as_completed

    return _watch_class(as_completed, "__next__", "loop", client, call, is_asynchronous=False)


def watch_actors(client: object, call: Method) -> Undo | None:
    """Have the results of actors' methods awaited through *call*; returns what ends that, or None.

    ``ActorFuture._result`` (actor.py) is the way to all of them.
    """
    from distributed.actor import ActorFuture

    return _watch_class(ActorFuture, "_result", "_io_loop", client, call, is_asynchronous=True)


def _watch_class(
    owner: type, name: str, loop_name: str, client: object, call: Method, *, is_asynchronous: bool
) -> Undo | None:
    """Have a method of *owner* called through *call*, for objects that know the client by its event loop alone.

    The class holds one function for all clients: the first to come puts it there, the last to go takes it away. It
    does not keep a client alive.
    """
    loop, original = getattr(client, "loop", None), getattr(owner, name, None)
    if loop is None or original is None:
        return None
    known = getattr(original, _WATCHED, None)
    watched: list[tuple[object, WeakMethod[Method]]] = [] if known is None else known
    if known is None:

        def through(self: object) -> object:
            run = partial(original, self)
            calls = (each() for its_loop, each in watched if its_loop is getattr(self, loop_name, None))
            found = next(filter(None, calls), None)
            return run() if found is None else found(run, is_asynchronous=is_asynchronous)

        vars(through).update({_WATCHED: watched, _ORIGINAL: original})
        setattr(owner, name, through)
    entry = (loop, WeakMethod(call))
    watched.append(entry)

    def undo() -> None:
        watched[:] = [each for each in watched if each is not entry and each[1]() is not None]
        placed = getattr(owner, name)
        if not watched and getattr(placed, _WATCHED, None) is watched:
            setattr(owner, name, vars(placed)[_ORIGINAL])

    return undo


def watch_starts(on_failure: Callable[[OSError], Awaitable[object]]) -> Undo:
    """Have *on_failure* awaited with what a new client raises that reaches no scheduler; returns what ends that.

    ``Client._start`` (client.py) connects synchronous and asynchronous clients alike. It raises OSError, of which
    TimeoutError is one, before the client's preloads are called.
    """
    from distributed import Client

    original: Method = Client._start  # noqa: SLF001

    async def start(self: Any, *args: Any, **options: Any) -> Any:
        try:
            return await original(self, *args, **options)
        except OSError as exc:
            await on_failure(exc)
            raise

    def undo() -> None:
        if Client._start is start:  # noqa: SLF001
            Client._start = original  # type: ignore[method-assign]  # noqa: SLF001

    Client._start = start  # type: ignore[method-assign]  # noqa: SLF001
    return undo


def is_made_asynchronous(client: object) -> bool:
    """Whether a client was created with ``asynchronous=True`` (``Client._asynchronous``).

    ``Client.asynchronous`` is also true for synchronous clients in a coroutine on their event loop.
    """
    return bool(getattr(client, "_asynchronous", False))


def open_clients() -> list[Any]:
    """The clients that can be asked from this thread (``Client._instances``), the default one first."""
    from distributed import Client
    from distributed.client import _get_global_client

    with suppress(RuntimeError):
        asyncio.get_running_loop()
        return []  # waiting here would stop the loop, on which an answer may depend
    clients = list(Client._instances)  # noqa: SLF001  there is no other way to all of them
    opened = [each for each in clients if each.status == "running" and not each.asynchronous]
    default = _get_global_client()
    return sorted(opened, key=lambda each: each is not default)


def watch_exits(nanny: Nanny, on_exit: Callable[[int], None]) -> Undo | None:
    """Have *on_exit* called with the exit code of each worker process; returns what ends that, or None.

    ``Nanny._on_worker_exit_sync`` (nanny.py) gets the code and drops it. A `WorkerProcess` keeps
    the method that it was made with as ``on_exit``. A negative code is a signal; 255 is also what
    is reported when the code could not be read (process.py).
    """
    original = getattr(nanny, "_on_worker_exit_sync", None)
    if not callable(original):
        return None
    active = True

    def hooked(exitcode: int) -> object:
        if active:
            on_exit(exitcode)
        return original(exitcode)

    def undo() -> None:
        nonlocal active
        active = False
        if vars(nanny).get("_on_worker_exit_sync") is hooked:
            del nanny._on_worker_exit_sync  # noqa: SLF001  what this module is for
        if getattr(nanny.process, "on_exit", None) is hooked:
            nanny.process.on_exit = original

    nanny._on_worker_exit_sync = hooked  # noqa: SLF001
    if getattr(nanny.process, "on_exit", None) is not None:
        nanny.process.on_exit = hooked
    return undo


def watch_stop_requests(nanny: Nanny, on_request: Callable[[], None]) -> Undo | None:
    """Call *on_request* whenever the nanny asks its worker process to close. Returns an undo function, or None.

    All such orders go through ``WorkerProcess.kill`` (nanny.py), of the one object that a nanny keeps
    for all its worker processes. None while it has not got it yet.
    """
    process = nanny.process
    original = getattr(process, "kill", None)
    if not callable(original):
        return None
    active = True

    def hooked(*args: object, **kwargs: object) -> object:
        if active:
            on_request()
        return original(*args, **kwargs)

    def undo() -> None:
        nonlocal active
        active = False
        if vars(process).get("kill") is hooked:
            del process.kill

    process.kill = hooked
    return undo


def watch_memory_kills(nanny: Nanny, on_kill: Callable[[int], None]) -> Undo | None:
    """Call *on_kill* with the worker's pid right before the nanny ends it for its memory. Returns an undo function.

    ``NannyMemoryManager.memory_monitor`` (worker_memory.py) logs the event ``worker-restart-memory`` with it, by
    ``Nanny.log_event``, and then sends SIGTERM.
    """
    original = getattr(nanny, "log_event", None)
    if not callable(original):
        return None

    def hooked(topic: object, msg: object) -> object:
        pid = msg.get("pid") if topic == "worker-restart-memory" and isinstance(msg, dict) else None
        if isinstance(pid, int):
            with suppress(Exception):  # the nanny has a worker to end
                on_kill(pid)
        return original(topic, msg)

    def undo() -> None:
        if vars(nanny).get("log_event") is hooked:
            del nanny.log_event

    nanny.log_event = hooked
    return undo


def terminated_pid(nanny: Nanny) -> int | None:
    """The process that the nanny ended last for taking too much memory (worker_memory.py); None if none."""
    pid = getattr(getattr(nanny, "memory_manager", None), "_last_terminated_pid", None)
    return pid if isinstance(pid, int) and pid > 0 else None


def terminate_fraction(nanny: Nanny) -> float | None:
    """The share of the limit at which the nanny ends its worker; None where it does not."""
    fraction = getattr(getattr(nanny, "memory_manager", None), "memory_terminate_fraction", None)
    return float(fraction) if fraction else None


def add_handler(scheduler: Scheduler, name: str, handler: Method) -> Undo | None:
    """Have clients' calls of *name* answered by *handler*; returns what ends that, or None.

    ``Server.handlers`` (core.py) has what is called, by operation.
    """
    handlers = getattr(scheduler, "handlers", None)
    if not isinstance(handlers, dict):
        return None
    handlers[name] = handler

    def undo() -> None:
        if handlers.get(name) == handler:  # bound methods are equal, not identical
            del handlers[name]

    return undo


def limit_topic(scheduler: Scheduler, topic: str, most: int) -> bool:
    """Have the scheduler keep the last *most* events of a topic; whether that can be done.

    ``Broker._topics`` (broker.py, since 2024.7.0) has a deque for each, of a thousand by default.
    """
    topics = getattr(getattr(scheduler, "_broker", None), "_topics", None)
    events = getattr(topics[topic], "events", None) if isinstance(topics, dict) else None
    if not isinstance(events, deque):
        return False
    topics[topic].events = deque(events, maxlen=most)  # type: ignore[index]  # it is a dict here
    return True


def has_nanny_plugin(scheduler: Scheduler, name: str) -> bool:
    """Whether nannies get that plugin, those that come later included (``Scheduler.nanny_plugins``)."""
    return name in (getattr(scheduler, "nanny_plugins", None) or ())


def allowed_failures(scheduler: Scheduler) -> int | None:
    """After how many losses more than this Dask gives up on a task (``Scheduler.allowed_failures``)."""
    allowed = getattr(scheduler, "allowed_failures", None)
    return allowed if isinstance(allowed, int) else None


def suspicious_count(task: object) -> int:
    """How many losses Dask counts against a task (``TaskState.suspicious``)."""
    count = getattr(task, "suspicious", 0)
    return count if isinstance(count, int) else 0


def uncount_failure(task: TaskState) -> bool:
    """Count one loss less against a task and its prefix, where there is one; whether that was done.

    What ``Scheduler.remove_worker`` counted up: ``TaskState.suspicious`` and ``TaskPrefix.suspicious``.
    A task that Dask has given up on stays as it is.
    """
    if suspicious_count(task) < 1 or getattr(task, "state", "erred") in ("erred", "forgotten"):
        return False
    task.suspicious -= 1
    if suspicious_count(getattr(task, "prefix", None)) > 0:
        task.prefix.suspicious -= 1
    return True


def executing_tasks(state: WorkerState) -> list[tuple[TaskState, float]]:
    """The tasks that a worker ran at its last heartbeat, and since how many seconds (``WorkerState.executing``)."""
    running = getattr(state, "executing", None)
    if not isinstance(running, dict):
        return []
    return [(task, float(seconds)) for task, seconds in running.items() if hasattr(task, "key")]


def long_running_tasks(state: WorkerState) -> Collection[TaskState]:
    """The tasks of a worker that have seceded from its threads (``WorkerState.long_running``)."""
    tasks = getattr(state, "long_running", ())
    return tasks if isinstance(tasks, set) else ()


def inputs_of(task: TaskState) -> Collection[TaskState]:
    """The tasks whose results a task needs (``TaskState.dependencies``)."""
    dependencies = getattr(task, "dependencies", ())
    return dependencies if isinstance(dependencies, set) else ()


def result_bytes(task: TaskState) -> int | None:
    """The size of a task's result (``TaskState.nbytes``), also of one that was lost; None: not known."""
    size = getattr(task, "nbytes", -1)
    return size if isinstance(size, int) and size >= 0 else None


def stored_tasks(scheduler: Scheduler) -> Iterator[TaskState]:
    """The tasks whose results are in memory, by worker (``WorkerState.has_what``)."""
    for state in scheduler.workers.values():
        yield from getattr(state, "has_what", ())


def worker_host(state: WorkerState) -> str | None:
    """The host that a worker has in its address (``WorkerState.host``)."""
    host = getattr(state, "host", None)
    return host if isinstance(host, str) else None


def figures_reader() -> Callable[[Scheduler], dict[str, int]]:
    """A function that reads the numbers of ``ClusterFigures``: nested, so that it runs also without workerdiag.

    ``SchedulerState.running`` has the workers that take tasks, ``unrunnable`` and ``queued`` the tasks that
    have no worker (scheduler.py). Takes some tenths of a millisecond for 1,000 workers.
    """

    def figures(scheduler: Scheduler) -> dict[str, int]:
        from operator import attrgetter

        workers = list(scheduler.workers.values())
        waiting = [getattr(scheduler, name, ()) for name in ("unrunnable", "queued")]
        running = getattr(scheduler, "running", None)
        return {
            "worker_count": len(workers),
            "running_worker_count": len(workers) if running is None else len(running),
            "waiting_count": sum(map(len, waiting)),
            "assigned_count": sum(map(len, map(attrgetter("processing"), workers))),
            "executing_count": sum(map(len, map(attrgetter("executing"), workers))),
        }

    return figures


def closing_reader() -> Callable[[object], str | None]:
    """A function that reads why a scheduler closes, ``unknown`` if it does not say; None if it does not close.

    ``Scheduler.close`` (scheduler.py) is given the reason, logs it at INFO, and keeps it nowhere else. The
    last records of the log are in ``Server._deque_handler``; where it is silenced, the call that runs has the
    reason. Nested, as the function for figures.
    """

    def reason_of_call() -> str:
        """The ``reason`` with which ``Scheduler.close`` runs in a task of this event loop."""
        from asyncio import all_tasks

        for task in all_tasks():
            call: object = task.get_coro()
            for _ in range(20):  # coroutines that await one another, the outermost first
                frame = getattr(call, "cr_frame", None)
                if getattr(call, "__qualname__", "") == "Scheduler.close" and frame is not None:
                    return str(frame.f_locals.get("reason", "unknown"))[:200]
                call = getattr(call, "cr_await", None)
        return "unknown"

    def closing(scheduler: object) -> str | None:
        if getattr(getattr(scheduler, "status", None), "name", "") not in ("closing", "closed"):
            return None
        records = getattr(getattr(scheduler, "_deque_handler", None), "deque", None) or ()
        for record in list(records)[:-50:-1]:
            if str(record.msg).startswith("Closing scheduler. Reason") and isinstance(record.args, tuple):
                return str(record.args[-1])[:200] if record.args else "unknown"
        try:
            return reason_of_call()
        except RuntimeError:  # no event loop runs in this thread
            return "unknown"

    return closing


cluster_figures = figures_reader()
closing_reason = closing_reader()


def watch_threads(
    worker: Worker, replace: Callable[[dict[int, object]], dict[int, object]]
) -> Callable[[], bool] | None:
    """Put what *replace* makes of it in the place of ``Worker.active_threads``; returns what ends that, or None.

    That dictionary has, by thread, the key of the task that runs there. The thread itself enters it
    right before the task's function, and removes it right after (``_run_task``, or ``apply_function``
    before 2025.1, and ``apply_function_actor`` in worker.py). A task that was already handed to a thread
    holds the old dictionary, and enters and removes itself there. What ends the watch returns False as
    long as a task holds the new one.
    """
    old = getattr(worker, "active_threads", None)
    lock = getattr(worker, "active_threads_lock", None)
    if type(old) is not dict or lock is None:
        return None
    tasks = replace(old)
    with lock:
        worker.active_threads = tasks

    def undo() -> bool:
        with lock:
            if worker.active_threads is tasks:
                if tasks or getattr(worker, "active_keys", None):
                    return False
                worker.active_threads = {}
            return True

    return undo


def running_threads(worker: Worker) -> dict[int, object]:
    """The key of the task that each thread runs (``Worker.active_threads``), as any thread may ask."""
    return dict(getattr(worker, "active_threads", None) or {})


def frames_by_thread() -> Mapping[int, FrameType]:
    """The innermost frame of each other thread of this process, as Dask's own profiler has it.

    Our own would refer to itself through the caller's variables, and keep all of them, with what tasks held, until
    the garbage is collected.
    """
    frames = sys._current_frames()  # noqa: SLF001  documented all the same
    del frames[get_ident()]
    return frames


def watch_keys(worker: Worker, keys: MutableSet[object]) -> Undo | None:
    """Put *keys* in the place of ``Worker.active_keys``; returns what ends that, or None.

    ``Worker.execute`` adds the key of each task on the event loop, before it runs the task there or
    hands it to an executor, and discards it afterwards.
    """
    if type(getattr(worker, "active_keys", None)) is not set:
        return None
    for key in worker.active_keys:
        keys.add(key)
    worker.active_keys = keys

    def undo() -> None:
        if worker.active_keys is keys:
            worker.active_keys = set(keys)

    return undo


def off_thread_location(worker: Worker, key: object) -> tuple[int, str] | None:
    """Where a task of ``Worker.active_keys`` runs that no thread enters in ``Worker.active_threads``.

    Returns thread and name: ``event loop``, or ``executor <name>`` with 0, as the thread is not known.
    None for all other tasks; to be asked on the event loop. What ``Worker.execute`` goes by (worker.py):
    whether the task is a coroutine, and whether the type of ``Worker.executors[<name>]``, with the name that
    the task has as an annotation, is called ThreadPoolExecutor; any other is given the bare function.

    Raises:
        Exception: This release has it otherwise, and where the task runs is not known.
    """
    task = worker.state.tasks[key]
    spec = task.run_spec
    # A ``dask._task_spec.GraphNode`` since 2024.11.0; before, a tuple that begins with the function.
    if spec.is_coro if type(spec) is not tuple else _is_coroutine(spec[0]):
        return get_ident(), "event loop"
    name = task.annotations.get("executor", "default")
    executor = type(worker.executors[name])
    if "ThreadPoolExecutor" in executor.__name__ or "ThreadPoolExecutor" in str(executor):
        return None
    return 0, f"executor {name}"


def _is_coroutine(function: object) -> bool:
    from distributed.utils import iscoroutinefunction

    return bool(cast("Method", iscoroutinefunction)(function))


def held_bytes(worker: Worker) -> tuple[int | None, int | None]:
    """Bytes of the results that the worker holds in memory, and of what it spilled, on the disk.

    ``Worker.data`` is a plain mapping where nothing is spilled, else a ``SpillBuffer`` (spill.py);
    ``WorkerState.nbytes`` counts what is held either way. Only numbers are read, so any thread may ask.
    """
    total = getattr(getattr(worker, "state", None), "nbytes", None)
    spilled = getattr(getattr(worker, "data", None), "spilled_total", None)
    in_memory = total - getattr(spilled, "memory", 0) if isinstance(total, int) else None
    return in_memory, getattr(spilled, "disk", None)


def memory_thresholds(worker: Worker) -> tuple[float | None, float | None]:
    """The shares of its limit at which the worker spills results and pauses; None: never, or not known.

    ``WorkerMemoryManager`` (worker_memory.py) has them as attributes, False where one is switched off.
    """
    manager = getattr(worker, "memory_manager", None)
    spill = getattr(manager, "memory_spill_fraction", None)
    pause = getattr(manager, "memory_pause_fraction", None)
    return spill or None, pause or None


def gil_contention(worker: Worker) -> float | None:
    """Share of time in which threads wanted the GIL in vain, as gilknocker measured it last (system_monitor.py).

    None without gilknocker, or with ``distributed.admin.system-monitor.gil.enabled`` off.
    """
    measured = getattr(getattr(worker, "monitor", None), "quantities", {}).get("gil_contention")
    return float(measured[-1]) if measured else None


def close_reason(record: logging.LogRecord) -> str | None:
    """Why a worker closes, if that is what it logs: the last argument of "Stopping worker at %s. Reason: %s".

    ``Worker.close`` (worker.py, since 2022.10.1) is given the reason and keeps it nowhere.
    """
    if record.name == "distributed.worker" and str(record.msg).startswith("Stopping worker"):
        arguments = record.args
        return str(arguments[-1]) if isinstance(arguments, tuple) and arguments else None
    return None
