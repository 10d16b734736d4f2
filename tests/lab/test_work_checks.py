"""Work is checked against a real cluster before it runs; what is called too large then dies of it."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import warnings
from contextlib import suppress

import dask
import pytest
from distributed import Client, KilledWorker, LocalCluster

import workerdiag

from .processes import PATIENCE_S

np = pytest.importorskip("numpy", exc_type=ImportError)
pd = pytest.importorskip("pandas", exc_type=ImportError)
dd = pytest.importorskip("dask.dataframe", exc_type=ImportError)
da = pytest.importorskip("dask.array", exc_type=ImportError)
pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def client():
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


class NotSentError(Exception):
    """In the place of sending a graph."""


def too_large(shift):
    """An array whose pieces are too large; each *shift* makes another one."""
    return (da.random.random((12_000, 12_000), chunks=(12_000, 3_000)) + shift).std()


@pytest.fixture
def sent_nowhere(monkeypatch):
    """Clients that send no graph."""

    def refuse(*_, **__):
        raise NotSentError

    monkeypatch.setattr(Client, "_graph_to_futures", refuse)


@pytest.fixture
def told(client, sent_nowhere):
    """Call something, and return the warnings of a client that checks its work."""
    workerdiag.auto(client, check=True)

    def call(run):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with suppress(NotSentError):
                run()
            until_s = time.monotonic() + PATIENCE_S
            while any(each.name == "workerdiag-work" for each in threading.enumerate()):
                assert time.monotonic() < until_s
                time.sleep(0.01)
        return caught

    yield call
    workerdiag.auto(client, on=False)


@pytest.mark.parametrize(
    "compute",
    [
        lambda work, client: client.compute(work),
        lambda work, client: client.persist(work),
        lambda work, client: client.compute([work, work + 1]),
        lambda work, _: work.compute(),
        lambda work, _: work.persist(),
        lambda work, _: dask.compute({"a": work}),
    ],
    ids=["client.compute", "client.persist", "several", "compute", "persist", "dask.compute"],
)
def test_a_client_says_that_work_will_not_fit(client, told, compute):
    """Whichever way it is computed: the sum, the first change, and the line of the caller; the work goes on."""
    work = too_large(1)
    (warning,) = told(lambda: compute(work, client))
    first, second = str(warning.message).splitlines()
    assert first.startswith("workerdiag: Will not fit: add: pieces of 12000 x 3000 float64: ")
    assert second.startswith("Make the pieces smaller: ")
    assert (warning.category, warning.filename) == (RuntimeWarning, __file__)


def test_it_is_said_once(client, told):
    """Of one collection, however often it is computed; another one has its own."""
    work = too_large(2)
    assert [len(told(lambda each=each: client.compute(each))) for each in (work, work, work + 1)] == [1, 0, 1]


def test_frames_are_seen_before_they_become_a_graph(told):
    """An expression that is optimized has lost the names."""
    frame = pd.DataFrame({"k": 1, "v": np.arange(8_000_000.0)})
    grouped = dd.from_pandas(frame, npartitions=10).groupby("k")
    (warning,) = told(lambda: grouped.apply(lambda rows: rows.v.sum(), meta=("v", "f8")).compute())
    assert "one key of k has 100% of the rows" in str(warning.message)
    assert told(lambda: dd.from_pandas(frame, npartitions=10).v.sum().compute()) == []


def test_work_that_fits_is_sent_without_a_word(client, told):
    """Also such as has no size, and too many threads alone are no reason to speak."""
    x = da.ones((4000, 4000), chunks=1000)
    for work in ((x + x.T).sum(), dask.delayed(sum)([1, 2]), da.ones((6000, 6000), chunks=(6000, 750)) + 1):
        assert told(lambda each=work: client.compute(each)) == []


def test_many_tasks_are_not_held_up(client, told):
    """The check of 10,000 tasks is bounded in time."""
    work = da.random.random((1_200_000, 12_000), chunks=(12_000, 120)) + 1
    began_s = time.monotonic()
    with suppress(NotSentError):
        client.compute(work)
    assert time.monotonic() - began_s < 2
    assert told(lambda: None) == []


def test_it_is_off_unless_it_is_set(client, sent_nowhere, recwarn):
    """By the setting, or the argument."""
    workerdiag.auto(client)
    assert "_graph_to_futures" not in vars(client)
    workerdiag.auto(client, check=True)
    assert "_graph_to_futures" in vars(client)
    workerdiag.auto(client, check=False)
    assert "_graph_to_futures" not in vars(client)
    with dask.config.set({"workerdiag.auto.check": "warn"}):
        workerdiag.auto(client)
    assert "_graph_to_futures" in vars(client)
    workerdiag.auto(client, on=False)
    assert "_graph_to_futures" not in vars(client)


def test_an_asynchronous_client_goes_on_at_once(client, sent_nowhere, recwarn):
    """Its loop does not wait for the check, and the warning comes."""

    async def ask():
        async with Client(client.scheduler.address, asynchronous=True) as other:
            workerdiag.auto(other, check=True)
            with suppress(NotSentError):
                other.compute(too_large(5))
            async with asyncio.timeout(PATIENCE_S):
                while not any("Will not fit" in str(each.message) for each in recwarn):  # noqa: ASYNC110  a thread's
                    await asyncio.sleep(0.01)

    asyncio.run(ask())


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
