"""How long people wait for real clusters that do not answer: a frozen scheduler, a frozen nanny, none at all.

Frozen is a process that was stopped (SIGSTOP): it holds its connections and answers nobody.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import dask
from click.testing import CliRunner
from distributed import Client, KilledWorker, LocalCluster
from live import scheduler
from rows import Row, publish, seconds, timed

import workerdiag
from workerdiag.cli import DEMO_DEATHS, main
from workerdiag.deadline import Deadline
from workerdiag.model.evidence import Evidence, Gap
from workerdiag.sources.cluster import ClusterSource
from workerdiag.sources.cluster.queries import ClusterQuestion
from workerdiag.sources.exception import exception_facts
from workerdiag.sources.host.respondents import find_locations
from workerdiag.sources.host.source import HostSource
from workerdiag.sources.scene import find_victims, make_scene

BUDGET_S = 1.0
TIMEOUT_S = 6.0


def rows() -> Iterator[Row]:
    """One for each who may not answer, then for who does, and for the command line."""
    yield seconds(f"ClusterSource, frozen scheduler, budget {BUDGET_S:g} s", frozen_scheduler_s(), BUDGET_S * 1.1)
    taken_s, explained_s = frozen_nanny_s()
    yield seconds(f"ClusterSource, frozen nanny, budget {BUDGET_S:g} s", taken_s, BUDGET_S * 1.1)
    yield seconds(f"explain(exc, client), frozen nanny, timeout {TIMEOUT_S:g} s", explained_s, TIMEOUT_S * 1.1)
    yield seconds("ClusterSource, dead scheduler, then closed client, budget 5 s each", dead_scheduler_s(), 5.5)
    places_s, machine_s = local_cluster_s()
    yield seconds("where the dead lived, local cluster", places_s, 0.05)
    yield seconds("HostSource, local cluster", machine_s, 0.5)
    yield seconds("workerdiag explain --scheduler, twice, which is silent, timeout 1 s", silent_s(), 2 * 1.1 + 2)
    yield seconds("workerdiag demo, the slowest of its deaths", max(map(demo_s, DEMO_DEATHS)), 60)


def frozen_scheduler_s() -> float:
    """Seconds until the scheduler is left alone."""
    with scheduler() as (process, address), Client(address) as client, frozen(process.pid):
        taken_s, pieces = time_round(client, BUDGET_S)
    assert [each.reason for each in pieces if isinstance(each, Gap)] == ["timed-out"], pieces
    return taken_s


def frozen_nanny_s() -> tuple[float, float]:
    """Seconds for what the cluster says, and for an explanation, of a death whose nanny is frozen."""
    with (
        patch.dict(os.environ, {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0"}),
        scheduler() as (_, address),
        Client(address) as client,
        nannies(address, "first", "second") as (first, _),
    ):
        client.wait_for_workers(2, timeout=60)
        workerdiag.explain(None, client)  # loads the rules
        future = client.submit(crash, workers="first", allow_other_workers=False)
        time.sleep(0.5)
        with frozen(first):
            problem = future.exception(timeout=30)
            assert isinstance(problem, KilledWorker), problem
            taken_s, pieces = time_round(client, BUDGET_S, problem)
            assert any(isinstance(each, Gap) and each.reason == "timed-out" for each in pieces), pieces
            explained_s = timed(lambda: workerdiag.explain(problem, client, timeout=TIMEOUT_S))
    return taken_s, explained_s


def dead_scheduler_s() -> float:
    """Seconds until it is clear that nobody can be asked, through an open client and then a closed one."""
    with scheduler() as (process, address):
        client = Client(address)
        process.kill()
        process.wait()
        gone_s, _ = time_round(client, 5.0)
        client.close(timeout=1)
        closed_s, _ = time_round(client, 5.0)
    return gone_s + closed_s


def local_cluster_s() -> tuple[float, float]:
    """Seconds for where the dead of a local cluster lived, and for what that machine says."""
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        LocalCluster(n_workers=1, dashboard_address="127.0.0.1:0", silence_logs=50) as cluster,
        Client(cluster) as client,
    ):
        victims = find_victims(exception_facts(client.submit(os._exit, 3).exception(timeout=60)))
        began = time.perf_counter()
        places, gaps = find_locations(client, victims, Deadline.after(2))
        places_s = time.perf_counter() - began
        assert not gaps, gaps
        source = HostSource(make_scene(victims, places, client))
        return places_s, timed(lambda: list(source.collect(budget_s=3)))


def silent_s() -> float:
    """Seconds for the command about a scheduler that accepts and says nothing, without and with a log."""
    with socket.create_server(("127.0.0.1", 0)) as silent, tempfile.NamedTemporaryFile("w") as log:
        log.write("2026-05-04 11:22:33,444 - distributed.nanny - INFO - Worker process 7 exited with status 3\n")
        log.flush()
        about = ["--scheduler", f"tcp://127.0.0.1:{silent.getsockname()[1]}", "--timeout", "1s"]
        return sum(run_s("explain", *logs, *about) for logs in ((), (log.name,)))


def demo_s(death: str) -> float:
    """Seconds for a real cluster, a real death and its explanation."""
    return run_s("demo", "--death", death)


def run_s(*arguments: str) -> float:
    """Seconds that the command takes."""
    return timed(lambda: CliRunner().invoke(main, arguments, catch_exceptions=False))


def crash() -> None:
    """Ends its process, but not before its nanny is frozen."""
    time.sleep(2)
    os._exit(3)


def time_round(client: Client, budget_s: float, exc: BaseException | None = None) -> tuple[float, list[Evidence]]:
    """Seconds for one round of questions, and the answers."""
    facts = exception_facts(exc) if exc is not None else []
    about = tuple(each.identity for each in facts if getattr(each, "identity", None) and each.identity.worker)
    began = time.perf_counter()
    pieces = list(ClusterSource(client, ClusterQuestion(about=about)).collect(budget_s=budget_s))
    return time.perf_counter() - began, pieces


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """The process is stopped in this context."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def nannies(address: str, *names: str) -> Iterator[list[int]]:
    """The process ids of nannies, each with a worker of that name."""
    command = [
        sys.executable,
        "-m",
        "distributed.cli.dask_worker",
        address,
        "--nthreads",
        "1",
        "--no-dashboard",
    ]
    with ExitStack() as opened:
        started = []
        for name in names:
            folder = opened.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
            options = ["--name", name, "--local-directory", folder]
            process = subprocess.Popen([*command, *options], stderr=subprocess.DEVNULL)
            opened.callback(process.wait)
            opened.callback(process.terminate)
            started.append(process.pid)
        yield started


if __name__ == "__main__":
    for name in ("distributed.client", "distributed.utils"):
        logging.getLogger(name).disabled = True  # they tell that the scheduler is gone
    publish(rows())
