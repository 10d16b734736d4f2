"""A scheduler that is known by its address."""

from __future__ import annotations

import gc

import distributed
import pytest

from workerdiag import load_rulebook
from workerdiag.cli.explain import SchedulerSource
from workerdiag.model.evidence import Inspected
from workerdiag.model.rules import scheduler_topics
from workerdiag.sources.cluster.queries import connect

ADDRESS = "tcp://10.0.0.1:8786"


class FakeClient:
    """A client that notes whether it was closed."""

    closed = False

    def __init__(self, *_args, **_settings):
        FakeClient.closed = False

    def close(self, **_settings):
        FakeClient.closed = True


class FakeDiscovery:
    """A discovery that finds one place, and notes what it was asked for."""

    topics = ()
    failure = None

    def __init__(self, _client, _facts, _deadline, *, topics):
        FakeDiscovery.topics = topics

    def collect(self):
        if FakeDiscovery.failure:
            raise FakeDiscovery.failure
        return [Inspected(place="scheduler events")]


@pytest.fixture(autouse=True)
def fakes(monkeypatch):
    """No network."""
    monkeypatch.setattr(distributed, "Client", FakeClient)
    monkeypatch.setattr("workerdiag.sources.discovery.Discovery", FakeDiscovery)
    monkeypatch.setattr(FakeDiscovery, "failure", None)


def test_the_command_line_asks_for_the_events_that_rules_use():
    """As explain() does: a rule on an event of a topic of its own can show."""
    book = load_rulebook()
    assert list(SchedulerSource(ADDRESS, book).collect(budget_s=30)) == [Inspected(place="scheduler events")]
    assert FakeDiscovery.topics == scheduler_topics(book)


def test_the_client_is_closed_whatever_happens(monkeypatch):
    """No connection is left behind on a scheduler that has enough to do."""
    monkeypatch.setattr(FakeDiscovery, "failure", ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        list(SchedulerSource(ADDRESS, load_rulebook()).collect(budget_s=30))
    assert FakeClient.closed


def test_an_address_that_nobody_answers_is_a_gap(monkeypatch):
    """With the address and what to check."""

    class Refused(FakeClient):
        status = "newly-created"

        def __init__(self, *_args, **_settings):
            made.append(self)
            raise OSError("connection refused")

    made = []
    monkeypatch.setattr(distributed, "Client", Refused)
    (gap,) = SchedulerSource(ADDRESS, load_rulebook()).collect(budget_s=30)
    assert (gap.source, gap.reason) == ("scheduler", "unreachable")
    assert ADDRESS in gap.detail
    assert gap.remedy
    assert [each.status for each in made] == ["closed"]


@pytest.mark.parametrize("address", ["nonsense", "tcp://nonsense", "foo://10.0.0.1:8786"])
def test_a_client_that_could_not_be_made_holds_nothing_up(monkeypatch, address):
    """Dask's own waits twice its time-out when it is thrown away, as its loop never ran."""
    monkeypatch.undo()
    waited = []
    sync = distributed.client.sync

    def noting_sync(loop, function, *args, **settings):
        if function.__name__ == "_close":
            return waited.append(settings)
        return sync(loop, function, *args, **settings)

    monkeypatch.setattr(distributed.client, "sync", noting_sync)
    with pytest.raises(Exception, match=r"."):
        connect(address, timeout_s=600)
    gc.collect()
    assert not waited
