"""The watcher's rounds, on a simulated cluster and in simulated time."""

from __future__ import annotations

import asyncio
import math
from collections import Counter

import pytest
from attrs import evolve

from support.alerts import incident, sure_of
from support.simulated_feed import NOON, SimulatedFeed, death
from workerdiag.errors import StateFileError
from workerdiag.model.evidence import Event
from workerdiag.watch.case import WatchSettings
from workerdiag.watch.casebook import Casebook
from workerdiag.watch.feed.events import Cursor
from workerdiag.watch.loop import WatcherProgress, WatchLoop
from workerdiag.watch.store import Store

SINK = "a sink"


def judge_by_signal(deaths, *, timeout_s):
    """One incident for each signal."""
    unexpected = [each for each in deaths if not each.is_expected]
    signals = sorted({each.evidence[0].signal for each in unexpected})
    return [
        incident(
            *(each for each in unexpected if each.evidence[0].signal == signal),
            diagnosis=sure_of(f"signal.n{signal}"),
        )
        for signal in signals
    ]


def judge_nothing(_evidence, *, when, timeout_s):
    """Work goes on."""


class Watched:
    """The rounds on a simulated cluster, run to the end of its time."""

    def __init__(self, feed, *, store=None, settings=None, judge=judge_by_signal, standstill=None, **book):
        self.feed = feed
        self.store = store or Store(None, clock=feed.now)
        self.progress = WatcherProgress()
        self.woken = 0
        self.loop = WatchLoop(
            feed=feed,
            book=Casebook(
                store=self.store,
                settings=settings or WatchSettings(),
                sink_names=lambda: [SINK],
                cluster=feed.cluster,
                wake=self._wake,
                **book,
            ),
            judge=judge,
            judge_standstill=standstill or judge_nothing,
            progress=self.progress,
            clock=feed.now,
            pause=feed.pause,
        )
        feed.at_end = self.loop.stop
        asyncio.run(self.loop.run())

    @property
    def notices(self):
        """All that was enqueued, oldest first."""
        return [each.notice for each in self.store.outbox.stored()]

    @property
    def said(self):
        """The reasons of all notices, and at which second."""
        return [(each.reason, round(each.at - NOON)) for each in self.notices]

    def _wake(self):
        self.woken += 1


def test_a_death_is_told_once_its_evidence_has_settled():
    """One notice, ten seconds after the death, and none again while nothing changes."""
    watched = Watched(SimulatedFeed([death(1, 100.0)], until=600.0))
    assert watched.said == [("new", 110)]
    assert watched.woken
    assert watched.feed.is_closed


def test_deaths_that_follow_each_other_are_judged_together():
    """A cascade is one question to the judge."""
    watched = Watched(SimulatedFeed([death(n, 100.0 + n) for n in range(8)], until=600.0))
    assert watched.said == [("new", 112)]
    assert watched.notices[0].death_count == 8


def test_deaths_that_go_on_are_told_all_the_same():
    """A worker that dies each second does not put the first word off for ever."""
    watched = Watched(SimulatedFeed([death(n, 100.0 + n) for n in range(200)], until=200.0))
    assert watched.said[0] == ("new", 130)


def test_deliberate_stops_are_judged_and_forgotten():
    """They are in the state, wait for nothing, and nobody is told."""
    watched = Watched(SimulatedFeed([death(1, 100.0, is_expected=True)], until=200.0))
    assert watched.said == []
    assert watched.store.pending_deaths() == ()


def test_each_cause_is_a_case_of_its_own():
    """Three causes, three notices."""
    deaths = [death(n, 100.0 + n / 10, signal=(6, 9, 11)[n % 3]) for n in range(30)]
    watched = Watched(SimulatedFeed(deaths, until=400.0))
    assert Counter(each.reason for each in watched.notices) == {"new": 3}
    assert {each.cause for each in watched.notices} == {"signal.n6", "signal.n9", "signal.n11"}


def test_a_case_is_resolved_once_when_nothing_of_it_is_seen_any_more():
    """A quarter of an hour after its last death, on a cluster that is seen alive."""
    watched = Watched(SimulatedFeed([death(1, 100.0)], until=3 * 3600.0))
    (new, _), (resolved, second) = watched.said
    assert (new, resolved) == ("new", "resolved")
    assert 1000 <= second <= 1060


def test_an_hour_without_scheduler_is_one_blind_and_one_sees_again():
    """Silence never looks like health, and is told once."""
    watched = Watched(SimulatedFeed(outages=[(1000.0, 4600.0)], until=2 * 3600.0))
    (blind, since), (again, until) = watched.said
    assert (blind, again) == ("blind", "resolved")
    assert 1100 <= since <= 1150
    assert 4600 <= until <= 4630
    assert "sees prod again" in watched.notices[1].title


