"""A bad minute and a bad hour: a watcher as programs use it, in simulated time."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest
from attrs import evolve

from support.simulated_feed import NOON, SimulatedFeed
from support.watched_deaths import EXIT, OOM, SEGFAULT, crashed, killed_by_nanny, left_by_code
from workerdiag.watch.sinks.base import as_sink
from workerdiag.watch.store import Store
from workerdiag.watch.watcher import Watcher

PATIENCE_S = 300.0
WAYS = (killed_by_nanny, crashed, left_by_code)


def notices_of(feed):
    """What a watcher says of a simulated cluster, to a function."""
    is_over, told = threading.Event(), []
    feed.at_end = is_over.set
    watcher = Watcher(
        feed=feed,
        cluster=feed.cluster,
        sinks=[as_sink(told.append)],
        store=Store(None, clock=feed.now),
        clock=feed.now,
        pause=feed.pause,
    )
    with watcher.start():
        assert is_over.wait(PATIENCE_S)
    return told


@pytest.mark.slow
@pytest.mark.parametrize("first_s", [0.0, 60.0], ids=["all at once", "one of each a minute before"])
def test_a_thousand_deaths_of_three_causes_are_three_notices(first_s):
    """A thousand deaths of three causes in a minute: three notices and at most three updates, in seconds of work."""
    deaths = [
        evolve(WAYS[n % 3](n), when=NOON + 100 + (first_s if n > 3 else 0.0) + n // 17) for n in range(1, 1001)
    ]
    begin = time.process_time()
    notices = notices_of(SimulatedFeed(deaths, until=2400.0))
    spent_s = time.process_time() - begin
    counts = Counter(each.reason for each in notices)
    assert (counts["new"], counts["resolved"]) == (3, 3)
    assert len(notices) - 6 == counts["escalating"] == (3 if first_s else 0)
    assert {each.cause for each in notices} == {OOM, SEGFAULT, EXIT}
    assert sum(each.death_count for each in notices if each.reason == "resolved") == 1000
    assert spent_s < 60, "it takes about four seconds"


def test_an_hour_without_a_scheduler_is_told_once_and_its_end_once():
    """Nothing is resolved meanwhile; the case from before is resolved once, after a quarter of an hour that was seen."""
    feed = SimulatedFeed([evolve(crashed(1), when=NOON + 100)], outages=[(600.0, 4200.0)], until=9000.0)
    told = [(each.reason, each.key == "blind", each.at - NOON) for each in notices_of(feed)]
    assert [each[:2] for each in told] == [
        ("new", False),
        ("blind", True),
        ("resolved", True),
        ("resolved", False),
    ]
    blind_s, sees_s, resolved_s = (second for *_, second in told[1:])
    assert 600 < blind_s < 800
    assert 4200 <= sees_s < 4260 < resolved_s < 5100
