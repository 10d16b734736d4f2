"""The watcher on real clusters: workers are killed, and it says why by itself."""

from __future__ import annotations

import os
import queue
import signal
import time
from functools import partial

import pytest
from distributed import Client, LocalCluster

import workerdiag

from . import tasks
from .processes import PATIENCE_S, LabError, wait_until

pytestmark = pytest.mark.lab


class Heard:
    """A sink that keeps what it hears."""

    def __init__(self):
        self._notices = queue.Queue()

    def __call__(self, notice):
        self._notices.put(notice)

    def next(self):
        """The next notice, waited for."""
        return self._notices.get(timeout=PATIENCE_S)


@pytest.fixture(params=["with the recorder", "without", "functions are forbidden"])
def client(request, lab, boxes):
    """A cluster of two workers with nannies."""
    forbids = request.param == "functions are forbidden"
    lab.scheduler(DASK_DISTRIBUTED__SCHEDULER__BLOCKED_HANDLERS="['run_function']" if forbids else "[]")
    lab.worker(name="first")
    lab.worker(name="second")
    client = lab.client(workers=2)
    if request.param == "with the recorder":
        workerdiag.install(client)
    return client


def kill_a_worker(client):
    """``kill -9`` of one worker process; its address."""
    address, pid = next(iter(client.run(os.getpid).items()))
    os.kill(pid, signal.SIGKILL)
    return address


def test_a_killed_worker_is_told_with_its_cause(client, record_property, tmp_path):
    """Within seconds after its evidence has settled, to a function; the cause is the signal, also later."""
    heard = Heard()
    with workerdiag.watch(client, heard, bundles=tmp_path) as watcher:
        wait_until(lambda: watcher.status().state == "watching", "the watcher to see the cluster")
        begin = time.monotonic()
        address = kill_a_worker(client)
        notice = heard.next()
        record_property("told_after_s", round(time.monotonic() - begin, 1))
    assert notice.reason == "new"
    assert notice.cause == "external.sigkill"
    assert notice.death_count == 1
    assert notice.first_victim == address
    assert workerdiag.explain(logs=notice.links["bundle"]).top.id == notice.cause


def judged_counts(watcher):
    """How many deaths are told by which cause."""
    return {each.cause: each.death_count for each in watcher.cases() if each.state != "settling"}


def test_a_dozen_deaths_of_three_causes_are_three_cases(lab, boxes):
    """Four nannies share a process and a log, and no recorder is there: three cases, and at most one update each."""
    lab.scheduler(DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES="100")
    nannies = lab.worker("--nworkers", "4")
    client = lab.client(workers=4)
    notices = []
    deadly = ((tasks.segfault,), (tasks.shoot_itself, signal.SIGKILL), (tasks.exit_at_once, 3))
    with workerdiag.watch(client, notices.append) as watcher:
        wait_until(lambda: watcher.status().state == "watching", "the watcher to see the cluster")
        for begin in range(0, 12, 4):
            client.wait_for_workers(4, timeout=PATIENCE_S)
            addresses = list(client.scheduler_info(n_workers=-1)["workers"])[:4]
            futures = [
                client.submit(*deadly[number % 3], key=f"deadly-{number}", workers=[address])
                for number, address in enumerate(addresses, start=begin)
            ]
            wait_until(lambda count=begin + 4: watcher.status().death_count >= count, "the deaths")
            client.cancel(futures)
        judged = partial(judged_counts, watcher)
        causes = wait_until(lambda: sum(judged().values()) == 12 and judged(), "the deaths to be judged")
    if "was killed by unknown signal" in nannies.log.read_text():
        raise LabError("two nannies read one exit code at once, so that Dask lost it (process.py)")
    assert causes == {"signal.segfault": 4, "external.sigkill": 4, "code.process-exit": 4}
    assert [each.reason for each in notices].count("new") == 3
    assert len(notices) <= 6


@pytest.mark.parametrize("recorder", [True, False])
def test_a_worker_that_is_killed_as_its_cluster_closes_is_told(recorder):
    """The order to retire lists it too, but it went without a word; the others, which stop as asked, are no news.

    Without the recorder nobody writes anything down for a watcher that comes after the scheduler's end.
    """
    heard = Heard()
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        with Client(cluster) as client:
            if recorder:
                workerdiag.install(client)
            pids = client.run(os.getpid)
        with workerdiag.watch(cluster.scheduler_address, heard) as watcher:
            wait_until(lambda: watcher.status().state == "watching", "the watcher to see the cluster")
            os.kill(next(iter(pids.values())), signal.SIGKILL)
            if recorder:
                cluster.close()
            else:
                cluster.scale(0)
            notice = heard.next()
            assert (notice.reason, notice.death_count) == ("new", 1)


def test_a_cluster_that_is_closed_is_ended(lab):
    """Its owner closed it: the open case says so, and the loop over the watcher ends."""
    cluster, client = lab.cluster(workers=2)
    with workerdiag.watch(client) as watcher:
        wait_until(lambda: watcher.status().state == "watching", "the watcher to see the cluster")
        kill_a_worker(client)
        assert next(watcher).reason == "new"
        client.close()
        cluster.close()
        assert [each.reason for each in watcher] == ["ended"]
