"""`examples/retry.py` on real clusters: what is poisoned kills once, what is innocent comes to its end."""

from __future__ import annotations

import contextlib
import importlib.util
import signal
from pathlib import Path

import dask
import pytest
from distributed import Client, system
from distributed.scheduler import KilledWorker

from . import tasks
from .cluster import IMPATIENT
from .processes import PATIENCE_S

pytestmark = pytest.mark.lab

PATH = Path(__file__).parents[2] / "examples" / "retry.py"


@pytest.fixture
def run():
    """The function that runs work again where that harms nobody."""
    spec = importlib.util.spec_from_file_location("example_retry", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.run


def test_a_crash_is_not_tried_again(lab, run):
    """A task that crashes its worker crashes one, and the exception says why it was left at that."""
    lab.scheduler(**IMPATIENT)
    lab.worker()
    client = lab.client()
    tried = []

    def work(client: Client) -> object:
        tried.append(1)
        return client.submit(tasks.segfault).result(timeout=PATIENCE_S)

    with pytest.raises(KilledWorker) as caught:
        run(work, lambda _: contextlib.nullcontext(client))
    assert len(tried) == 1
    assert caught.value.__notes__[-1].startswith("do-not-retry: Segmentation fault")


@pytest.mark.alone
def test_work_whose_nanny_was_killed_is_tried_again(lab, run):
    """The nanny's end is no fault of the work, which succeeds on the next worker."""
    lab.scheduler(**IMPATIENT)
    first = lab.worker()
    client = lab.client()
    mark = lab.mark()
    tried = []

    def work(client: Client) -> object:
        tried.append(1)
        if len(tried) > 1:
            lab.worker(name="second")
            return client.submit(tasks.nap, 0, key="nap").result(timeout=PATIENCE_S)
        future = client.submit(tasks.nap, 600, mark, key="nap")
        lab.running()
        first.send(signal.SIGKILL)
        return future.result(timeout=PATIENCE_S)

    assert run(work, lambda _: contextlib.nullcontext(client)) is not None
    assert len(tried) == 2


@pytest.mark.parametrize(("needed_mb", "machine_mb"), [(250, 1000), (4000, 1000), (700, 16_000)])
def test_work_that_needs_more_memory_gets_more_once(run, monkeypatch, needed_mb, machine_mb):
    """Killed by its nanny at 300 MiB, it comes to its end on a larger worker, or on the largest that its machine has.

    What wants far more is given up.
    """
    monkeypatch.setattr(system, "MEMORY_LIMIT", machine_mb * 2**20)
    given = []

    def start(memory_bytes: int | None) -> Client:
        given.append(memory_bytes)
        with dask.config.set({"distributed.scheduler.allowed-failures": 0}):
            return Client(
                n_workers=1,
                threads_per_worker=1,
                memory_limit=memory_bytes or 300 * 2**20,
                dashboard_address=":0",
            )

    def work(client: Client) -> object:
        return client.submit(tasks.grow, needed_mb, 5).result(timeout=PATIENCE_S)

    if needed_mb < machine_mb:
        run(work, start)
    else:
        with pytest.raises(KilledWorker) as caught:
            run(work, start)
        assert caught.value.__notes__[-1].startswith("retry-with-memory: The nanny killed the worker")
    assert [each is None for each in given] == [True, False]
    assert given[1] >= 450 * 2**20
