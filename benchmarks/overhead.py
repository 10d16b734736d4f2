"""What the flight recorder costs a cluster that runs well: rounds with and without it, by turns, on one cluster.

    python benchmarks/overhead.py [--tasks 100000]

Throughput is tasks per second of the scheduler's own processor time. Each side runs the given number of
trivial tasks in all, in short rounds; "with nothing" is a second bare side, and shows the noise. What a
worker pays when it starts is in starting.py, and printed here too: 80 workers start one after the other, which
takes some minutes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from random import Random
from typing import Any

import starting
from distributed import Client, wait
from live import scheduler
from rows import Row, publish, usual

import workerdiag

ROUND = 2000
#: Tasks after each switch that count for nobody: what it set off is over after them.
SETTLING = 300
WORKERS, THREADS = 2, 2
GOAL = 0.99


def rows(tasks: int) -> Iterator[Row]:
    """With nothing, with the recorder on the scheduler, with the whole of it; then what starting costs."""
    with cluster() as client:
        shares = measured(client, tasks // ROUND)
    for what, share in shares.items():
        yield Row(
            what=f"scheduler throughput with {what}, {tasks} tasks, share of bare",
            measured=share,
            unit="",
            goal=None if what == "nothing" else GOAL,
            at_least=True,
        )
    yield from starting.rows()


class cluster(ExitStack):  # noqa: N801  used as a function
    """A scheduler and workers in processes of their own, and a client."""

    def __enter__(self) -> Client:  # type: ignore[override]
        super().__enter__()
        _, address = self.enter_context(scheduler())
        folder = self.enter_context(tempfile.TemporaryDirectory())
        command = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--no-dashboard"]
        sizes = ["--nworkers", str(WORKERS), "--nthreads", str(THREADS), "--local-directory", folder]
        workers = subprocess.Popen([*command, *sizes], stderr=subprocess.DEVNULL)
        self.callback(workers.wait)
        self.callback(workers.terminate)
        client = self.enter_context(Client(address))
        client.wait_for_workers(WORKERS, timeout=60)
        return client


def measured(client: Client, turns: int) -> dict[str, float]:
    """Throughput as a share of that without, each turn in an order of its own; bare against bare is the noise."""
    ways: dict[str, tuple[Any, Any]] = {
        "": (_nothing, _nothing),
        "nothing": (_nothing, _nothing),
        "a recorder on it": (on_scheduler, off_scheduler),
        "the whole recorder": (workerdiag.install, workerdiag.uninstall),
    }
    order, chance = list(ways), Random(1)
    taken: dict[str, list[float]] = {what: [] for what in ways}
    once(client, 3 * ROUND)  # nobody's turn: everything is imported and warm after it
    for _ in range(turns):
        chance.shuffle(order)
        for what in order:
            begin, end = ways[what]
            begin(client)
            once(client, SETTLING)
            taken[what].append(once(client, ROUND))
            end(client)
    bare = usual(taken.pop(""))
    return {what: bare / usual(seconds) for what, seconds in taken.items()}


def _nothing(client: Client) -> None:
    """Nothing is switched on or off."""


def once(client: Client, count: int) -> float:
    """Seconds of the scheduler's processor time for so many trivial tasks, until they are forgotten."""
    before = client.run_on_scheduler(time.process_time)
    futures = client.map(trivial, range(count), pure=False)
    wait(futures)
    del futures
    while client.run_on_scheduler(how_many_tasks):
        time.sleep(0.05)
    return float(client.run_on_scheduler(time.process_time)) - float(before)


def trivial(number: int) -> int:
    """The least that a task can do."""
    return number


def how_many_tasks(dask_scheduler: Any) -> int:
    """Runs on the scheduler."""
    return len(dask_scheduler.tasks)


def on_scheduler(client: Client) -> None:
    """Only the scheduler records."""
    from workerdiag.recorder.scheduler import RecorderScheduler

    client.register_plugin(RecorderScheduler())


def off_scheduler(client: Client) -> None:
    """It does no more."""
    from workerdiag.recorder.install import remove_from_scheduler

    client.run_on_scheduler(remove_from_scheduler)


if __name__ == "__main__":
    wanted = int(sys.argv[sys.argv.index("--tasks") + 1]) if "--tasks" in sys.argv else 100_000
    publish(rows(wanted))
