"""Every private part of distributed that the recorder, the watcher and client-side code use, each in one function.

`workerdiag.sources.internals` has those for sources. If a release lacks the part, the function returns None and
that one fact is omitted. tests/lab/test_recorder_contract.py tests each with all supported releases, 2024.8.1 to
2026.8.0.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableSet
from contextlib import suppress
from functools import partial
from inspect import currentframe
from threading import get_ident
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakMethod

if TYPE_CHECKING:
    from types import FrameType

    from workerdiag.model.dask import Method, Nanny, Scheduler, TaskState, Worker

#: Undoes a change that a function here made.
Undo = Callable[[], None]
_ATTRIBUTE = "_workerdiag_recording"
#: Of our function in the place of a method of Dask's: the clients it is for, and what stood there.
_WATCHED, _ORIGINAL = "_workerdiag_watched", "_workerdiag_original"
#: The method that sends a graph, and the methods that send one of collections.
_SENDS_GRAPH, _COLLECTIONS_CALLS = "_graph_to_futures", ("compute", "persist", "get")


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


def replace_method(owner: Any, name: str, method: Method) -> Undo | None:
    """Have *method* called in the place of an object's or a class's own; returns what ends that, or None."""
    return _wrap_method(owner, name, lambda _: method)


def _wrap_method(owner: Any, name: str, around: Callable[[Method], Method]) -> Undo | None:
    """Put what *around* makes of a method in its place; returns what ends that, or None if there is no method."""
    original = getattr(owner, name, None)
    if not callable(original):
        return None
    was_own, method = name in vars(owner), around(original)
    setattr(owner, name, method)

    def undo() -> None:
        if vars(owner).get(name) != method:  # bound methods are equal, not identical
            return
        if was_own:
            setattr(owner, name, original)
        else:
            delattr(owner, name)

    return undo


def _call_before(owner: Any, name: str, call: Callable[..., object]) -> Undo | None:
    """Have *call* called with the arguments of a method right before it; returns what ends that, or None."""

    def around(original: Method) -> Method:
        def hooked(*args: object, **kwargs: object) -> object:
            call(*args, **kwargs)
            return original(*args, **kwargs)

        return hooked

    return _wrap_method(owner, name, around)


def watch_iterations(client: object, call: Method) -> Undo | None:
    """Have ``next()`` of `distributed.as_completed` wait through *call*; returns what ends that, or None."""
    from distributed import as_completed

    return _watch_class(as_completed, "__next__", "loop", client, call, is_asynchronous=False)


def watch_actors(client: object, call: Method) -> Undo | None:
    """Have results of actors' methods awaited (``ActorFuture._result``) through *call*; returns what ends that."""
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


def watch_graphs(on_graph: Callable[[Any, FrameType], object], client: object = None) -> Undo | None:
    """Call *on_graph* with the client and the calling frame before a graph of collections goes to the scheduler.

    ``Client._graph_to_futures`` (client.py) is the way of ``compute``, ``persist`` and ``get``, and of others.
    Without a *client* all are watched, later ones too, that are not watched by themselves. Returns what ends that,
    or None.
    """
    from distributed import Client

    def around(original: Method) -> Method:
        def through(*args: Any, **options: Any) -> Any:
            frame = currentframe()
            caller = frame.f_back if frame else None
            sender = args[0] if client is None else client
            is_ours = client is not None or _SENDS_GRAPH not in vars(sender)
            if is_ours and caller is not None and caller.f_code.co_name in _COLLECTIONS_CALLS:
                on_graph(sender, caller)
            return original(*args, **options)

        return through

    return _wrap_method(Client if client is None else client, _SENDS_GRAPH, around)


