"""What the flight recorder costs a worker that starts: time until it has joined, and memory once it has worked.

By turns with and without, on one scheduler; each worker has a nanny, which records too.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import psutil
from distributed import Client
from live import scheduler
from rows import Row, publish, usual

TURNS = 40
TASKS = 500
PRELOADS = {
    f"DASK_DISTRIBUTED__{process}__PRELOAD": '["workerdiag.recorder.preload"]' for process in ("NANNY", "WORKER")
}


def rows() -> Iterator[Row]:
    """The differences, in milliseconds and megabytes."""
    taken: dict[bool, list[tuple[float, int]]] = {False: [], True: []}
    with scheduler() as (_, address), Client(address) as client:
        started(client, recorded=True)  # nobody's turn: files are in the system's cache after it
        for turn in range(TURNS):
            for recorded in (turn % 2 == 0, turn % 2 == 1):
                taken[recorded].append(started(client, recorded=recorded))
    bare, more = (usual([seconds for seconds, _ in taken[recorded]]) for recorded in (False, True))
    yield Row(what="start of a worker, bare", measured=bare * 1e3, unit="ms")
    yield Row(what="start of a worker, more with the recorder", measured=(more - bare) * 1e3, unit="ms", goal=30)
    bare, more = (usual([rss_bytes for _, rss_bytes in taken[recorded]]) for recorded in (False, True))
    yield Row(what="memory of a worker, more with the recorder", measured=(more - bare) / 1e6, unit="MB", goal=2)


def started(client: Client, *, recorded: bool) -> tuple[float, int]:
    """Seconds from the start of a nanny until its worker has joined; that one's resident bytes after some tasks."""
    with tempfile.TemporaryDirectory() as folder:
        sizes = ["--nthreads", "2", "--local-directory", folder, "--no-dashboard"]
        command = [sys.executable, "-m", "distributed.cli.dask_worker", client.scheduler.address, *sizes]
        preload = ["--preload-nanny", "workerdiag.recorder.preload"] if recorded else []
        env = {**os.environ, **(PRELOADS if recorded else {})}
        began = time.time()
        nanny = subprocess.Popen([*command, *preload], env=env, stderr=subprocess.DEVNULL)
        try:
            client.wait_for_workers(1, timeout=60)
            joined = max(when for when, message in client.get_events("all") if message["action"] == "add-worker")
            client.gather(client.map(abs, range(TASKS), pure=False))
            (rss_bytes,) = client.run(lambda: psutil.Process().memory_info().rss).values()
        finally:
            nanny.terminate()
            nanny.wait()
        while client.scheduler_info()["workers"]:
            time.sleep(0.05)
    return joined - began, rss_bytes


if __name__ == "__main__":
    publish(rows())
