"""Prefect shows in an artifact why Dask's workers died. Run by `nox -s integrations`."""

from __future__ import annotations

import asyncio
import ctypes
import time
from types import SimpleNamespace

import dask
import pytest
from distributed import Client
from distributed.scheduler import KilledWorker

import workerdiag
from support.diagnoses import diagnosis_with
from workerdiag.api.annotate import remember
from workerdiag.model.diagnosis import RetryPolicy

pytest.importorskip("prefect")

from prefect import flow
from prefect.client.orchestration import get_client
from prefect.testing.utilities import prefect_test_harness

from workerdiag.integrations.prefect import ARTIFACT_KEY, on_crashed, on_failure

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module", autouse=True)
def _server(tmp_path_factory):
    """A server of Prefect for this module, with its files in a folder of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PREFECT_HOME", str(tmp_path_factory.mktemp("prefect")))
        patch.setenv("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
        with prefect_test_harness(server_startup_timeout=200):
            yield


def artifacts(state=None):
    """The artifacts of ours that the flow run of *state* has; without it, all."""
    with get_client(sync_client=True) as client:
        every = [each for each in client.read_artifacts() if each.key == ARTIFACT_KEY]
    if state is None:
        return every
    return [each for each in every if each.flow_run_id == state.state_details.flow_run_id]


def killed():
    """What Dask raised, explained while its cluster was there."""
    exc = KilledWorker("load-1", SimpleNamespace(address="tcp://127.0.0.1:1"), 3)
    remember(exc, diagnosis_with(RetryPolicy(action="retry", reason="a spot machine was taken back")))
    return exc


def status(dask_worker):
    return dask_worker.status.name


@flow(on_failure=[on_failure], on_crashed=[on_crashed])
def real_death():
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        Client(n_workers=1, threads_per_worker=1, dashboard_address=":0", memory_limit=0) as client,
        workerdiag.explaining(client, timeout=60),
    ):
        # A nanny learns late that its worker is up; if that dies before, it gives up and its log says less.
        while set(client.run(status, nanny=True).values()) != {"running"}:
            time.sleep(0.1)
        client.submit(ctypes.string_at, 0).result()  # workers cannot import this module


@flow(on_failure=[on_failure])
def fails():
    raise killed()


@flow(on_failure=[on_failure])
async def fails_asynchronously():
    raise killed()


@flow(on_failure=[on_failure])
def fails_otherwise():
    raise ValueError("no")


class Torn(BaseException):
    """What is no `Exception` crashes a flow."""


@flow(on_failure=[on_failure], on_crashed=[on_crashed])
def crashes():
    raise Torn from killed()


def test_a_real_death_is_explained_when_its_cluster_is_gone():
    """The artifact of the flow run names the cause."""
    (artifact,) = artifacts(real_death(return_state=True))
    assert "Segmentation fault" in artifact.data
    assert "Segmentation fault" in artifact.description


@pytest.mark.parametrize("run", [fails, lambda **options: asyncio.run(fails_asynchronously(**options))])
def test_a_failed_flow_run_has_one_artifact(run):
    """Be the flow synchronous or not."""
    assert len(artifacts(run(return_state=True))) == 1


def test_other_errors_have_none():
    """What did not come from Dask is no business of ours."""
    assert artifacts(fails_otherwise(return_state=True)) == []


def test_a_crashed_flow_run_has_one_too():
    """Where an exception says why it crashed."""
    before = artifacts()
    with pytest.raises(Torn):
        crashes()
    assert len(artifacts()) == len(before) + 1