def test_a_case_is_not_resolved_by_a_cluster_that_nobody_sees():
    """The time without sight does not count."""
    feed = SimulatedFeed([death(1, 100.0)], outages=[(200.0, 4000.0)], until=4400.0)
    assert [reason for reason, _ in Watched(feed).said] == ["new", "blind", "resolved"]


def test_a_scheduler_that_was_never_there_is_a_blindness_too():
    """A wrong address is told after two minutes, as an outage is."""
    watched = Watched(SimulatedFeed(outages=[(0.0, 1e9)], until=600.0))
    assert [reason for reason, _ in watched.said] == ["blind"]
    assert watched.progress.status().state == "blind"
    assert watched.progress.status().problem == "connection refused"


def test_overwritten_deaths_are_told_with_their_number():
    """What nobody read is said, not passed over; then that the watcher sees again."""
    watched = Watched(SimulatedFeed(missed={100.0: 37}, until=900.0))
    assert watched.said[0] == ("blind", 100)
    assert "37 deaths" in watched.notices[0].title
    assert [reason for reason, _ in watched.said] == ["blind", "resolved"]


def test_a_cluster_that_was_closed_is_ended_not_resolved():
    """Each open case says so, and the rounds end."""
    watched = Watched(SimulatedFeed([death(1, 100.0)], ends_at=300.0))
    assert [reason for reason, _ in watched.said] == ["new", "ended"]
    assert watched.feed.second < 400


def test_deaths_just_before_the_end_are_judged():
    """What had no time to settle is told, before the end is."""
    watched = Watched(SimulatedFeed([death(1, 299.0)], ends_at=300.0))
    assert [reason for reason, _ in watched.said] == ["new", "ended"]


def test_a_watcher_that_is_closed_judges_what_it_has():
    """A program that ends three seconds after a death has heard of it."""
    watched = Watched(SimulatedFeed([death(1, 597.0)], until=600.0))
    assert watched.said == [("new", 600)]


def test_what_a_scheduler_wrote_down_before_it_went_is_read():
    """A restarted scheduler knows nothing of the deaths before; its file does."""
    written = [death(1, 100.0), death(2, 119.0)]
    feed = SimulatedFeed(
        written[:1],
        written=written,
        epochs={0.0: "first", 150.0: "second"},
        outages=[(118.0, 150.0)],
        until=400.0,
    )
    watched = Watched(feed)
    assert sum(each.death_count for each in watched.notices[:1]) == 1
    assert {each.id for each in watched.store.cases()} == {watched.notices[0].id}
    assert watched.store.cases()[0].death_count == 2


class FeedWithBadJournal(SimulatedFeed):
    """A feed of a scheduler that is replaced after 150 seconds, and whose journal cannot be read until then."""

    readable_at = math.inf

    async def stored(self, after):
        if self.second < self.readable_at:
            raise OSError("cannot read the journal s3://deaths: connection reset")
        return await super().stored(after)


def with_bad_journal(*, readable_at=math.inf, until=1000.0, **more):
    """One death at 119 seconds that only the journal knows."""
    scenario = {
        "written": [death(2, 119.0)],
        "outages": [(118.0, 150.0)],
        "epochs": {0.0: "first", 150.0: "second"},
    }
    feed = FeedWithBadJournal(until=until, **{**scenario, **more})
    feed.readable_at = readable_at
    return feed


def test_a_journal_that_cannot_be_read_is_read_again():
    """A store that is away for half a minute costs no death."""
    watched = Watched(with_bad_journal(readable_at=180.0, until=400.0))
    assert [reason for reason, _ in watched.said] == ["new"]
    assert watched.store.cursor("prod").epoch == "second"


def test_a_journal_that_stays_unreadable_is_told():
    """The watcher does not look as if it saw; once that was said, it goes on."""
    watched = Watched(with_bad_journal())
    assert [reason for reason, _ in watched.said] == ["blind", "resolved"]
    assert 150 + 75 <= watched.said[0][1] <= 260
    assert "deaths before the scheduler went down may be missing" in watched.notices[0].title
    assert watched.progress.status().notes[0].count == 5
    assert watched.store.cursor("prod").epoch == "second"


def test_deaths_at_the_new_scheduler_do_not_wait_for_the_journal_of_the_old_one():
    """Both are judged, each when it is known."""
    feed = with_bad_journal(readable_at=200.0, deaths=[death(1, 160.0, signal=11)], until=400.0)
    watched = Watched(feed)
    assert [reason for reason, _ in watched.said] == ["new", "new"]
    assert watched.said[0][1] <= 180 < watched.said[1][1]


def test_a_watcher_that_is_restarted_reads_the_journal_that_the_last_one_could_not():
    """Until it was read, the state says that the watcher is at the scheduler before."""
    store = Store(None)
    Watched(with_bad_journal(until=170.0), store=store)
    assert store.cursor("prod").epoch == "first"
    scenario = {"written": [death(2, -51.0)], "outages": [], "epochs": {0.0: "second"}}
    later = with_bad_journal(readable_at=0.0, until=400.0, **scenario)
    assert [reason for reason, _ in Watched(later, store=store).said] == ["new"]


