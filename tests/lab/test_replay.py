"""Real deaths whose tasks are run again. Each test makes one promise about the kit that `explain` brings along."""

from __future__ import annotations

import time

import dask
import pytest
from distributed import KilledWorker

import workerdiag

from . import tasks
from .cluster import IMPORT_ROOT
from .processes import PATIENCE_S

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("boxes")]
MB = 10**6


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    """Tasks are found where the lab's workers find them."""
    monkeypatch.syspath_prepend(str(IMPORT_ROOT))


def diagnosed(lab, work, *, threads=1, limit="300MB"):
    """The diagnosis of what *work* computes on one worker, and the client."""
    lab.scheduler(DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES="0")
    lab.worker("--nthreads", str(threads), memory_limit=limit)
    client = lab.client()
    workerdiag.install(client)
    with pytest.raises(KilledWorker) as caught:
        work(client)
    return client, workerdiag.explain(caught.value, client, timeout=PATIENCE_S)


def fill(_, megabytes):
    """Take that much for a second."""
    kept = bytearray(megabytes * MB)
    kept[::4096] = b"x" * len(kept[::4096])
    time.sleep(1.0)


@pytest.mark.common
def test_what_killed_a_worker_can_be_replayed_when_all_is_gone(lab):
    """After a plain `compute`, without the cluster: the recipe was kept while Dask still had it."""
    load = dask.delayed(tasks.make)(1, 7, dask_key_name="load")
    work = dask.delayed(fill)(load, 400, dask_key_name="fill")
    client, diagnosis = diagnosed(lab, lambda client: work.compute(scheduler=client))
    client.close()
    lab.close()
    replay = diagnosis.kit.replay()
    assert (replay.verdict, replay.task) == ("kills-alone", "fill")
    assert 400 * MB < replay.peak_bytes < replay.needs_memory_bytes < 560 * MB
    told = diagnosis.with_replay(replay)
    assert told.decision.needs_memory_bytes == replay.needs_memory_bytes
    assert told.cures[0].kind == "worker-memory"
    assert told.cures[0].value >= replay.needs_memory_bytes


def test_tasks_that_die_only_together_are_told_from_a_killer(lab, tmp_path):
    """Also from a file; fewer threads are the cure then."""
    parts = [dask.delayed(fill)(None, 150, dask_key_name=f"fill-{number}") for number in range(4)]
    _, diagnosis = diagnosed(lab, lambda client: dask.compute(parts, scheduler=client), threads=2)
    replay = workerdiag.Kit.load(diagnosis.kit.save(tmp_path / "kit.zip")).replay(trusted=True)
    assert replay.verdict == "only-in-company"
    assert [each.threads for each in replay.table] == [1, 2]
    cure = diagnosis.with_replay(replay).cures[0]
    assert (cure.kind, cure.value) == ("threads", 1)


def test_scattered_data_comes_along_when_it_is_asked_for(lab):
    """Nobody can compute it again."""
    kept = []

    def work(client):
        kept.append(client.scatter(b"data", direct=False, broadcast=True))
        client.submit(fill, kept[0], 400, key="fill").result()

    client, diagnosis = diagnosed(lab, work)
    assert diagnosis.kit.replay().obstacle == "incomplete"
    lost = client.scatter(b"data")  # the worker took its copy along; the same data has the same key
    assert lost.key == kept[0].key
    replay = diagnosis.kit.with_inputs(client).replay()
    assert replay.verdict == "kills-alone"
