"""What the feed promises of a cluster without the recorder, with a scheduler made of plain objects."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest

from support.death_records import NOW, scheduler_record
from support.simulated_scheduler import SimulatedConnection, SimulatedScheduler, polled, workers
from workerdiag.errors import ClusterEndedError, SchedulerUnreachableError
from workerdiag.model.evidence import Event, ProcessExit
from workerdiag.model.identity import Identity
from workerdiag.watch.feed import events, scheduler_feed
from workerdiag.watch.feed.look_handler import LOOK, look_installer
from workerdiag.watch.feed.scheduler_feed import SchedulerFeed
from workerdiag.wire.messages import decode_message
from workerdiag.wire.recorded_death import RecordedDeath

ADDRESS = "tcp://10.0.0.1:8786"
PATIENCE_S = 60.0


class Cluster:
    """In the place of the source that asks a cluster: knows how each of the workers in question ended."""

    asked = ()

    def __init__(self, client, *, about=(), known=None):
        assert client or known is not None
        self._client, self._about = client, about

    def next_round(self, *, about):
        return Cluster(self._client, about=about)

    async def collect_async(self, *, budget_s):
        assert budget_s > 0
        Cluster.asked = (*Cluster.asked, *(each.worker for each in self._about))
        return [ProcessExit(identity=each, signal=9, when=NOW, reporter="nanny") for each in self._about]


def worker(number):
    """Address of a worker."""
    return f"tcp://10.0.0.4:{1000 + number}"


@pytest.fixture
def inside(monkeypatch):
    """A scheduler without the recorder, that runs our functions."""
    scheduler = SimulatedScheduler(has_recorder=False)
    monkeypatch.setattr(
        scheduler_feed, "Connection", lambda address, *_: SimulatedConnection({ADDRESS: scheduler}, address)
    )
    monkeypatch.setattr(events, "ClusterSource", Cluster)
    monkeypatch.setattr("workerdiag.watch.feed.events._PLAIN_POLL_S", 0.01)
    monkeypatch.setattr("time.time", lambda: NOW)
    Cluster.asked = ()
    return scheduler


@pytest.fixture
def other_python(inside):
    """The same with another release of Python."""
    inside.has_same_python = inside.runs_functions = False
    return inside


@pytest.fixture(params=["inside", "other Python", "forbidden"])
def scheduler(inside, request):
    """One in which our functions run, or cannot, or may not."""
    inside.runs_functions = request.param == "inside"
    return request.getfixturevalue("other_python") if request.param == "other Python" else inside


def test_deaths_come_once_with_what_the_cluster_knows(scheduler):
    """With the cursor of the last batch nothing comes twice, also for a watcher that was restarted."""
    scheduler.join(worker(1))
    scheduler.remove(worker(1), keys=["load"], when=NOW - 9)
    first = polled(SchedulerFeed(ADDRESS))
    scheduler.remove(worker(2), when=NOW - 5)
    second = polled(SchedulerFeed(ADDRESS), first.cursor)
    third = polled(SchedulerFeed(ADDRESS), second.cursor)
    assert [workers(each.deaths) for each in (first, second, third)] == [[worker(1)], [worker(2)], []]
    (removal, exit_) = first.deaths[0].evidence
    assert (type(removal), removal.topic, removal.fields["processing_count"]) == (Event, worker(1), 1)
    assert (exit_.signal, exit_.identity.worker) == (9, worker(1))


def test_a_death_in_the_events_has_the_id_that_a_recorder_gives_it(scheduler):
    """Whoever knows it by the one knows it by the other."""
    scheduler.remove(worker(1))
    (death,) = polled(SchedulerFeed(ADDRESS)).deaths
    stimulus = f"handle-worker-cleanup-{NOW}"
    record = decode_message(scheduler_record(worker_address=worker(1), stimulus_id=stimulus))
    assert death.id == RecordedDeath.of(record).id


def test_who_died_is_known_by_process_and_nanny(inside):
    """The scheduler forgets both with the removal, so the feed remembers who joined."""
    inside.join(worker(1), pid=42)
    feed = SchedulerFeed(ADDRESS)
    cursor = polled(feed).cursor
    inside.remove(worker(1))
    (death,) = polled(feed, cursor).deaths
    expected = Identity(worker=worker(1), pid=42, nanny="tcp://10.0.0.4:9001", name="w", host="10.0.0.4")
    assert death.identity == expected


def test_a_worker_that_joins_and_dies_between_two_looks_is_known(inside):
    """Also where the next worker has its address, as with `--worker-port`; watchers share what is remembered."""
    feed = SchedulerFeed(ADDRESS)
    cursor = polled(feed).cursor
    for pid in (43, 44):
        inside.join(worker(1), pid=pid)
        inside.remove(worker(1), when=NOW - 50 + pid)
    inside.join(worker(1), pid=45)
    for each in (feed, SchedulerFeed(ADDRESS)):
        deaths = polled(each, cursor).deaths
        assert [death.identity.pid for death in deaths] == [43, 44]


@pytest.mark.parametrize(("reason", "is_expected"), [("nanny-close", True), ("signal-15", False)])
def test_a_stop_that_dask_asked_for_is_expected(scheduler, reason, is_expected):
    """The worker announced it; a signal may be the platform's, so that is looked into."""
    scheduler.log_event(worker(1), {"action": "closing-worker", "reason": reason})
    scheduler.remove(worker(1))
    (death,) = polled(SchedulerFeed(ADDRESS)).deaths
    assert (death.is_expected, bool(death.evidence)) == (is_expected, not is_expected)


