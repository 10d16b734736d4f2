"""The diagnosis of an exception that Airflow or Prefect hands us, mostly when the cluster is gone."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace

import dask
import pytest
from attrs import evolve
from distributed import Client
from distributed.scheduler import KilledWorker

import workerdiag
from support.diagnoses import diagnosis_with
from workerdiag.api.annotate import add_note, remember, remembered
from workerdiag.integrations.diagnose import diagnose
from workerdiag.model.diagnosis import RetryPolicy

INNOCENT = diagnosis_with(RetryPolicy(action="retry-elsewhere", reason="A spot machine was taken back"))


def linked_by_cause(exc):
    wrapper = RuntimeError("step failed")
    wrapper.__cause__ = exc
    return wrapper


def linked_by_context(exc):
    wrapper = RuntimeError("clean-up failed")
    wrapper.__context__ = exc
    return wrapper


def linked_by_group(exc):
    return ExceptionGroup("steps failed", [ValueError(), exc])


@pytest.mark.parametrize("link", [lambda exc: exc, linked_by_cause, linked_by_context, linked_by_group])
def test_what_was_found_while_the_cluster_lived_is_the_answer(killed, link):
    """Whatever the program wrapped around it: nobody is asked again."""
    add_note(killed, INNOCENT)
    assert diagnose(link(killed)) == INNOCENT


def test_what_was_not_explained_in_time_is_asked_again_while_the_cluster_lives(monkeypatch, killed):
    """Two seconds in an exception's path may have been too few; without a cluster they are all there is."""
    unknown = evolve(INNOCENT, outcome="unknown")
    remember(killed, unknown)
    assert diagnose(killed, "tcp://127.0.0.1:1", timeout_s=2) == unknown
    monkeypatch.setattr("workerdiag.integrations.diagnose.explain", lambda *_, **__: INNOCENT)
    with Client(n_workers=0, processes=False, dashboard_address=":0"):
        assert diagnose(killed) == INNOCENT


@pytest.mark.slow
def test_a_remembered_diagnosis_does_not_keep_its_exception():
    """Frames of a failed computation may hold gigabytes."""
    exc = KilledWorker("load-1", SimpleNamespace(address="tcp://127.0.0.1:1"), 3)
    remember(exc, INNOCENT)
    assert remembered(exc) == INNOCENT
    alive = weakref.ref(exc)
    del exc
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("exc", [ValueError("no"), KeyboardInterrupt(), linked_by_cause(TypeError())])
def test_what_dask_did_not_raise_is_none_of_our_business(exc):
    """Errors of other programs cost no time."""
    assert diagnose(exc) is None


def test_a_built_in_exception_is_annotated_and_remembered():
    """As any other."""
    exc = ValueError("no")
    add_note(exc, INNOCENT)
    assert exc.__notes__
    assert remembered(exc).outcome == INNOCENT.outcome


def test_links_in_a_circle_come_to_an_end(killed):
    """An exception may be the context of its own cause."""
    wrapper = linked_by_cause(killed)
    killed.__context__ = wrapper
    assert diagnose(wrapper, "tcp://127.0.0.1:1", timeout_s=2) is not None


def test_without_a_cluster_the_exception_is_all_there_is(killed):
    """A scheduler that is gone costs some of the time, and no error."""
    with dask.config.set({"scheduler-address": "tcp://127.0.0.1:1"}):
        diagnosis = diagnose(killed, timeout_s=2)
    assert diagnosis.outcome in ("explained", "unknown")
    assert diagnosis.decision.policy.action == "ask"


@pytest.mark.parametrize("given", ["address", "setting", "client"])
def test_a_living_cluster_is_queried(monkeypatch, killed, given):
    """By its address, by Dask's own setting, or through the client that is open."""
    asked = []

    def explain(exc, client, *, timeout):
        asked.append(client.scheduler.address)
        return INNOCENT

    monkeypatch.setattr("workerdiag.integrations.diagnose.explain", explain)
    with Client(n_workers=0, processes=False, dashboard_address=":0", set_as_default=given == "client") as client:
        address = client.scheduler.address
        with dask.config.set({"scheduler-address": address if given == "setting" else None}):
            assert diagnose(killed, address if given == "address" else None) == INNOCENT
        assert client.status == "running"
    assert asked == [address]


def test_explaining_finds_the_reason_before_the_cluster_goes(monkeypatch, killed):
    """A block around the computation is all that a task of Airflow or a flow of Prefect needs."""
    monkeypatch.setattr("workerdiag.api.annotate.explain", lambda *_, **__: INNOCENT)
    with pytest.raises(KilledWorker), workerdiag.explaining(None):
        raise killed
    assert diagnose(killed) == INNOCENT
