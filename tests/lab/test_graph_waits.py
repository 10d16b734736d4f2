"""A graph that waits for its own program while the scheduler, in the same process, reads it."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import suppress

import pytest
from distributed import Client, LocalCluster
from distributed.client import FutureCancelledError

import workerdiag

dd = pytest.importorskip("dask.dataframe", exc_type=ImportError)
pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(sys.version_info >= (3, 12), reason="functools.cached_property holds no lock any more"),
]


def joined(**repartition):
    """A frame that is cut anew and joined with itself."""
    import pandas as pd

    frame = pd.DataFrame({"key": range(4000), "value": range(4000)})
    table = dd.from_pandas(frame, npartitions=8).repartition(**repartition)
    return table.merge(table, on="key")


def computed(work):
    """Compute it; the end of the cluster cancels it."""
    with suppress(FutureCancelledError):
        work.compute()


def test_a_repartition_by_size_that_waits_for_itself_is_told_and_a_number_of_partitions_helps():
    """The answer names the call that waits; what it advises comes to an end."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=True) as client,
    ):
        work = joined(partition_size="10kB")
        threading.Thread(target=computed, args=(work,), daemon=True).start()
        until_s = time.monotonic() + 60
        while not (diagnosis := workerdiag.explain(client=client)).top and time.monotonic() < until_s:
            time.sleep(0.5)
        assert diagnosis.top.id == "standstill.unknown-tasks"
        while diagnosis.top.probability < 0.9 and time.monotonic() < until_s:
            time.sleep(0.5)
            diagnosis = workerdiag.explain(client=client)
        assert diagnosis.top.probability > 0.9
        assert "npartitions=" in diagnosis.top.mitigations[0].example

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=True),
    ):
        assert len(joined(npartitions=100).compute()) == 4000
