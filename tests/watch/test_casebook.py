"""
What the watcher keeps of its cases.
"""

from __future__ import annotations

from support.watch_values import FakeClock, watched_death
from workerdiag.watch.casebook import Casebook
from workerdiag.watch.settings import WatchSettings
from workerdiag.watch.store import KEEP_S, Store


def test_what_is_over_is_forgotten_as_time_passes():
    """
    The state of a watcher that runs for years stays small.
    """
    clock = FakeClock()
    store = Store.open(clock=clock)
    book = Casebook(store=store, settings=WatchSettings(), sink_names=list, wake=lambda: None, cluster="prod")
    store.add_deaths("prod", [watched_death()])
    store.assign([watched_death().id], None)
    for days in (0, KEEP_S - 1, 86400):
        assert store.add_deaths("prod", [watched_death()]) == 0
        clock.now += days
        book.pass_time(clock.now, seen_at=clock.now, problem=None)
    assert store.add_deaths("prod", [watched_death()]) == 1
    store.close()
