"""Real clusters, asked after real deaths. Each test makes one promise about what `ClusterSource` finds."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from datetime import UTC, datetime

import psutil
import pytest
from distributed import Client, LocalCluster

from workerdiag.model.evidence import Event, Gap, Inspected, LogChunk, MemoryReading
from workerdiag.sources.cluster import ClusterSource
from workerdiag.sources.cluster.queries import ClusterQuestion
from workerdiag.sources.exception import exception_facts

from .processes import PATIENCE_S

pytestmark = pytest.mark.lab


def crash():
    """As a library may end its process."""
    os._exit(3)


def collect(client, exc=None, budget_s=10.0):
    """The evidence of one round, as `workerdiag.explain` gathers it."""
    facts = exception_facts(exc) if exc is not None else []
    about = tuple(each.identity for each in facts if getattr(each, "identity", None) and each.identity.worker)
    return list(ClusterSource(client, ClusterQuestion(about=about)).collect(budget_s=budget_s))


def of(kind, evidence):
    """The evidence of one kind."""
    return [each for each in evidence if isinstance(each, kind)]


def text_of(evidence, stream):
    """All log text of one stream."""
    return "".join(each.data.decode() for each in of(LogChunk, evidence) if each.stream == stream)


@pytest.fixture(scope="module")
def client():
    """A client of a cluster with two workers of 1 GiB."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", memory_limit="1GiB") as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def killed(client):
    """What the client gets for a task that ends its worker, four times."""
    with pytest.raises(Exception, match="different workers") as caught:
        client.submit(crash, pure=False).result(timeout=60)
    return caught.value


@pytest.fixture(scope="module")
def evidence(client, killed):
    """What is found right after that."""
    return collect(client, killed)


def test_the_nanny_tells_how_the_killed_worker_exited(evidence, killed):
    """The exit of the process that KilledWorker names is in the evidence, under its pid."""
    assert f"Worker process {killed.last_worker.pid} exited with status 3" in text_of(evidence, "nanny")


def test_the_removal_is_told_with_whose_it_is(evidence, killed):
    """What the scheduler noted down about the dead worker carries all that is known of that worker."""
    last = killed.last_worker
    removed = [
        each
        for each in of(Event, evidence)
        if each.topic == last.address and each.fields["action"] == "remove-worker"
    ]
    assert len(removed) == 1
    assert (removed[0].identity.pid, removed[0].identity.nanny) == (last.pid, last.nanny)
    assert removed[0].fields["processing"] == killed.task
    assert removed[0].fields["processing_count"] == 1
    assert removed[0].fields["expected"] is False