def watch_starts(on_failure: Callable[[OSError], Awaitable[object]]) -> None:
    """Have *on_failure* awaited with what a new client raises that reaches no scheduler.

    ``Client._start`` (client.py) connects synchronous and asynchronous clients alike. It raises OSError, of which
    TimeoutError is one, before the client's preloads are called.
    """
    from distributed import Client

    def around(original: Method) -> Method:
        async def start(self: Any, *args: Any, **options: Any) -> Any:
            try:
                return await original(self, *args, **options)
            except OSError as exc:
                await on_failure(exc)
                raise

        return start

    _wrap_method(Client, "_start", around)


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

    ``Nanny._on_worker_exit_sync`` (nanny.py) gets the code and drops it; a `WorkerProcess` keeps it as ``on_exit``.
    A negative code is a signal; 255 is also what is reported when the code could not be read (process.py).
    """
    active = True

    def note(exitcode: int) -> None:
        if active:  # a process that was made meanwhile keeps it
            on_exit(exitcode)

    undo_nanny = _call_before(nanny, "_on_worker_exit_sync", note)
    undo_process = _call_before(nanny.process, "on_exit", note)

    def undo() -> None:
        nonlocal active
        active = False
        for each in filter(None, (undo_nanny, undo_process)):
            each()

    return None if undo_nanny is None else undo


def watch_stop_requests(nanny: Nanny, on_request: Callable[[], None]) -> Undo | None:
    """Call *on_request* whenever the nanny asks its worker process to close. Returns an undo function, or None.

    All such orders go through ``WorkerProcess.kill`` (nanny.py), of the one object that a nanny keeps
    for all its worker processes. None while it has not got it yet.
    """
    return _call_before(nanny.process, "kill", lambda *_, **__: on_request())


def watch_memory_kills(nanny: Nanny, on_kill: Callable[[int], None]) -> Undo | None:
    """Call *on_kill* with the worker's pid right before the nanny ends it for its memory. Returns an undo function.

    ``NannyMemoryManager.memory_monitor`` (worker_memory.py) logs the event ``worker-restart-memory`` with it, by
    ``Nanny.log_event``, and then sends SIGTERM.
    """

    def note(topic: object, msg: object) -> None:
        with suppress(Exception):  # the nanny has a worker to end
            if topic == "worker-restart-memory" and isinstance(msg, dict):
                on_kill(msg["pid"])

    return _call_before(nanny, "log_event", note)


def terminated_pid(nanny: Nanny) -> int | None:
    """The process that the nanny ended last for taking too much memory (worker_memory.py); None if none."""
    pid = getattr(getattr(nanny, "memory_manager", None), "_last_terminated_pid", None)
    return pid if isinstance(pid, int) and pid > 0 else None


def terminate_fraction(nanny: Nanny) -> float | None:
    """The share of the limit at which the nanny ends its worker; None where it does not."""
    fraction = getattr(getattr(nanny, "memory_manager", None), "memory_terminate_fraction", None)
    return float(fraction) if fraction else None


def add_handler(scheduler: Scheduler, name: str, handler: Method) -> Undo | None:
    """Have clients' calls of *name* answered by *handler* (``Server.handlers``); returns what ends that."""
    handlers = getattr(scheduler, "handlers", None)
    if not isinstance(handlers, dict):
        return None
    handlers[name] = handler

    def undo() -> None:
        if handlers.get(name) == handler:  # bound methods are equal, not identical
            del handlers[name]

    return undo


def limit_topic(scheduler: Scheduler, topic: str, most: int) -> bool:
    """Have the scheduler keep the last *most* events of a topic (``Broker._topics``); whether that can be done."""
    topics = getattr(getattr(scheduler, "_broker", None), "_topics", None)
    events = getattr(topics[topic], "events", None) if isinstance(topics, dict) else None
    if not isinstance(events, deque):
        return False
    topics[topic].events = deque(events, maxlen=most)  # type: ignore[index]  # it is a dict here
    return True


def uncount_failure(task: TaskState) -> bool:
    """Count one loss less against a task and its prefix; whether that was done.

    What ``Scheduler.remove_worker`` counted up: ``TaskState.suspicious`` and ``TaskPrefix.suspicious``.
    A task that Dask has given up on stays as it is.
    """
    if task.suspicious < 1 or task.state in ("erred", "forgotten"):
        return False
    task.suspicious -= 1
    if task.prefix.suspicious > 0:
        task.prefix.suspicious -= 1
    return True


def lower_threads(worker: Worker, most: int) -> Undo | None:
    """Have a worker run at most so many tasks at once; returns what ends that, or None if it runs no more anyway.

    Whenever a task may begin, the worker compares the number of those that run with ``WorkerState.nthreads``
    (worker_state_machine.py). It keeps its threads; the scheduler goes on to send tasks for all of them.
    """
    state = getattr(worker, "state", None)
    before = getattr(state, "nthreads", None)
    if state is None or not isinstance(before, int) or before <= most:
        return None
    state.nthreads = most

    def undo() -> None:
        if state.nthreads == most:
            state.nthreads = before

    return undo


