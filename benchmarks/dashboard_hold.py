"""How long the page of deaths holds a scheduler's event loop: per death, and per request.

Each callback of the loop is timed by the processor time of its thread, so that other programs on the machine
do not count. Dask's own pages stand beside for comparison. Needs bokeh and prometheus-client.

    python benchmarks/dashboard_hold.py
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import dask.config
from distributed import Scheduler
from rows import Row, publish

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))  # support.death_records
from support.death_records import NOW, nanny_report, worker_address
from workerdiag.wire import DEATH_TOPIC

#: No callback of ours may take longer, in milliseconds.
GOAL_MS = 5.0
DEATHS = 100
#: Processor time of each callback, in milliseconds.
_held: list[float] = []
#: Of them, those of this program itself, by their place.
_own: set[int] = set()


@contextmanager
def timed_callbacks() -> Iterator[None]:
    """Note the processor time of each callback of any event loop."""
    run = asyncio.Handle._run  # noqa: SLF001  there is no public place

    def timed(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run(handle)
        _held.append(1000 * (time.thread_time() - began))

    asyncio.Handle._run = timed  # type: ignore[method-assign]  # noqa: SLF001
    try:
        yield
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign]  # noqa: SLF001


def death(number: int) -> dict[str, object]:
    """A nanny's report with as much in it as one may have."""
    report = nanny_report(number, noticed_at=time.time())
    samples = [
        {"at": NOW + at, "process_rss_bytes": 10**8 + at * 10**6, "memory_limit_bytes": 10**9} for at in range(300)
    ]
    box = {
        **report["box"],
        "samples": samples,
        "last_output": "distributed.worker - INFO - last words\n" * 400,
    }
    return {**report, "box": box, "worker_address": worker_address(number)}


async def measure() -> AsyncIterator[Row]:
    """The longest callback of each step."""
    preload = {"distributed.scheduler.preload": ["workerdiag.recorder.preload"]}
    with dask.config.set(preload), timed_callbacks():
        async with Scheduler(host="127.0.0.1", port=0, dashboard_address="127.0.0.1:0") as scheduler:
            base = f"http://127.0.0.1:{scheduler.http_server.port}/"
            await asyncio.sleep(2)
            _held.clear()
            await told(scheduler, 1)
            await judged(base, 1)
            yield longest("one death, judged", GOAL_MS)
            for number in range(2, DEATHS):
                await told(scheduler, number)
            await judged(base, DEATHS - 1)
            yield longest(f"{DEATHS - 2} deaths at once, judged", GOAL_MS)
            (case, *_) = json.loads(await get(base + "workerdiag/deaths.json"))["cases"]
            for path in ("workerdiag/deaths.json", case["report"], "metrics", "deaths", "individual-deaths"):
                yield await repeated(base, path, GOAL_MS)
            for path in ("individual-plots.json", "individual-workers", "status"):
                yield await repeated(base, path, None)


async def told(scheduler: Scheduler, number: int) -> None:
    """Have the recorder told of a death; what the recorder itself takes for that is not counted."""
    report = death(number)
    await asyncio.sleep(0)
    scheduler.log_event(DEATH_TOPIC, report)
    _own.add(len(_held))
    await asyncio.sleep(0)


async def judged(base: str, count: int) -> None:
    """Return when so many deaths are in the answer."""
    while True:
        if json.loads(await get(base + "workerdiag/deaths.json"))["death_count"] >= count:
            return
        await asyncio.sleep(0.2)


async def repeated(base: str, path: str, goal_ms: float | None) -> Row:
    """Ask twice; the second answer counts, as what is loaded once is loaded then."""
    await get(base + path)
    _held.clear()
    await get(base + path)
    return longest(f"/{path}" if goal_ms is not None else f"Dask's own /{path}", goal_ms)


async def get(url: str) -> bytes:
    """What the server answers, asked from a thread."""

    def ask() -> bytes:
        try:
            return urlopen(url, timeout=60).read()
        except HTTPError as problem:
            return problem.read()

    return await asyncio.to_thread(ask)


def longest(what: str, goal_ms: float | None) -> Row:
    """The longest callback since the last one that was returned."""
    most_ms = max((each for at, each in enumerate(_held) if at not in _own), default=0.0)
    _held.clear()
    _own.clear()
    return Row(what=what, measured=most_ms, unit="ms", goal=goal_ms)


async def main() -> None:
    """Print the rows."""
    publish([row async for row in measure()])


if __name__ == "__main__":
    asyncio.run(main())