def test_an_announced_removal_is_expected_and_nobody_is_asked(scheduler):
    """A retirement costs the cluster nothing."""
    scheduler.remove(worker(1), expected=True)
    (death,) = polled(SchedulerFeed(ADDRESS)).deaths
    assert death.is_expected
    assert Cluster.asked == ()


def test_many_deaths_are_asked_about_a_dozen_at_a_time(scheduler):
    """All are told at once; what else is known of the others comes with the next questions, which do not wait."""
    for number in range(50):
        scheduler.remove(worker(number), when=NOW - 50 + number)
    feed = SchedulerFeed(ADDRESS)
    batch = polled(feed)
    assert workers(batch.deaths) == [worker(number) for number in range(50)]
    assert all(each.evidence for each in batch.deaths)
    told = {each.id: each for each in batch.deaths}
    for asked in (12, 24, 36, 48, 50):
        assert list(Cluster.asked) == [worker(number) for number in range(asked)]
        batch = polled(feed, batch.cursor, wait_s=0.0 if asked == 50 else PATIENCE_S)
        told |= {each.id: each for each in batch.deaths}
    assert all(isinstance(each.evidence[-1], ProcessExit) for each in told.values())
    assert batch.deaths == ()


def test_more_deaths_than_a_batch_holds_come_in_the_next(scheduler):
    """Asking on brings the rest."""
    for number in range(80):
        scheduler.remove(worker(number), when=NOW - 200 + number)
    first = polled(SchedulerFeed(ADDRESS))
    second = polled(SchedulerFeed(ADDRESS), first.cursor)
    assert workers((*first.deaths, *second.deaths)) == [worker(number) for number in range(80)]
    assert second.missed_count == 0


def test_deaths_of_long_ago_do_not_come_to_who_has_no_cursor(scheduler):
    """Nor with the next question, however many they are."""
    for number in range(120):
        scheduler.remove(worker(number), when=NOW - 3600 + number)
    scheduler.remove(worker(500), when=NOW - 5)
    first = polled(SchedulerFeed(ADDRESS))
    assert workers(first.deaths) == [worker(500)]
    assert polled(SchedulerFeed(ADDRESS), first.cursor).deaths == ()


def test_events_that_were_overwritten_are_counted(inside):
    """By how many events the scheduler has let go of since the cursor."""
    inside._broker._topics["all"].events = deque(maxlen=20)
    inside.remove(worker(0), when=NOW - 50)
    cursor = polled(SchedulerFeed(ADDRESS)).cursor
    for number in range(30):
        inside.remove(worker(number), when=NOW - 40 + number)
    batch = polled(SchedulerFeed(ADDRESS), cursor)
    assert len(batch.deaths) == 19  # the look's own note took the place of one
    assert batch.missed_count == 11
    assert polled(SchedulerFeed(ADDRESS), batch.cursor).missed_count == 0


def test_where_events_go_by_time_an_overrun_is_told_as_well(other_python):
    """That something was missed is known, if not how much."""
    other_python._broker._topics["all"].events = deque(maxlen=20)
    other_python.remove(worker(0), when=NOW - 50)
    cursor = polled(SchedulerFeed(ADDRESS)).cursor
    for number in range(30):
        other_python.remove(worker(number), when=NOW - 40 + number)
    assert polled(SchedulerFeed(ADDRESS), cursor).missed_count == 1


