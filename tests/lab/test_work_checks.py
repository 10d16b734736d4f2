"""Work is checked against a real cluster before it runs; what is called too large then dies of it."""

from __future__ import annotations

import asyncio
import sys

import pytest
from distributed import Client, KilledWorker, LocalCluster

import workerdiag

da = pytest.importorskip("dask.array", exc_type=ImportError)
pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def client():
    import dask

    options = {"n_workers": 2, "threads_per_worker": 2, "memory_limit": "400MiB", "dashboard_address": None}
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        LocalCluster(**options) as cluster,
        Client(cluster) as client,
    ):
        yield client


def test_what_fits_succeeds(client):
    """Nothing is computed by the check."""
    x = da.ones((4000, 4000), chunks=1000)
    work = (x + x.T).sum()
    found = workerdiag.check(work, client)
    assert (found.grade, found.cures, found.missing) == ("fits", (), ())
    assert not client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))
    assert work.compute() == 32_000_000


def test_a_module_that_only_this_process_has_is_named(client, tmp_path, monkeypatch):
    """Workers would fail to read the tasks."""
    text = "def double(block):\n    return 2 * block\n\ntriple = lambda block: 3 * block\n"
    (tmp_path / "only_here.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    import only_here

    x = da.ones((10, 10), chunks=5)
    lacking = x.map_blocks(only_here.double, dtype=float)
    travelling = x.map_blocks(only_here.triple, dtype=float).sum()
    found, other = workerdiag.check(lacking, client), workerdiag.check(travelling, client)
    sys.modules.pop("only_here")
    assert found.missing[0].startswith("2 of 2 workers lack only_here")
    assert other.missing == ()  # a lambda travels whole
    assert travelling.compute() == 300


def test_an_asynchronous_client_is_awaited(client):
    """As in Dask."""

    async def ask():
        async with Client(client.scheduler.address, asynchronous=True) as other:
            return await workerdiag.check(da.ones((4000, 4000), chunks=1000).sum(), other)

    assert asyncio.run(ask()).grade == "fits"


def test_what_is_no_collection_is_refused(client):
    """With what would be one."""
    with pytest.raises(TypeError, match="such as an array or a dataframe, got list"):
        workerdiag.check([1, 2], client)


def of_large_chunks(client):
    """Apart from asserts, as pytest makes them ask for all variables."""
    x = da.random.random((12_000, 12_000), chunks=(12_000, 3_000))
    work = (x + 1).std()
    return work, workerdiag.check(work, client)


def test_what_will_not_fit_dies(client):
    """And the first change has the caller's own line."""
    work, found = of_large_chunks(client)
    assert found.grade == "will-not-fit"
    assert found.cures[0].change.startswith("x = da.random.random((12_000, 12_000), chunks=")
    with pytest.raises(KilledWorker):
        work.compute()
