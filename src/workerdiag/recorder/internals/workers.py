"""Private parts of `distributed.Worker`: what it runs and holds, and why it closes."""

from __future__ import annotations

import logging
from collections.abc import Callable, MutableSet
from threading import get_ident
from typing import TYPE_CHECKING, cast

from workerdiag.recorder.internals import Undo

if TYPE_CHECKING:
    from workerdiag.model.dask import Method, Worker


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
