"""Functions that the lab runs on workers: tasks that kill, block, leak, or do nothing wrong.

Scheduler and workers import this module, so it uses only the standard library and Dask. A task
with a *mark* first writes its pid to that file, so that the lab knows that it runs, and where.
"""

from __future__ import annotations

import asyncio
import ctypes
import multiprocessing
import os
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from distributed import WorkerPlugin

#: Variable that the lab sets for workers only.
ON_WORKER = "WORKERDIAG_LAB_WORKER"

MB = 10**6
_kept: list[bytes] = []


def _announce(mark: str | None) -> None:
    if mark is not None:
        unfinished = Path(f"{mark}.new")
        unfinished.write_text(str(os.getpid()))
        unfinished.rename(mark)


def status(dask_worker: Any) -> str:
    """Return the status of a worker or nanny."""
    return str(dask_worker.status.name)


def known(key: str, dask_scheduler: Any = None) -> bool:
    """Whether a scheduler knows a task."""
    return key in dask_scheduler.tasks


def nap(seconds: float, mark: str | None = None) -> str:
    """Sleep."""
    _announce(mark)
    time.sleep(seconds)
    return "rested"


def grow(megabytes: int, step_megabytes: int, mark: str | None = None) -> None:
    """Allocate memory in small steps of 20 ms, like a leak."""
    _announce(mark)
    held = []
    for _ in range(0, megabytes, step_megabytes):
        held.append(b"x" * (step_megabytes * MB))
        time.sleep(0.02)
    time.sleep(30)


def burst(megabytes: int, mark: str | None = None) -> None:
    """Allocate memory at once, and hold it."""
    _announce(mark)
    held = b"x" * (megabytes * MB)
    time.sleep(30)
    del held


def burst_in_child(megabytes: int) -> None:
    """Allocate memory at once in a child process."""
    subprocess.run([sys.executable, "-c", f"b'x' * {megabytes * MB}"], check=True)


def leak(megabytes: int) -> None:
    """Allocate memory that is never freed."""
    _kept.append(b"x" * (megabytes * MB))


def make(megabytes: int, seed: int) -> bytes:
    """Return a result that Dask keeps and may spill."""
    return seed.to_bytes(4, "big") * (megabytes * MB // 4)


def segfault(mark: str | None = None, after_s: float = 0) -> None:
    """Read from address 0."""
    _announce(mark)
    time.sleep(after_s)
    ctypes.string_at(0)


def abort(mark: str | None = None) -> None:
    """Abort, as C libraries do on an internal error."""
    _announce(mark)
    os.abort()


def exit_at_once(status: int, mark: str | None = None) -> None:
    """Exit without cleaning up."""
    _announce(mark)
    os._exit(status)


def exit_politely(status: int, mark: str | None = None) -> None:
    """Raise SystemExit."""
    _announce(mark)
    sys.exit(status)


def lose_a_child(mark: str | None = None) -> None:
    """Work in a child process, which is killed."""
    _announce(mark)
    with ProcessPoolExecutor(1, mp_context=_without_daemon()) as pool:
        pool.submit(shoot_itself, 9).result()


def _without_daemon() -> Any:
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    return multiprocessing.get_context("fork")


def shoot_itself(number: int, mark: str | None = None) -> None:
    """Send a signal to this process, and wait for its effect."""
    _announce(mark)
    os.kill(os.getpid(), number)
    time.sleep(30)


def hold_gil(seconds: int, mark: str | None = None) -> None:
    """Sleep in C while holding the GIL."""
    _announce(mark)
    ctypes.PyDLL(None).sleep(seconds)


async def block_loop(seconds: float, mark: str | None = None) -> None:
    """Sleep on the worker's event loop, where coroutines run."""
    _announce(mark)
    time.sleep(seconds)  # noqa: ASYNC251  the mistake that this fault is about


def divide_by_zero() -> float:
    """Fail like an ordinary task."""
    return 1 / 0


class UnreadableOnWorkers:
    """A value that cannot be unpickled on workers."""

    def __reduce__(self) -> tuple[object, tuple[()]]:
        return _read, ()


def _read() -> UnreadableOnWorkers:
    if ON_WORKER in os.environ:
        raise ValueError("the model file was written by another version")
    return UnreadableOnWorkers()


def use(value: object) -> str:
    """Take *value* as an argument."""
    return type(value).__name__


class ExitingPlugin(WorkerPlugin):
    """A plugin that ends its worker process."""

    def setup(self, worker: object) -> None:  # noqa: ARG002
        """Leave without cleaning up."""
        os._exit(1)


async def close_soon(dask_worker: object) -> None:
    """Close this worker shortly after the reply to this call."""
    loop = asyncio.get_running_loop()
    loop.call_later(0.2, lambda: loop.create_task(dask_worker.close()))  # type: ignore[attr-defined]


def events_kept(dask_scheduler: object) -> dict[str, list[str]]:
    """Return the actions in a scheduler's events by topic, without this function's own and the last probe's."""
    topics = dask_scheduler._broker._topics  # type: ignore[attr-defined]
    own = (b"events_kept", b"asyncio.threads")
    return {
        name: [
            str(each.get("action"))
            for _, each in topic.events
            if not any(one in each.get("function", b"") for one in own)
        ]
        for name, topic in topics.items()
    }


def forget_events(dask_scheduler: object) -> None:
    """Clear the topics of workers that are gone, as a scheduler does after an hour."""
    for topic in list(dask_scheduler._broker._topics):  # type: ignore[attr-defined]
        if "://" in topic and topic not in dask_scheduler.workers:  # type: ignore[attr-defined]
            dask_scheduler._broker.truncate(topic)  # type: ignore[attr-defined]
