"""
The watcher on real clusters: workers are killed, and it says why by itself.
"""

from __future__ import annotations

import os
import queue
import signal
import time

import pytest

import workerdiag

from .processes import PATIENCE_S, wait_until

pytestmark = pytest.mark.lab


class Heard:
    """
    A sink that keeps what it hears.
    """

    def __init__(self):
        self._notices = queue.Queue()

    def __call__(self, notice):
        self._notices.put(notice)

    def next(self):
        """
        The next notice, waited for.
        """
        return self._notices.get(timeout=PATIENCE_S)


@pytest.fixture(params=["with the recorder", "without"])
def client(request, lab, boxes):
    """
    A cluster of two workers with nannies.
    """
    lab.scheduler()
    lab.worker(name="first")
    lab.worker(name="second")
    client = lab.client(workers=2)
    if request.param == "with the recorder":
        workerdiag.install(client)
    return client


def kill_a_worker(client):
    """
    ``kill -9`` of one worker process; its address.
    """
    address, pid = next(iter(client.run(os.getpid).items()))
    os.kill(pid, signal.SIGKILL)
    return address


def test_a_killed_worker_is_told_with_its_cause(client, record_property, tmp_path):
    """
    Within seconds after its evidence has settled, to a function; the cause is the signal, also later.
    """
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


def test_a_cluster_that_is_closed_is_ended(lab):
    """
    Its owner closed it: the open case says so, and the loop over the watcher ends.
    """
    cluster, client = lab.cluster(workers=2)
    with workerdiag.watch(client) as watcher:
        wait_until(lambda: watcher.status().state == "watching", "the watcher to see the cluster")
        kill_a_worker(client)
        assert next(watcher).reason == "new"
        client.close()
        cluster.close()
        assert [each.reason for each in watcher] == ["ended"]
