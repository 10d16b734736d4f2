"""How long a watcher's questions hold the event loop of a scheduler that has no recorder.

    python benchmarks/watch_loop.py [--workers 1000]

The scheduler is real; its workers are entries in its state, and deaths are events that it is made to note:
150, each of a worker with 400 tasks. Each step in which it answers is timed, in processor time; those in
which Python collected garbage are counted apart, as they grow with the scheduler and not with the question.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, ClassVar

import dask
from distributed import LocalCluster
from rows import Row, publish
from watch_idle import add_workers

#: So long a scheduler may be held at a time.
GOAL_MS = 5
#: Asks as a watcher does; arguments are the address, how often, and how long a question may wait.
WATCHER = """
import asyncio, sys
from workerdiag.watch.feed.scheduler_feed import SchedulerFeed

async def follow():
    feed, cursor = SchedulerFeed(sys.argv[1]), None
    for _ in range(int(sys.argv[2])):
        cursor = (await feed.poll(cursor, wait_s=float(sys.argv[3]))).cursor
        print("asked", flush=True)
    await feed.close()

asyncio.run(follow())
"""


class Timed(Coroutine[Any, Any, Any]):
    """A coroutine whose steps are timed."""

    steps_ms: ClassVar[list[tuple[float, str]]] = []
    collections: ClassVar[int] = 0

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine
        self._name = getattr(coroutine, "__qualname__", "")

    def __await__(self) -> Any:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        """One step."""
        return self._step(self._coroutine.send, value)

    def throw(self, *problem: Any) -> Any:
        """One step, with an exception."""
        return self._step(self._coroutine.throw, *problem)

    def close(self) -> None:
        """End it."""
        self._coroutine.close()

    def _step(self, call: Callable[..., Any], *arguments: Any) -> Any:
        collections, begin = Timed.collections, time.thread_time()
        try:
            return call(*arguments)
        finally:
            if self._name.startswith("Server._handle_comm"):
                kind = (
                    "with garbage collection" if Timed.collections != collections else "without garbage collection"
                )
                Timed.steps_ms.append(((time.thread_time() - begin) * 1e3, kind))


def note_collection(phase: str, _: object) -> None:
    """Count the garbage collections."""
    Timed.collections += phase == "stop"


def on_loop(cluster: Any, function: Callable[..., object], *arguments: object) -> None:
    """Run a function in the scheduler's event loop."""
    done = threading.Event()

    def run() -> None:
        function(*arguments, dask_scheduler=cluster.scheduler)
        done.set()

    cluster.loop.add_callback(run)
    done.wait()


def time_tasks(dask_scheduler: Any) -> None:
    """Time the steps of all coroutines from now on."""
    assert dask_scheduler
    make: Any = lambda loop, coroutine, **options: asyncio.Task(Timed(coroutine), loop=loop, **options)  # noqa: E731
    asyncio.get_running_loop().set_task_factory(make)


def note_deaths(first: int, dask_scheduler: Any) -> None:
    """Fifty removals, of workers with 400 tasks each, as Dask notes and logs them."""
    log = logging.getLogger("distributed.scheduler")
    keys = [("mean-combine-0123456789abcdef", number, 0, 0) for number in range(200)]
    for number in range(first, first + 50):
        worker, stimulus = f"tcp://10.0.{number >> 8}.{number & 255}:40000", f"cleanup-{time.time()}"
        log.info("Remove worker addr: %s name: %s (stimulus_id=%r)", worker, number, stimulus)
        event = {"action": "remove-worker", "expected": False, "stimulus_id": stimulus}
        event |= {
            "processing-tasks": set(keys),
            "lost-computed-tasks": set(keys),
            "lost-scattered-tasks": set(),
        }
        dask_scheduler.log_event(worker, event)
        dask_scheduler.log_event("all", {**event, "worker": worker})
        dask_scheduler.workers.pop(worker, None)


def rows(workers: int, *, functions: str) -> Iterator[Row]:
    """The longest steps with no deaths, and with many."""
    blocked = [] if functions == "run" else ["run_function"]
    if functions == "forbidden":
        os.environ["DASK_DISTRIBUTED__SCHEDULER__BLOCKED_HANDLERS"] = "['run_function']"
    dask.config.set({"distributed.scheduler.worker-ttl": None, "distributed.scheduler.blocked-handlers": blocked})
    gc.callbacks.append(note_collection)
    with LocalCluster(n_workers=0, dashboard_address=None, silence_logs=False) as cluster:
        on_loop(cluster, add_workers, workers)
        on_loop(cluster, time_tasks)
        for deaths in (0, 150):
            Timed.steps_ms.clear()
            watch_deaths(cluster, deaths)
            for kind, goal in (("without garbage collection", GOAL_MS), ("with garbage collection", None)):
                steps = [ms for ms, each in Timed.steps_ms if each == kind]
                what = f"{deaths} deaths, {len(steps)} steps {kind}: longest"
                yield Row(what=what, measured=max(steps, default=0.0), unit="ms", goal=goal)
        on_loop(cluster, lambda dask_scheduler: dask_scheduler.workers.clear())


def watch_deaths(cluster: Any, deaths: int) -> None:
    """Let a watcher ask while so many workers die."""
    command = [sys.executable, "-c", WATCHER, cluster.scheduler_address, "12", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watcher:
        assert watcher.stdout is not None
        watcher.stdout.readline()
        for first in range(0, deaths, 50):
            on_loop(cluster, note_deaths, first)
            time.sleep(0.5)
        watcher.stdout.read()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument(
        "--functions",
        choices=("run", "forbidden", "refused"),
        default="run",
        help="on the scheduler; if forbidden, the watcher's own configuration says so, too",
    )
    parser.add_argument("--json", action="store_true", help="print rows for run.py")
    arguments = parser.parse_args()
    publish(rows(arguments.workers, functions=arguments.functions))