def test_a_journal_that_cannot_be_read_at_the_end_is_told():
    """If the scheduler was lost before the cluster was closed, deaths may be missing."""
    watched = Watched(with_bad_journal(epochs={0.0: "first"}, ends_at=140.0))
    assert [reason for reason, _ in watched.said] == ["blind", "ended"]


def test_a_cluster_that_was_seen_until_it_was_closed_needs_no_journal():
    """All of its deaths were told."""
    watched = Watched(with_bad_journal(outages=[], epochs={0.0: "first"}, ends_at=140.0))
    assert watched.said == []


def test_what_was_too_much_to_read_is_told_with_its_number():
    """Deaths that a scheduler wrote down and nobody read are a blindness, as overwritten ones are."""
    feed = SimulatedFeed(epochs={0.0: "first", 150.0: "second"}, unread_count=37, until=900.0)
    watched = Watched(feed)
    assert [reason for reason, _ in watched.said] == ["blind", "resolved"]
    assert "37 more deaths than can be read" in watched.notices[0].title


def test_the_next_watcher_goes_on_where_the_last_one_was():
    """It asks with the cursor of the state, judges what was not judged, and repeats nothing."""
    store = Store(None)
    dead = [death(1, 100.0), death(2, 200.0, signal=11)]
    with store.transaction():
        store.add_deaths("prod", dead)
        store.set_cursor("prod", Cursor(epoch="first", position=2))
    watched = Watched(SimulatedFeed(dead, until=400.0), store=store)
    assert [reason for reason, _ in watched.said] == ["new", "new"]
    assert watched.feed.polls[0] == Cursor(epoch="first", position=2)


def test_deaths_wait_until_the_judge_can_judge():
    """A failure is noted, nothing is lost, and after the third one the watcher says that it is blind."""
    failures = iter([RuntimeError("no memory")] * 4)

    def judge(deaths, *, timeout_s):
        if problem := next(failures, None):
            raise problem
        return judge_by_signal(deaths, timeout_s=timeout_s)

    watched = Watched(SimulatedFeed([death(1, 100.0)], until=400.0), judge=judge)
    assert [reason for reason, _ in watched.said] == ["blind", "new", "resolved"]
    (note,) = watched.progress.status().notes
    assert (note.doing, note.count) == ("judge deaths", 4)


def test_what_the_state_cannot_keep_is_asked_for_again():
    """The cursor moves only with the deaths, so a full disk loses none."""
    feed = SimulatedFeed([death(1, 100.0)], until=400.0)
    store = Store(None, clock=feed.now)
    original = store.add_deaths

    def add_deaths(cluster, deaths):
        if deaths and feed.second < 200.0:
            raise StateFileError("state.db", "database or disk is full", "make room")
        return original(cluster, deaths)

    store.add_deaths = add_deaths
    watched = Watched(feed, store=store)
    assert [reason for reason, _ in watched.said].count("new") == 1
    assert "disk is full" in str(watched.progress.status().notes[0])
    assert sum(each.death_count for each in store.cases()) == 1


def test_a_feed_that_fails_is_a_note_and_a_blindness():
    """Whatever it raises, the rounds go on."""

    class FailingFeed(SimulatedFeed):
        async def poll(self, after, *, wait_s):
            if 20.0 < self.second < 200.0:
                raise ValueError("a defect")
            return await super().poll(after, wait_s=wait_s)

    watched = Watched(FailingFeed(until=400.0))
    assert [reason for reason, _ in watched.said] == ["blind", "resolved"]
    assert "ValueError: a defect" in str(watched.progress.status().notes[0])


def test_a_standstill_is_told_though_nothing_died():
    """Once, and resolved after it is over."""
    evidence = (Event(topic="cluster", fields={"workers": 0}),)
    feed = SimulatedFeed(standstill=(100.0, 400.0), standstill_evidence=evidence, until=3600.0)

    def standstill(evidence, *, when, timeout_s):
        return evolve(incident(diagnosis=sure_of("scheduler.no-workers")), when=when)

    watched = Watched(feed, standstill=standstill)
    assert [reason for reason, _ in watched.said] == ["new", "resolved"]
    assert watched.said[0][1] == 100
    assert watched.said[1][1] >= 400 + 900 - 60  # it is judged again once a minute


@pytest.mark.parametrize("seconds", [0.0, 3.0])
def test_secrets_in_what_failed_are_hidden(seconds):
    """A note may come from a sink's or a store's message."""
    progress = WatcherProgress()
    progress.note("ask", RuntimeError("postgres://me:hunter2@db/state"), NOON + seconds)
    assert "hunter2" not in str(progress.status().notes[0])