async def add_worker_plugin(scheduler: Any, plugin: Any) -> None:
    """Give a plugin to all workers, and to those that come later (``Scheduler.register_worker_plugin``).

    It is stored before it is sent to the workers, so one that dies meanwhile changes nothing.
    """
    import pickle

    with suppress(OSError):  # CommClosedError is one
        await scheduler.register_worker_plugin(None, pickle.dumps(plugin), name=plugin.name, idempotent=False)


async def remove_worker_plugin(scheduler: Any, name: str) -> None:
    """Take a plugin from all workers; nothing happens if there is none of that name."""
    with suppress(OSError, ValueError):
        await scheduler.unregister_worker_plugin(None, name)


def workers_with(scheduler: Scheduler, resource: str) -> Collection[str]:
    """Addresses of the workers that bring a resource (``Scheduler.resources``)."""
    resources = getattr(scheduler, "resources", {})
    return tuple(address for address in resources.get(resource, ()) if address in scheduler.workers)


def require_resource(scheduler: Any, task: Any, resource: str) -> Undo:
    """Have a task run only where a resource is, and be moved there; returns what ends that."""
    before = task.resource_restrictions
    _restrict(scheduler, task, {resource: 1})

    def undo() -> None:
        _restrict(scheduler, task, before)

    return undo


def _restrict(scheduler: Any, task: Any, restrictions: Mapping[str, float] | None) -> None:
    """Change it where no worker has the task: the scheduler counts by it what the tasks of a worker take."""
    is_with_dead = task.state == "processing" and task.processing_on.address not in scheduler.workers
    if task.state not in ("processing", "no-worker") or is_with_dead:
        task.resource_restrictions = restrictions
        return
    stimulus_id = _stimulus()
    recommendations = scheduler.transition(task.key, "released", stimulus_id)
    task.resource_restrictions = restrictions
    scheduler.transitions(recommendations, stimulus_id=stimulus_id)


def fail_task(scheduler: Any, task: Any, worker: Any, deaths: int, reason: str) -> bool:
    """Have a task fail with KilledWorker and a note; whether that was done: not while it waits for its inputs.

    As ``Scheduler.remove_worker`` does it (scheduler.py). The exception counts *deaths*, *worker* was the last.
    """
    import pickle

    from distributed import KilledWorker

    if task.state not in ("processing", "no-worker", "queued") or scheduler.tasks.get(task.key) is not task:
        return False
    exception = KilledWorker(task=task.key, last_worker=worker.clean(), allowed_failures=max(0, deaths - 1))
    exception.add_note(reason)
    assigned, stimulus_id = task.processing_on, _stimulus()
    recommendations = scheduler.transition(
        task.key,
        "erred",
        exception=pickle.dumps(exception),
        cause=task.key,
        stimulus_id=stimulus_id,
        **({} if assigned is None else {"worker": assigned.address}),
    )
    scheduler.transitions(recommendations, stimulus_id=stimulus_id)
    if assigned is not None:
        scheduler.worker_send(assigned.address, {"op": "free-keys", "keys": [task.key], "stimulus_id": stimulus_id})
    return True


def _stimulus() -> str:
    return f"workerdiag-rescue-{time.time()}"


def run_spec(task: TaskState) -> object:
    """How a task is computed (``TaskState.run_spec``); None for data, and for a task that Dask has forgotten.

    A ``dask._task_spec.GraphNode`` since 2024.11.0, before a tuple of a function, its arguments and its named
    arguments (``_normalize_task``). Either is on the scheduler as the caller made it.
    """
    return getattr(task, "run_spec", None) if task.state != "forgotten" else None


