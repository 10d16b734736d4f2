"""
For how long `explain` holds the loop of a scheduler with 200,000 tasks that lost workers with half of them.

Counted is the processor time of each callback on that loop, so that a busy machine does not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from distributed import Client
from live import scheduler
from rows import Row, publish

import workerdiag

TASKS = 200_000
GOAL_MS = 20.0


def rows() -> Iterator[Row]:
    """
    The longest callback while `explain` runs.
    """
    yield Row(
        what=f"scheduler's loop held by explain(client), {TASKS:,} tasks",
        measured=held_ms(),
        unit="ms",
        goal=GOAL_MS,
    )


def held_ms() -> float:
    """
    Milliseconds of processor time, of the longest callback.
    """
    with scheduler() as (_, address), Client(address) as client:
        client.run_on_scheduler(_fill, TASKS)
        workerdiag.explain(None, client)  # what is imported on the way is there then
        client.run_on_scheduler(_longest)
        workerdiag.explain(None, client)
        return 1000 * float(client.run_on_scheduler(_longest))


def _fill(count: int, dask_scheduler: Any = None) -> None:
    """
    Tasks of 3,000 kinds, four workers that were lost with half of them, a long log, and a clock.
    """
    import asyncio
    import logging
    import time

    keys = [f"kind{number % 3000}-{number}" for number in range(count)]
    for key in keys:
        dask_scheduler.new_task(key, None, "released")
    for number in range(4):
        worker = f"tcp://10.0.0.{number}:1"
        lost = {"action": "remove-worker", "worker": worker, "expected": False, "stimulus_id": "x"}
        dask_scheduler.log_event(["all", worker], lost | {"processing-tasks": set(keys[: count // 2])})
    for number in range(990):
        dask_scheduler.log_event("all", {"action": "worker-status-change", "worker": "x", "number": number})
        logging.getLogger("distributed.scheduler").info("Register worker addr: tcp://10.0.0.4:%d", number)
    run = asyncio.events.Handle._run  # noqa: SLF001
    dask_scheduler.held_s = 0.0

    def timed(handle: Any) -> None:
        began = time.thread_time()
        run(handle)
        dask_scheduler.held_s = max(dask_scheduler.held_s, time.thread_time() - began)

    asyncio.events.Handle._run = timed  # type: ignore[method-assign]  # noqa: SLF001


def _longest(dask_scheduler: Any = None) -> float:
    """
    Seconds of the longest callback since the last time.
    """
    longest, dask_scheduler.held_s = dask_scheduler.held_s, 0.0
    return float(longest)


if __name__ == "__main__":
    publish(rows())
