"""The evidence of a case, kept in a file while the cluster may be gone."""

from __future__ import annotations

import pytest
from attrs import evolve

import workerdiag
from support.alerts import CLUSTER, START, incident, watched
from workerdiag.errors import BundleError
from workerdiag.incidents import judge
from workerdiag.model.evidence import ProcessExit
from workerdiag.watch.case import WatchSettings
from workerdiag.watch.casebook import Casebook, made_folder
from workerdiag.watch.store import Store


@pytest.fixture
def folder(tmp_path):
    return made_folder(tmp_path / "deaths" / "prod")


@pytest.fixture
def book(folder):
    """A casebook that keeps evidence."""
    store = Store()
    settings = WatchSettings(bundle_folder=folder)
    yield Casebook(store=store, settings=settings, sink_names=lambda: ["bot"], wake=lambda: None, cluster=CLUSTER)
    store.close()


def crashed(number):
    """A worker that a segmentation fault ended."""
    death = watched(number)
    return watched(number, evidence=(ProcessExit(identity=death.identity, signal=11, when=death.when),))


def test_the_evidence_of_a_case_is_kept_and_its_notice_says_where(book):
    """It leads to the same cause when somebody looks at it in the morning."""
    deaths = [crashed(1)]
    book.conclude(judge(deaths, timeout_s=60), deaths, START)
    (delivery,) = book.store.outbox.stored()
    (case,) = book.cases()
    assert delivery.notice.links["bundle"] == case.bundle
    again = workerdiag.explain(logs=case.bundle)
    assert (again.top.id, case.cause) == ("signal.segfault", "signal.segfault")


def test_an_open_case_has_one_bundle(book, folder):
    """Further deaths of it are more of the same."""
    for number in (1, 2, 3):
        book.conclude([incident(watched(number))], [watched(number)], START + number)
    assert len(list(folder.iterdir())) == 1


def test_a_folder_that_cannot_be_written_costs_no_notice(book, folder):
    """The notice goes out without evidence, and the failure can be told."""
    folder.rmdir()
    folder.write_text("a file in its place")
    book.conclude([incident(watched())], [watched()], START)
    (delivery,) = book.store.outbox.stored()
    assert "bundle" not in delivery.notice.links
    (problem,) = book.bundle_problems
    assert isinstance(problem, BundleError)


def test_a_death_at_no_time_costs_its_bundle_alone(book):
    """A scheduler's clock may say anything; the failure can be told."""
    book.conclude([evolve(incident(watched()), when=-1e15)], [watched()], START)
    (delivery,) = book.store.outbox.stored()
    assert "bundle" not in delivery.notice.links
    assert len(book.bundle_problems) == 1


def test_a_folder_that_cannot_be_made_is_an_error_at_once(tmp_path):
    """Before anything is watched, with what to do."""
    (tmp_path / "file").write_text("")
    with pytest.raises(BundleError, match="name a folder that can be written"):
        workerdiag.watch("tcp://127.0.0.1:1", bundles=tmp_path / "file")
