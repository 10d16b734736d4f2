"""What `explain` costs where 10,000 workers live, 10,000 have died, and the scheduler has 1,000,000 tasks.

The state is simulated: the scheduler is a real process, its workers and tasks are its own objects, and each
worker is removed by its own `remove_worker`. Of the scheduler's loop the processor time of each step of the
looks is counted, so that neither a busy machine counts nor what Dask does for itself in between.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from distributed import Client
from live import scheduler
from rows import Row, publish

import workerdiag

WORKERS = LOST = 10_000
TASKS = 1_000_000
#: The loop is held no longer; so much processor time of client and scheduler; so many bytes that come.
GOAL_MS, GOAL_S, GOAL_BYTES = 20.0, 5.0, 4 * 2**20
GOAL_MB = 300


def rows() -> Iterator[Row]:
    """Loop, time and bytes of one answer, and whether its number of deaths is right."""
    size = f"{WORKERS:,} workers, {TASKS:,} tasks, {LOST:,} lost"
    with scheduler() as (_, address), Client(address) as client:
        client.run_on_scheduler(_fill, WORKERS, LOST, TASKS)
        workerdiag.explain(None, client, timeout="60s")  # what is imported on the way is there then
        client.run_on_scheduler(_longest)
        began = time.process_time()
        found = workerdiag.explain(None, client, timeout="60s")
        taken_s = time.process_time() - began
        held_s, looks_s, answer_bytes = client.run_on_scheduler(_longest)
    yield Row(what=f"scheduler's loop held: {size}", measured=1000 * held_s, unit="ms", goal=GOAL_MS)
    yield Row(what="  processor time of the scheduler", measured=looks_s, unit="s", goal=GOAL_S)
    yield Row(what="  processor time of the client", measured=taken_s, unit="s", goal=GOAL_S)
    yield Row(what="  bytes of the largest answer", measured=answer_bytes, unit="B", goal=GOAL_BYTES)
    yield Row(what="  deaths told", measured=found.death_count, unit="", goal=LOST, at_least=True)
    yield Row(what="  memory of the client", measured=_peak_mb(), unit="MB", goal=GOAL_MB)


def _peak_mb() -> float:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


async def _fill(live: int, lost: int, tasks: int, dask_scheduler: Any = None) -> None:
    """Workers of which some are lost at once; tasks of 3,000 kinds, half of them on the others; a clock."""
    import asyncio
    import gc
    import time

    from distributed.core import Status
    from distributed.scheduler import WorkerState

    state = dask_scheduler
    gc.disable()
    state.worker_ttl = None  # nobody sends heartbeats
    addresses = [f"tcp://10.0.{n // 100}.{n % 100}:{30_000 + n}" for n in range(live + lost)]

    def join(number: int) -> Any:
        address = addresses[number]
        found = WorkerState(
            address=address,
            status=Status.running,
            pid=number,
            name=f"w{number}",
            nthreads=2,
            memory_limit=2**32,
            local_directory="/tmp",
            nanny=address.rpartition(":")[0] + ":9",
            server_id=f"Worker-{number}",
            services={},
            versions={"packages": {"python": "3.11.7.final.0", "dask": "2026.8.0"}},
            extra={},
            scheduler=state,
        )
        found.last_seen, found.metrics = time.time(), {"memory": 2**30, "task_counts": {"executing": 2}}
        state.workers[address] = found
        state.running.add(found)
        state.aliases[found.name] = address
        state.stream_comms[address] = type("Comm", (), {"send": lambda *_: None, "abort": lambda *_: None})()
        host = state.host_info.setdefault(address[6:].partition(":")[0], {"addresses": set(), "nthreads": 0})
        host["addresses"].add(address)
        host["nthreads"] += 2
        for plugin in list(state.plugins.values()):
            plugin.add_worker(scheduler=state, worker=address)
        return found

    for address in addresses:
        state.log_event(address, {"action": "add-worker"})
        state.log_event("all", {"action": "add-worker", "worker": address})
    made = [state.new_task(f"kind{number % 3000}-{number}", None, "released") for number in range(tasks)]
    await asyncio.sleep(3)  # one that goes as soon as it came is another matter
    for number in range(lost):
        join(number)
        await state.remove_worker(addresses[number], stimulus_id=f"handle-worker-cleanup-{time.time()}")
    there = [join(number) for number in range(lost, lost + live)]
    for number, task in enumerate(made[: tasks // 2]):
        task.state, task.processing_on = "processing", there[number % live]
        there[number % live].processing.add(task)
    gc.enable()
    run, state.looks = asyncio.events.Handle._run, [0.0, 0.0, 0]  # noqa: SLF001

    def timed(handle: Any) -> None:
        get_coro = getattr(getattr(handle._callback, "__self__", None), "get_coro", None)  # noqa: SLF001
        code = getattr(get_coro() if get_coro else None, "cr_code", None)
        began = time.thread_time()
        run(handle)
        taken_s = time.thread_time() - began
        if code is not None and code.co_name == "_handle_comm":  # whatever is asked from outside
            state.looks[0] = max(state.looks[0], taken_s)
            state.looks[1] += taken_s

    asyncio.events.Handle._run = timed  # type: ignore[method-assign]  # noqa: SLF001
    _count_bytes(state)


def _count_bytes(state: Any) -> None:
    """Note the size of what functions that run inside answer."""
    import pickle

    handler = state.handlers["run_function"]

    async def counting(comm: Any, **named: Any) -> Any:
        answer = await handler(comm, **named)
        result = answer.get("result") if isinstance(answer, dict) else None
        if not isinstance(result, tuple):
            state.looks[2] = max(state.looks[2], len(pickle.dumps(result)))
        return answer

    state.handlers["run_function"] = counting


def _longest(dask_scheduler: Any = None) -> tuple[float, float, int]:
    """Seconds of the longest step and of all, and bytes of the largest answer, since the last time."""
    found, dask_scheduler.looks = tuple(dask_scheduler.looks), [0.0, 0.0, 0]
    return found


if __name__ == "__main__":
    sys.setrecursionlimit(10_000)
    publish(rows())
