"""
A bad minute: the watcher's rounds, with real evidence, in simulated time.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest
from attrs import evolve

from support.simulated_feed import NOON, SimulatedFeed
from support.watched_deaths import EXIT, OOM, SEGFAULT, crashed, killed_by_nanny, left_by_code
from workerdiag.incidents.judge import judge, judge_standstill
from workerdiag.watch.casebook import Casebook
from workerdiag.watch.loop import WatchLoop
from workerdiag.watch.progress import Progress
from workerdiag.watch.settings import WatchSettings
from workerdiag.watch.store import Store

WAYS = (killed_by_nanny, crashed, left_by_code)


def notices_of(deaths):
    """
    What a watcher says of these deaths, and of the half hour after.
    """
    feed = SimulatedFeed(deaths, until=2400.0)
    store = Store.open(None, clock=feed.now)
    loop = WatchLoop(
        feed=feed,
        book=Casebook(
            store=store,
            settings=WatchSettings(),
            sink_names=lambda: ["a sink"],
            wake=lambda: None,
            cluster=feed.cluster,
        ),
        judge=judge,
        judge_standstill=judge_standstill,
        progress=Progress(),
        clock=feed.now,
        pause=feed.pause,
    )
    feed.at_end = loop.stop
    asyncio.run(loop.run())
    return [each.notice for each in store.deliveries()]


@pytest.mark.parametrize("first_s", [0.0, 60.0], ids=["all at once", "one of each a minute before"])
def test_a_thousand_deaths_of_three_causes_are_three_notices(first_s):
    """
    A thousand deaths of three causes in a minute: three notices and at most three updates, in seconds of work.
    """
    deaths = [
        evolve(WAYS[n % 3](n), when=NOON + 100 + (first_s if n > 3 else 0.0) + n // 17)
        for n in range(1, 1001)
    ]
    begin = time.process_time()
    notices = notices_of(deaths)
    spent_s = time.process_time() - begin
    counts = Counter(each.reason for each in notices)
    assert (counts["new"], counts["resolved"]) == (3, 3)
    assert len(notices) - 6 == counts["escalating"] == (3 if first_s else 0)
    assert {each.cause for each in notices} == {OOM, SEGFAULT, EXIT}
    assert sum(each.death_count for each in notices if each.reason == "resolved") == 1000
    assert spent_s < 60, "it takes about four seconds"