def test_looks_leave_no_trace_among_the_events(inside):
    """However often the feed asks, the scheduler remembers as much as before, and logs one line of it."""
    inside.join(worker(1))
    feed = SchedulerFeed(ADDRESS)
    cursor = polled(feed).cursor
    for _ in range(5):
        cursor = polled(feed, cursor).cursor
    topic = inside._broker._topics["all"]
    assert (len(topic.events), topic.count, cursor.position) == (1, 1, 1)
    assert inside.ran == ["workerdiag_looks_for_removals"]


def test_a_death_ends_the_wait(scheduler):
    """It is told within moments, not at the end of the wait."""
    feed = SchedulerFeed(ADDRESS)
    cursor = polled(feed).cursor

    async def run():
        asking = asyncio.ensure_future(feed.poll(cursor, wait_s=PATIENCE_S))
        await asyncio.sleep(0.05)
        scheduler.remove(worker(1))
        return await asyncio.wait_for(asking, PATIENCE_S / 2)

    assert workers(asyncio.run(run()).deaths) == [worker(1)]


def test_a_recorder_that_is_installed_later_takes_over_and_may_go_again(inside):
    """No death is lost on the way."""
    feed = SchedulerFeed(ADDRESS)
    cursor = polled(feed).cursor
    inside.install()
    inside.record(scheduler_record(1))
    batch = polled(feed, cursor)
    assert workers(batch.deaths) == [worker(1)]
    assert batch.cursor.epoch != cursor.epoch
    inside.uninstall()
    inside.remove(worker(2))
    assert workers(polled(feed, batch.cursor).deaths) == [worker(2)]


def test_a_restarted_scheduler_has_another_epoch(scheduler):
    """Its events count anew."""
    scheduler.remove(worker(1))
    before = polled(SchedulerFeed(ADDRESS)).cursor
    scheduler.id = "Scheduler-2"
    scheduler._broker._topics.clear()
    scheduler.remove(worker(2))
    batch = polled(SchedulerFeed(ADDRESS), before)
    assert (workers(batch.deaths), batch.missed_count) == ([worker(2)], 0)
    assert batch.cursor.epoch != before.epoch


def test_a_scheduler_that_closes_is_seen_to_close(inside):
    """On purpose, as far as its log says nothing of a signal."""
    feed = SchedulerFeed(ADDRESS)
    cursor = polled(feed).cursor
    inside.status.name = "closing"
    with pytest.raises(ClusterEndedError):
        polled(feed, cursor)


@pytest.fixture(params=["events", "recorder"])
def closing(inside, monkeypatch, request):
    """A scheduler, with the recorder or without, that closes while it is asked about a death."""

    async def close_meanwhile(_self, *, budget_s):
        assert budget_s > 0
        inside.status.name = "closing"
        if inside.watch is not None:
            await inside.watch.close("unknown")
        return []

    monkeypatch.setattr(Cluster, "collect_async", close_meanwhile)
    monkeypatch.setattr("workerdiag.watch.feed.events._GRACE_S", PATIENCE_S)
    if request.param == "recorder":
        inside.install()
    return inside


def test_a_scheduler_that_closes_while_it_is_asked_about_a_death_has_ended(closing):
    """It does not answer the next question; the death comes first."""
    if closing.watch is None:
        closing.remove(worker(1))
    else:
        closing.record(scheduler_record(1))
    feed = SchedulerFeed(ADDRESS)
    batch = polled(feed)
    closing.is_up = False
    assert workers(batch.deaths) == [worker(1)]
    with pytest.raises(ClusterEndedError):
        polled(feed, batch.cursor)


def test_a_look_that_a_closing_scheduler_breaks_off_says_so(inside):
    """Whenever that is."""
    request = {"since": 0, "scheduler_id": "", "most": 50, "lookback_s": None, "wait_s": PATIENCE_S}
    running = inside.status.name

    async def broken_off(steps):
        inside.status.name = running
        connection = SimulatedConnection({ADDRESS: inside}, ADDRESS)
        await connection.run_on_scheduler(look_installer(), LOOK)
        look = asyncio.ensure_future(connection.workerdiag_look_3(wanted=request))
        for _ in range(steps):
            await asyncio.sleep(0)
        inside.status.name = "closing"
        look.cancel()
        return (await look)["closing_reason"]

    assert {asyncio.run(broken_off(steps)) for steps in range(2, 12)} == {"unknown"}


def test_a_scheduler_that_goes_without_a_word_is_unreachable(scheduler):
    """It may come again."""
    feed = SchedulerFeed(ADDRESS)
    cursor = polled(feed).cursor
    scheduler.is_up = False
    with pytest.raises(SchedulerUnreachableError):
        polled(feed, cursor)
