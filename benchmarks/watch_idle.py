"""What a watcher costs while nothing dies: memory and processor time of ``workerdiag watch``.

    python benchmarks/watch_idle.py [--workers 1000] [--seconds 120]

The scheduler is real; its workers are entries in its state, which send no heartbeats. What comes before the
cluster was read twice, as its imports, is not counted: on a busy machine that can take a minute.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import dask
from distributed import Client, LocalCluster
from rows import Row, publish

import workerdiag
from workerdiag.errors import WorkerdiagError
from workerdiag.watch.store import Store

WARM_UP_S = 300.0
#: Of memory, and of one core: a watcher runs beside everything else for weeks.
GOAL_MB, GOAL_PERCENT = 100, 1


def add_workers(count: int, dask_scheduler: Any = None) -> int:
    """Give the scheduler *count* workers that are not there; how many it knows then."""
    import weakref

    from distributed.core import Status
    from distributed.scheduler import WorkerState

    for number in range(count):
        address = f"tcp://10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}:40000"
        worker = WorkerState(
            address=address,
            status=Status.running,
            pid=number,
            name=f"w{number}",
            nthreads=1,
            memory_limit=2**30,
            local_directory="/tmp",
            nanny=None,
            server_id=f"id-{number}",
        )
        worker.scheduler_ref = weakref.ref(dask_scheduler)
        worker.metrics = {"memory": 0, "spilled_bytes": {"memory": 0, "disk": 0}}
        dask_scheduler.workers[address] = worker
    return len(dask_scheduler.workers)


def cost_of(pid: int) -> tuple[float, float]:
    """Resident memory in MB, and seconds of processor time so far."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    rss_kb = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))
    times = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return int(rss_kb) * 1024 / 1e6, (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")


def wait_until_read_twice(state: Path) -> None:
    """Wait until a watcher has noted, after its first look, that it looked again."""
    times: set[float] = set()
    end_s = time.monotonic() + WARM_UP_S
    while len(times) < 2:
        assert time.monotonic() < end_s, "the watcher does not read the cluster"
        time.sleep(1)
        with suppress(WorkerdiagError), closing(Store(state, must_exist=True)) as store:
            times.update(store.clusters().values())


def measure(address: str, folder: str, seconds: float) -> tuple[float, float]:
    """Memory in MB and the share of one core, in percent, of an idle watcher."""
    command = [sys.executable, "-m", "workerdiag", "watch", address, "--state", f"{folder}/state.db"]
    watcher = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        wait_until_read_twice(Path(folder, "state.db"))
        _, before_s = cost_of(watcher.pid)
        time.sleep(seconds)
        rss_mb, after_s = cost_of(watcher.pid)
    finally:
        watcher.terminate()
        watcher.wait()
    return rss_mb, 100 * (after_s - before_s) / seconds


def rows(workers: int, seconds: float) -> Iterator[Row]:
    """Memory and processor time, without the recorder and with it."""
    dask.config.set({"distributed.scheduler.worker-ttl": None})
    for recorder in (False, True):
        with (
            LocalCluster(n_workers=0, dashboard_address=None) as cluster,
            Client(cluster) as client,
            tempfile.TemporaryDirectory() as folder,
        ):
            if recorder:
                workerdiag.install(client)
            client.run_on_scheduler(add_workers, workers)
            rss_mb, percent = measure(cluster.scheduler_address, folder, seconds)
            client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.workers.clear())
        name = f"idle watcher of {workers:,} workers, {'with' if recorder else 'without'} the recorder"
        yield Row(what=f"{name}: memory", measured=rss_mb, unit="MB", goal=GOAL_MB)
        yield Row(what=f"{name}: of a core", measured=percent, unit="%", goal=GOAL_PERCENT)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--json", action="store_true", help="print rows for run.py")
    options = parser.parse_args()
    publish(rows(options.workers, options.seconds))
