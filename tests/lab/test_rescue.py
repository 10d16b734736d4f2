"""Work whose workers die for memory comes to its end; the same work fails without (docs/rescue.md)."""

from __future__ import annotations

import time
from contextlib import contextmanager

import dask
import pytest
from dask import delayed
from distributed import Client, KilledWorker, LocalCluster

import workerdiag

from .cluster import Lab
from .kernel import UnavailableError, memory_group

pytestmark = pytest.mark.lab

MB = 10**6
PATIENCE = "120s"


def fill(_, megabytes):
    """Fill memory in steps, keep it for a moment, free it."""
    held = []
    for _ in range(megabytes // 10):
        held.append(bytearray(b"1" * (10 * MB)))
        time.sleep(0.005)
    time.sleep(0.3)
    return len(held)


def work(megabytes, largest):
    """Eight tasks beside each other, one of which may be larger, and their sum."""
    tasks = [
        delayed(fill)(delayed(abs)(n), largest if n == 3 else megabytes, dask_key_name=f"fill-{n}")
        for n in range(8)
    ]
    return delayed(sum)(tasks)


@contextmanager
def cluster():
    """Two workers of 400 MB with two threads each; what is spilled or paused would blur the picture."""
    options = {"n_workers": 2, "threads_per_worker": 2, "memory_limit": 400 * MB, "dashboard_address": None}
    never = dict.fromkeys((f"distributed.worker.memory.{name}" for name in ("spill", "target", "pause")), False)
    with dask.config.set(never), LocalCluster(**options) as cluster, Client(cluster) as client:
        yield client


def threads_of(client):
    return set(client.run(lambda dask_worker: dask_worker.state.nthreads).values())


def wait_for(is_so, what):
    """Wait until something is so, e.g. until the client has heard what was done."""
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, str(what)
        time.sleep(0.1)


def has_done(rescue, act):
    """Wait until that was done."""
    wait_for(lambda: act in [each.act for each in rescue.history], rescue)


@pytest.mark.common
def test_what_dies_in_company_finishes_with_fewer_threads():
    """The report says what was done; afterwards all is as before."""
    with cluster() as client:
        workerdiag.install(client)
        rescue = workerdiag.rescue(client, deadline=PATIENCE)
        assert work(200, 200).compute() == 8 * 20
        has_done(rescue, "restore")
        assert [each.act for each in rescue.history] == ["lower-threads", "restore"]
        assert threads_of(client) == {2}
        diagnosis = workerdiag.explain(client=client)
        assert diagnosis.acts[0].startswith("Every worker runs at most 1 of 2 tasks at once")
        assert "Done      Every worker runs" in str(diagnosis)


def test_what_kills_alone_finishes_on_a_bigger_worker():
    """It is started by the cluster itself, and ended afterwards."""
    with cluster() as client:
        rescue = workerdiag.rescue(client, most_memory=1500 * MB, deadline=PATIENCE)
        assert work(20, 600).compute() == 7 * 2 + 60
        has_done(rescue, "restore")
        asked = [each for each in rescue.history if each.act == "bigger-worker"]
        assert (asked[0].task_key, asked[0].memory_bytes) == ("fill-3", 1500 * MB)
        names = client.cluster.workers
        wait_for(lambda: not any(str(each).startswith("bigger") for each in list(names)), names)


@pytest.mark.common
def test_what_may_not_have_a_bigger_worker_fails_with_the_reason():
    """Before it has killed as many workers as Dask allows; a task that did not kill is not named."""
    with cluster() as client:
        rescue = workerdiag.rescue(client, deadline=PATIENCE)
        with pytest.raises(KilledWorker) as caught:
            work(20, 600).compute()
        assert caught.value.task == "fill-3"
        assert "a bigger worker is not allowed" in caught.value.__notes__[0]
        has_done(rescue, "fail-task")


def test_what_the_kernel_kills_in_company_finishes_with_fewer_threads(tmp_path):
    """Of a limit that Dask does not know, by the counter of the worker's control group."""
    with Lab(tmp_path) as lab:
        try:
            group = lab.enter_context(memory_group(limit_bytes=700 * MB))
        except UnavailableError as problem:
            pytest.skip(str(problem))
        lab.scheduler()
        lab.worker("--nthreads", "2", memory_limit="4GB", group=group)
        client = lab.client()
        lab.enter_context(client.as_current())
        workerdiag.install(client)
        rescue = workerdiag.rescue(client, deadline=PATIENCE)
        assert work(320, 320).compute() == 8 * 32
        has_done(rescue, "restore")
        assert "lower-threads" in [each.act for each in rescue.history]
        client.wait_for_workers(1, timeout=120)
        assert threads_of(client) == {2}


def test_a_dry_run_changes_nothing():
    """The work fails as it does without, and one can read what would have helped."""
    with cluster() as client:
        plugins = client.run_on_scheduler(lambda dask_scheduler: sorted(dask_scheduler.worker_plugins))
        rescue = workerdiag.rescue(client, most_memory=1500 * MB, dry_run=True)
        with pytest.raises(KilledWorker):
            work(20, 600).compute()
        wait_for(lambda: rescue.history, rescue)
        assert all(each.is_dry_run for each in rescue.history)
        wait_for(lambda: threads_of(client), rescue)  # both workers may be starting again
        assert threads_of(client) == {2}
        assert client.run_on_scheduler(lambda dask_scheduler: sorted(dask_scheduler.worker_plugins)) == plugins
        assert len(client.cluster.workers) == 2
        rescue.undo()
        assert not client.run_on_scheduler(
            lambda dask_scheduler: [each for each in dask_scheduler.plugins if "rescue" in each]
        )