def test_logs_and_events_have_one_clock(evidence, killed):
    """A nanny's line about a death bears the time of the scheduler's event of it, whatever the time zone."""
    line = re.search(
        rf"^(.*),\d+ - .*process {killed.last_worker.pid} exited", text_of(evidence, "nanny"), re.MULTILINE
    )
    told = datetime.strptime(line[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()
    event = next(each for each in of(Event, evidence) if each.topic == killed.last_worker.address)
    assert told == pytest.approx(event.when, abs=5)


def test_nothing_is_missing_while_all_answer(evidence):
    """With everybody alive each place is looked at wholly, and there is no gap."""
    places = {each.place for each in of(Inspected, evidence)}
    assert of(Gap, evidence) == []
    assert places == {"nanny log", "scheduler log", "scheduler events", "worker states", "task states"}


def test_four_deaths_of_one_task_are_all_found(evidence, killed):
    """The workers that the same task was lost with before are found by their removals."""
    removed = {each.identity.worker for each in of(Event, evidence) if each.fields.get("action") == "remove-worker"}
    assert len(removed) == killed.allowed_failures + 1


def test_a_killed_task_is_told_as_such(evidence, killed):
    """The state of the tasks names the one that failed and how many deaths it was there for."""
    erred = next(each for each in of(Event, evidence) if each.fields.get("state") == "erred")
    assert erred.fields["key"] == killed.task
    assert erred.fields["suspicious"] == killed.allowed_failures + 1


def test_deaths_are_found_without_an_exception(client, killed):
    """Without an exception at hand, the workers that were lost lately are the ones to ask about."""
    client.wait_for_workers(2, timeout=PATIENCE_S)
    evidence = collect(client)
    removed = {each.identity.worker for each in of(Event, evidence) if each.topic.startswith("tcp://")}
    assert killed.last_worker.address in removed
    assert "exited with status 3" in text_of(evidence, "nanny")


def test_an_asynchronous_client_learns_the_same(client, killed):
    """From within an event loop the answer is awaited; blocking there is refused as a gap."""

    async def ask():
        async with Client(client.scheduler.address, asynchronous=True) as other:
            source = ClusterSource(
                other, ClusterQuestion(about=tuple(each.identity for each in exception_facts(killed)[:1]))
            )
            return await source.collect_async(budget_s=10), list(source.collect(budget_s=10))

    evidence, refused = asyncio.run(ask())
    assert f"process {killed.last_worker.pid} exited with status 3" in text_of(evidence, "nanny")
    assert [type(each) for each in refused] == [Gap]


def test_a_task_that_no_worker_may_run_is_told_with_its_restriction(client):
    """Work that waits for a resource nobody has shows as such."""
    future = client.submit(int, resources={"GPU": 1}, pure=False)
    time.sleep(0.2)
    waiting = [each for each in of(Event, collect(client)) if each.fields.get("state") == "no-worker"]
    assert waiting[0].fields["restrictions"] == "resource GPU=1"
    assert waiting[0].fields["key"] == future.key


def test_a_memory_kill_is_told_with_its_size(client):
    """The nanny's own kill leaves how much memory there was, for the worker that had it."""
    future = client.submit(lambda: (bytearray(b"1") * (1_100 * 2**20), time.sleep(20)), pure=False)
    for _ in range(200):
        if client.get_events("worker-restart-memory"):
            break
        time.sleep(0.1)
    readings = of(MemoryReading, collect(client))
    future.cancel()
    assert readings[0].rss_bytes > 2**30 * 0.9
    assert readings[0].identity.worker
    assert readings[0].identity.pid


@contextmanager
def processes(tmp_path, *, workers):
    """A scheduler and nannies as processes of their own, and a client."""
    environment = os.environ | {"DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "5s"}
    file = tmp_path / "scheduler.json"
    dask = [sys.executable, "-m", "dask"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment, "cwd": tmp_path}
    options = ["--scheduler-file", str(file)]
    address = ["--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0"]
    started = [subprocess.Popen([*dask, "scheduler", *options, *address], **quiet)]
    try:
        worker = [*dask, "worker", *options, "--nthreads", "1", "--no-dashboard"]
        started += [subprocess.Popen(worker, **quiet) for _ in range(workers)]
        while not file.exists():
            time.sleep(0.1)
        client = Client(scheduler_file=str(file), timeout=20)
        client.wait_for_workers(workers, timeout=40)
        yield client, started
    finally:
        for process in started:
            process.send_signal(signal.SIGCONT)
            process.kill()
        client.close(timeout=1)


def test_a_frozen_scheduler_is_left_alone(tmp_path):
    """A scheduler that is stopped (SIGSTOP) is not waited for until it goes on, and that is said."""
    with processes(tmp_path, workers=1) as (client, (scheduler, _)):
        scheduler.send_signal(signal.SIGSTOP)
        evidence = collect(client, budget_s=2.0)
        assert psutil.Process(scheduler.pid).status() == psutil.STATUS_STOPPED
    assert [each.reason for each in of(Gap, evidence)] == ["timed-out"]


def test_a_frozen_nanny_holds_nobody_up(tmp_path):
    """A nanny that is stopped is a gap of its own; the other nanny and the scheduler are still heard."""
    with processes(tmp_path, workers=2) as (client, (_, nanny, _)):
        nanny.send_signal(signal.SIGSTOP)
        evidence = collect(client, budget_s=3.0)
        assert psutil.Process(nanny.pid).status() == psutil.STATUS_STOPPED
    assert [(each.source.partition(" of ")[0], each.reason) for each in of(Gap, evidence)] == [
        ("nanny log", "timed-out")
    ]
    assert "Start Nanny at" in text_of(evidence, "nanny")
    assert {"scheduler log", "nanny log"} <= {each.place for each in of(Inspected, evidence)}


def test_a_dead_scheduler_and_a_closed_client_are_gaps_at_once(tmp_path):
    """Where nobody can answer any more, that is said without waiting for it."""
    with processes(tmp_path, workers=1) as (client, (scheduler, _)):
        scheduler.kill()
        scheduler.wait()
        gone = collect(client, budget_s=5.0)
        client.close(timeout=1)
        closed = collect(client, budget_s=5.0)
    assert {each.reason for each in of(Gap, gone)} <= {"unreachable", "timed-out"}
    assert of(Gap, gone)
    assert [each.reason for each in of(Gap, closed)] == ["unreachable"]


def test_a_scheduler_that_forbids_functions_is_asked_otherwise(tmp_path, monkeypatch):
    """Blocked handlers cost what they would have told, and nothing else."""
    monkeypatch.setenv("DASK_DISTRIBUTED__SCHEDULER__BLOCKED_HANDLERS", "['run_function']")
    with processes(tmp_path, workers=1) as (client, _):
        evidence = collect(client, budget_s=5.0)
    assert [(each.source, each.reason) for each in of(Gap, evidence)] == [("task states", "forbidden")]
    assert "worker-state" in {each.topic for each in of(Event, evidence)}
