"""How long `explain` takes on a live cluster: one with a dead worker, one whose scheduler is stuck."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import dask
from distributed import Client, KilledWorker, LocalCluster
from rows import Row, publish

import workerdiag

TIMEOUT_S = 2.0


def rows() -> Iterator[Row]:
    """Both clusters, each started for the purpose."""
    yield Row(what="explain(exc, client), local cluster", measured=after_a_death_s(), unit="s", goal=1)
    yield Row(
        what=f"explain(client), stuck scheduler, timeout {TIMEOUT_S:g} s",
        measured=with_a_stuck_scheduler_s(),
        unit="s",
        goal=TIMEOUT_S * 1.1,
    )


def after_a_death_s() -> float:
    """Seconds for the first explanation of a worker that a task ended with ``os._exit``."""
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=50
        ) as cluster,
        Client(cluster) as client,
    ):
        try:
            client.submit(os._exit, 3).result(timeout=60)
        except KilledWorker as exc:
            began = time.perf_counter()
            diagnosis = workerdiag.explain(exc, client)
            taken_s = time.perf_counter() - began
    assert diagnosis.outcome == "explained", str(diagnosis)
    return taken_s


def with_a_stuck_scheduler_s() -> float:
    """Seconds until `explain` gives up on a scheduler that is stopped, as a swapping one is."""
    with scheduler() as (process, address), Client(address) as client:
        process.send_signal(signal.SIGSTOP)
        try:
            began = time.perf_counter()
            workerdiag.explain(None, client, timeout=TIMEOUT_S)
            return time.perf_counter() - began
        finally:
            process.send_signal(signal.SIGCONT)


@contextmanager
def scheduler() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A scheduler in a process of its own, and its address."""
    command = [
        sys.executable,
        "-m",
        "distributed.cli.dask_scheduler",
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--no-dashboard",
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr
        found = next(filter(None, (re.search(r"Scheduler at:\s+(tcp://\S+)", line) for line in process.stderr)))
        read = threading.Thread(target=deque, args=(process.stderr, 0))
        read.start()  # else it waits for ever, once the pipe is full
        yield process, found[1]
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    publish(rows())
