"""Private parts of `distributed.Scheduler`: its handlers, its topics, its tasks and workers, and why it closes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from workerdiag.recorder.internals import Undo

if TYPE_CHECKING:
    from workerdiag.model.dask import Method, Scheduler, TaskState, WorkerState


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