def result_bytes(task: TaskState) -> int | None:
    """The size of a task's result (``TaskState.nbytes``), also of one that was lost; None: not known."""
    return task.nbytes if task.nbytes >= 0 else None


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

    ``Scheduler.close`` (scheduler.py) is given the reason and logs it at INFO (``Server._deque_handler``); where
    that is silenced, the call that runs has the reason. Nested, as the function for figures.
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
    worker: Any, replace: Callable[[dict[int, object]], dict[int, object]]
) -> Callable[[], bool] | None:
    """Put what *replace* makes of it in the place of ``Worker.active_threads``; returns what ends that, or None.

    That dictionary has, by thread, the key of the task that runs there. The thread itself enters it right before
    the task's function, and removes it right after (``_run_task`` and the like in worker.py). A task that was
    handed to a thread before uses the old dictionary. What ends the watch returns False as long as a task holds the
    new one.
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


def watch_keys(worker: Any, keys: MutableSet[object]) -> Undo | None:
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


def off_thread_location(worker: Any, key: object) -> tuple[int, str] | None:
    """Where a task of ``Worker.active_keys`` runs that is in no thread of ``Worker.active_threads``, or None.

    Returns thread and name: ``event loop``, or ``executor <name>`` with 0, as the thread is not known. To be asked
    on the event loop. ``Worker.execute`` (worker.py) goes by whether the task is a coroutine, and whether the type
    of its executor is called ThreadPoolExecutor. Raises anything where this release has it otherwise.
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
    """Shares of its limit at which a worker spills and pauses (``WorkerMemoryManager``); None: never or unknown."""
    manager = getattr(worker, "memory_manager", None)
    spill = getattr(manager, "memory_spill_fraction", None)
    pause = getattr(manager, "memory_pause_fraction", None)
    return spill or None, pause or None


def gil_contention(worker: Worker) -> float | None:
    """Share of time in which threads wanted the GIL in vain, as gilknocker measured it last; None without that."""
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


def startable_bytes(cluster: Any) -> int | None:
    """The memory of the machine, if a cluster can start workers of another size on it by itself; else None.

    ``SpecCluster`` (deploy/spec.py), of which `LocalCluster` is one, has a class and options for each worker.
    """
    from distributed import Nanny
    from distributed.system import MEMORY_LIMIT

    cls = _specification(cluster).get("cls")
    return int(MEMORY_LIMIT) if isinstance(cls, type) and issubclass(cls, Nanny) else None


def start_worker(cluster: Any, name: str, memory_bytes: int, resources: Mapping[str, float]) -> None:
    """Have a cluster start one more worker, as its others but with one thread, this memory and these resources."""
    like = _specification(cluster)
    changed = {"memory_limit": memory_bytes, "nthreads": 1, "resources": dict(resources)}
    options = {key: value for key, value in like.get("options", {}).items() if key != "name"}
    cluster.worker_spec[name] = {"cls": like["cls"], "options": options | changed}
    cluster.loop.add_callback(cluster._correct_state)  # noqa: SLF001  as `SpecCluster.scale` does


def keep_nannies(cluster: Any, timeout_s: float) -> Undo | None:
    """Have a cluster on this machine wait longer before it ends the nanny of a lost worker; returns what ends that.

    ``SpecCluster._update_worker_status`` (deploy/spec.py) looks ``lost-worker-timeout`` after each loss whether the
    worker is there again, and ends its nanny for good if it happens to be starting after another one.
    """
    from dask import config

    if startable_bytes(cluster) is None:
        return None
    original = cluster._update_worker_status  # noqa: SLF001

    def update(op: str, msg: object) -> None:
        with config.set({"distributed.deploy.lost-worker-timeout": f"{timeout_s}s"}):
            original(op, msg)

    return replace_method(cluster, "_update_worker_status", update)


async def stop_worker(cluster: Any, name: str) -> None:
    """End a worker that `start_worker` started; the cluster has the scheduler move its results first."""
    if cluster.worker_spec.pop(name, None) is not None and cluster.status.name == "running":
        await cluster._correct_state()  # noqa: SLF001


def address_of_worker(cluster: Any, name: str) -> str | None:
    """Address of a worker that `start_worker` started; None while it has none."""
    worker = cluster.workers.get(name)
    return getattr(worker, "worker_address", None) or None


def _specification(cluster: Any) -> Mapping[str, Any]:
    """How a cluster starts a worker; empty for a cluster of another kind."""
    spec = getattr(cluster, "new_spec", None) or next(iter(getattr(cluster, "worker_spec", {}).values()), None)
    return spec if isinstance(spec, dict) else {}
