"""Counts of deaths in the registry that Dask's ``/metrics`` shows."""

from __future__ import annotations

import sys

import pytest

from workerdiag.integrations.prometheus import export_counts

prometheus_client = pytest.importorskip("prometheus_client")


def counts(**by_cause):
    """What asks for these counts."""
    return lambda: {(cause, "family", "task"): count for cause, count in by_cause.items()}


@pytest.fixture
def export():
    """Exports until the test ends."""
    undo = []
    yield lambda ask, learn=lambda: None: undo.append(export_counts(ask, learn))
    for each in undo:
        each()


def metric(cause):
    """The value in the text that Prometheus scrapes, or None."""
    labels = {"cause": cause, "family": "family", "blame": "task"}
    return prometheus_client.REGISTRY.get_sample_value("workerdiag_deaths_total", labels)


def test_deaths_are_a_counter_with_three_labels(export):
    """The text has the name and the labels that docs/dashboard.md promises."""
    export(counts(crash=2, kill=0))
    assert (metric("crash"), metric("kill")) == (2.0, 0.0)
    text = prometheus_client.generate_latest().decode()
    assert "# TYPE workerdiag_deaths_total counter" in text
    assert 'workerdiag_deaths_total{blame="task",cause="crash",family="family"} 2.0' in text


def test_schedulers_of_one_process_are_added_up(export):
    """Two clusters in one process share a registry; neither hides the other."""
    export(counts(crash=2))
    export(counts(crash=3))
    assert metric("crash") == 5.0


def test_a_scheduler_that_is_gone_counts_no_more():
    """What ends the export takes the counts away."""
    undo = export_counts(counts(crash=2), lambda: None)
    undo()
    assert metric("crash") is None


def test_who_asks_has_the_causes_learned(export):
    """Zeros are looked up when somebody scrapes, and not on clusters that nobody scrapes."""
    learned = []
    export(counts(), lambda: learned.append(1))
    assert learned == []
    metric("crash")
    assert learned


def test_a_scheduler_that_vanished_breaks_no_metrics(export):
    """The event loop of one scheduler is closed; the metrics of another in that process are served all the same."""

    def closed():
        raise RuntimeError("Event loop is closed")

    export(counts(crash=1), closed)
    assert metric("crash") == 1.0


def test_without_prometheus_client_nothing_is_exported(monkeypatch):
    """The extra is missing on most clusters, which is no error."""
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    assert export_counts(counts(), lambda: None) is None
