"""Prometheus: ``workerdiag_deaths_total`` among the metrics that Dask's scheduler serves at ``/metrics``.

Labels are cause, family and blame: their values are those of the rules, so their number is bounded. It needs
prometheus-client, as Dask's own metrics do; without it nothing is exported.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prometheus_client.core import CounterMetricFamily, Metric

LABELS = ("cause", "family", "blame")


class DeathCounts(Protocol):
    """Deaths by the values of the labels, which only grow."""

    @property
    def knows_causes(self) -> bool:
        """Whether the counts have a zero for each known cause."""

    def counts(self) -> Mapping[tuple[str, str, str], int]:
        """The counts of now."""


class DeathCollector:
    """What the registry of this process asks, for all schedulers in it: they are added up, as it takes one only."""

    def __init__(self) -> None:
        self._learners: dict[int, tuple[DeathCounts, Callable[[], object]]] = {}

    def add(self, counts: DeathCounts, learn: Callable[[], object]) -> None:
        """Count those of one more scheduler."""
        self._learners[id(counts)] = (counts, learn)

    def remove(self, counts: DeathCounts) -> None:
        """Count those of a scheduler no more."""
        self._learners.pop(id(counts), None)

    def describe(self) -> list[Metric]:
        """The metric without values, so that registering it asks for none."""
        return [_family()]

    def collect(self) -> Iterator[Metric]:
        """The metric. The first to ask has the known causes learned, so that each begins at zero."""
        family, total = _family(), Counter[tuple[str, str, str]]()
        for counts, learn in list(self._learners.values()):
            if not counts.knows_causes:
                with contextlib.suppress(RuntimeError):  # its event loop was closed without a word
                    learn()
            total.update(dict(counts.counts()))
        for labels, count in sorted(total.items()):
            family.add_metric(labels, count)
        yield family


_COLLECTOR = DeathCollector()


def export_counts(counts: DeathCounts, learn: Callable[[], object]) -> Callable[[], object] | None:
    """Export the counts of one scheduler; returns what ends that, or None without prometheus-client.

    *learn* is called, from any thread, when somebody wants zeros that are not known yet.
    """
    try:
        from prometheus_client import REGISTRY
    except ImportError:
        return None
    with contextlib.suppress(ValueError):  # it is registered already
        REGISTRY.register(_COLLECTOR)
    _COLLECTOR.add(counts, learn)
    return lambda: _COLLECTOR.remove(counts)


def _family() -> CounterMetricFamily:
    from prometheus_client.core import CounterMetricFamily

    what = "Workers that died unexpectedly, by likeliest cause at the time of the diagnosis"
    return CounterMetricFamily("workerdiag_deaths", what, labels=LABELS)
