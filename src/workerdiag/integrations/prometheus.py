"""Prometheus: ``workerdiag_deaths_total`` among the metrics that Dask's scheduler serves at ``/metrics``.

Labels are cause, family and blame: their values are those of the rules, so their number is bounded. It needs
prometheus-client, as Dask's own metrics do; without it nothing is exported.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, Metric

#: Returns deaths by the values of the labels, which only grow.
Counts = Callable[[], Mapping[tuple[str, ...], int]]


class DeathCollector:
    """What the registry of this process asks, for all schedulers in it: they are added up, as it takes one only."""

    def __init__(self) -> None:
        #: The counts of each scheduler, and what has its known causes learned.
        self.schedulers: list[tuple[Counts, Callable[[], object]]] = []

    def describe(self) -> list[Metric]:
        """The metric without values, so that registering it asks for none."""
        return [_family()]

    def collect(self) -> Iterator[Metric]:
        """The metric. The first to ask has the known causes learned, so that each begins at zero."""
        family, total = _family(), Counter[tuple[str, ...]]()
        for counts, learn in list(self.schedulers):
            with contextlib.suppress(RuntimeError):  # its event loop was closed without a word
                learn()
            total.update(dict(counts()))
        for labels, count in sorted(total.items()):
            family.add_metric(labels, count)
        yield family


_COLLECTOR = DeathCollector()


def export_counts(counts: Counts, learn: Callable[[], object]) -> Callable[[], object] | None:
    """Export counts, for which *learn* is called in any thread; returns what ends it, None if it is impossible."""
    try:
        from prometheus_client import REGISTRY
    except ImportError:
        return None
    with contextlib.suppress(ValueError):  # it is registered already
        REGISTRY.register(_COLLECTOR)
    scheduler = (counts, learn)
    _COLLECTOR.schedulers.append(scheduler)
    return lambda: _COLLECTOR.schedulers.remove(scheduler)


def _family() -> CounterMetricFamily:
    from prometheus_client.core import CounterMetricFamily

    what = "Workers that died unexpectedly, by likeliest cause at the time of the diagnosis"
    return CounterMetricFamily("workerdiag_deaths", what, labels=("cause", "family", "blame"))
