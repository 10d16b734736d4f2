"""What the watcher keeps of its cases."""

from __future__ import annotations

from support.alerts import incident, watched
from support.watch_values import NOW, FakeClock, watched_death
from workerdiag.watch.case import WatchSettings
from workerdiag.watch.casebook import Casebook
from workerdiag.watch.store import KEEP_S, Store


def test_what_is_over_is_forgotten_as_time_passes():
    """The state of a watcher that runs for years stays small."""
    clock = FakeClock()
    store = Store(clock=clock)
    book = Casebook(store=store, settings=WatchSettings(), sink_names=list, wake=lambda: None, cluster="prod")
    store.add_deaths("prod", [watched_death()])
    store.assign([watched_death().id], None)
    for days in (0, KEEP_S - 1, 86400):
        assert store.add_deaths("prod", [watched_death()]) == 0
        clock.now += days
        book.pass_time(clock.now, seen_at=clock.now, problem=None)
    assert store.add_deaths("prod", [watched_death()]) == 1
    store.close()


def test_a_trouble_of_which_the_state_knows_nothing_has_new_ids():
    """A receiver that drops what it has, by the id, would else never hear of it: after 30 days, or a lost state.

    Watchers that saw the same deaths agree.
    """

    def told(when):
        store = Store(clock=FakeClock())
        book = Casebook(
            store=store, settings=WatchSettings(), sink_names=lambda: ["s"], wake=lambda: None, cluster="prod"
        )
        deaths = [watched(1, when=when), watched(2, when=when + 1)]
        store.add_deaths("prod", deaths)
        book.conclude([incident(*deaths)], deaths, when + 10)
        (delivery,) = store.outbox.stored()
        store.close()
        return delivery.id

    assert told(NOW) == told(NOW) != told(NOW + KEEP_S)
