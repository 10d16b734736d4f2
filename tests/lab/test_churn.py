"""Clusters whose workers die, are replaced and die again, and clusters that only look like it."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import warnings

import dask
import pytest
from distributed import Client, LocalCluster

import workerdiag
from workerdiag.api import noted_calls

from .processes import wait_until

pytestmark = pytest.mark.lab

MIB = 2**20
#: Nothing is ever raised; and a LocalCluster does not close the nanny of a worker that happens to be restarting
#: some time after an earlier death.
PATIENT = {"distributed.scheduler.allowed-failures": 1000, "distributed.deploy.lost-worker-timeout": "1h"}


@pytest.fixture
def start():
    """Start a cluster of two workers with room for some tasks, and a client of it."""
    opened = []
    with dask.config.set(PATIENT):

        def begin(**options):
            known = {"n_workers": 2, "threads_per_worker": 2, "memory_limit": 500 * MIB, "dashboard_address": ":0"}
            cluster = LocalCluster(**known | options)
            opened.append(cluster)
            client = Client(cluster)
            opened.append(client)
            return cluster, client

        yield begin
        for each in reversed(opened):
            each.close()


def program():
    """Return a function with a cache that outlives its tasks; it is nested, so workers need no module of ours."""

    def remember(number, *, keep):
        import sys
        import time

        kept = sys.__dict__.setdefault("_cache_of_the_program", [])
        kept.append(b"x" * (35 * 2**20))
        work = b"x" * (70 * 2**20)
        time.sleep(0.15)
        if not keep:
            kept.clear()
        return f"{number}: {len(work)}"

    return remember


def removals(cluster):
    """How many workers the scheduler has lost."""
    events = cluster.scheduler.get_events("all")
    return sum(message.get("action") == "remove-worker" for _, message in events if isinstance(message, dict))


def test_a_cache_that_grows_is_a_churn_and_mending_it_ends_it(start, monkeypatch):
    """Nothing is raised. Another client's question and one warning say it, and the first change is enough."""
    monkeypatch.setattr(noted_calls, "_WAITS_S", 2.0)
    monkeypatch.setattr(noted_calls, "_BETWEEN_LOOKS_S", 4.0)
    cluster, client = start()
    remember = program()
    workerdiag.auto(client)
    tasks = client.map(remember, range(300), keep=True, pure=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        waiting = threading.Thread(target=_gather, args=(client, tasks), daemon=True)
        waiting.start()
        wait_until(lambda: removals(cluster) >= 6, "deaths", within_s=90)
        with Client(cluster.scheduler_address) as other:
            diagnosis = workerdiag.explain(client=other)
        wait_until(lambda: any("again and again" in str(each.message) for each in caught), "a warning", within_s=30)
    assert waiting.is_alive()
    told = [str(each.message) for each in caught if "again and again" in str(each.message)]
    assert len(told) == 1

    churn = diagnosis.churn
    assert churn is not None
    assert (churn.cause, churn.deaths >= 5, churn.replacements >= 2) == ("nanny.memory-terminate", True, True)
    assert 0 < churn.lost_results.count <= churn.finished.count
    assert "Work is done twice" in str(diagnosis)
    assert diagnosis.memory.reason == "leak", diagnosis.memory.reasons
    assert diagnosis.cures[0].kind == "fix-leak"

    client.cancel(tasks)
    cluster, client = start()
    assert len(client.gather(client.map(remember, range(40), keep=False, pure=False))) == 40
    assert removals(cluster) == 0


def _gather(client, tasks):
    with contextlib.suppress(Exception):  # cancelled in the end
        client.gather(tasks)


def test_renewals_and_one_batch_are_no_churn(start):
    """Workers that end with their lifetime are replaced again and again as asked; a batch dies once."""
    cluster, client = start(lifetime="3 s", lifetime_restart=True, memory_limit=0)
    tasks = client.map(time.sleep, [0.3] * 300, pure=False)
    wait_until(lambda: removals(cluster) >= 4, "renewals", within_s=60)
    assert workerdiag.explain(client=client).churn is None
    client.cancel(tasks)

    cluster, client = start(threads_per_worker=1, memory_limit=0)
    pids = client.run(os.getpid)
    tasks = client.map(time.sleep, [0.3] * 300, pure=False)
    for pid in pids.values():
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: removals(cluster) >= 2 and len(cluster.scheduler.workers) == 2, "new workers", within_s=60)
    assert workerdiag.explain(client=client).churn is None
