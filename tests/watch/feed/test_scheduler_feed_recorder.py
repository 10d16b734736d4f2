"""What the feed promises of a cluster whose scheduler records, with schedulers made of plain objects."""

from __future__ import annotations

import asyncio
import json

import pytest

from support.death_records import NOW, nanny_report, scheduler_record, worker_address
from support.simulated_scheduler import SimulatedConnection, SimulatedScheduler, polled, workers
from workerdiag.errors import ClusterEndedError, SchedulerUnreachableError
from workerdiag.watch.feed import scheduler_feed
from workerdiag.watch.feed.events import Cursor, PerishableEvidence
from workerdiag.watch.feed.scheduler_feed import SchedulerFeed

ADDRESS, OTHER = "tcp://10.0.0.1:8786", "tcp://10.0.0.2:8786"
PATIENCE_S = 60.0


async def nothing(_, deaths, **__):
    """What the cluster knows beside the recorder."""
    return tuple(deaths)


@pytest.fixture
def schedulers(monkeypatch):
    """The schedulers that can be reached, by address; one to begin with."""
    found = {ADDRESS: SimulatedScheduler()}
    monkeypatch.setattr(scheduler_feed, "Connection", lambda address, *_: SimulatedConnection(found, address))
    monkeypatch.setattr(PerishableEvidence, "ask", nothing)
    monkeypatch.setattr("time.time", lambda: NOW + 10)
    return found


def test_deaths_come_once_with_evidence(schedulers):
    """With the cursor of the last batch nothing comes twice, and nothing is left out."""
    feed = SchedulerFeed(ADDRESS)
    schedulers[ADDRESS].record(scheduler_record(1))
    first = polled(feed)
    schedulers[ADDRESS].record(scheduler_record(2))
    second = polled(feed, first.cursor)
    third = polled(feed, second.cursor)
    assert [workers(each.deaths) for each in (first, second, third)] == [
        [worker_address(1)],
        [worker_address(2)],
        [],
    ]
    assert all(each.evidence for each in (*first.deaths, *second.deaths))


def test_a_watcher_that_was_restarted_goes_on_where_it_was(schedulers):
    """A cursor counts for any feed of the same scheduler."""
    schedulers[ADDRESS].record(scheduler_record(1))
    cursor = polled(SchedulerFeed(ADDRESS)).cursor
    schedulers[ADDRESS].record(scheduler_record(2))
    assert workers(polled(SchedulerFeed(ADDRESS), cursor).deaths) == [worker_address(2)]


def test_the_journal_is_read_from_the_last_word_of_the_scheduler_that_went(schedulers, monkeypatch, tmp_path):
    """What the next one says meanwhile is later than the deaths in question."""
    file = tmp_path / "deaths.jsonl"
    file.write_text(json.dumps(scheduler_record(1, noticed_at=NOW + 11)))
    schedulers[ADDRESS].watch._journal = str(file)
    feed = SchedulerFeed(ADDRESS)
    before = polled(feed).cursor
    schedulers[ADDRESS] = SimulatedScheduler(id_="Scheduler-2")
    monkeypatch.setattr("time.time", lambda: NOW + 110)
    assert polled(feed, before).cursor.epoch != before.epoch
    assert workers(asyncio.run(feed.stored(before))[0]) == [worker_address(1)]


def test_a_scheduler_that_wrote_nothing_down_has_no_journal(schedulers, tmp_path):
    """A recorder that is put in place later writes where its scheduler can, perhaps out of reach."""
    schedulers[ADDRESS].uninstall()
    feed = SchedulerFeed(ADDRESS)
    before = polled(feed).cursor
    schedulers[ADDRESS].install()
    schedulers[ADDRESS].watch._journal = str(tmp_path / "out-of-reach.jsonl")
    assert polled(feed, before).cursor.epoch != before.epoch
    assert asyncio.run(feed.stored(before)) == ((), 0)


def test_a_death_keeps_its_id_when_more_becomes_known(schedulers):
    """A late report brings the same id again, with the exit."""
    feed = SchedulerFeed(ADDRESS)
    schedulers[ADDRESS].record(scheduler_record(1))
    first = polled(feed)
    schedulers[ADDRESS].record(nanny_report(1))
    second = polled(feed, first.cursor)
    assert [each.id for each in second.deaths] == [each.id for each in first.deaths]
    assert len(second.deaths[0].evidence) > len(first.deaths[0].evidence)


def test_a_report_counts_for_more_than_what_was_asked_before_it(schedulers, monkeypatch):
    """A death that waited to be asked about may be reported meanwhile."""
    feed = SchedulerFeed(ADDRESS)
    schedulers[ADDRESS].record(scheduler_record(1))
    first = polled(feed)

    async def asked_late(*_, **__):
        return first.deaths

    monkeypatch.setattr(PerishableEvidence, "ask", asked_late)
    schedulers[ADDRESS].record(nanny_report(1))
    (death,) = polled(feed, first.cursor).deaths
    assert len(death.evidence) > len(first.deaths[0].evidence)


def test_deaths_of_long_ago_do_not_come_to_who_has_no_cursor(schedulers):
    """A new watcher begins a quarter of an hour back; whoever has a cursor gets all."""
    for number in range(3, 150):
        schedulers[ADDRESS].record(scheduler_record(number, noticed_at=NOW - 3600))
    schedulers[ADDRESS].record(scheduler_record(2))
    first = polled(SchedulerFeed(ADDRESS))
    assert workers(first.deaths) == [worker_address(2)]
    assert polled(SchedulerFeed(ADDRESS), first.cursor).deaths == ()
    assert len(polled(SchedulerFeed(ADDRESS), Cursor(epoch="of another run", position=99)).deaths) == 100


def test_deliberate_stops_are_told_apart(schedulers):
    """An expected removal says so, and has no evidence to judge."""
    schedulers[ADDRESS].record(scheduler_record(1, is_expected=True))
    (death,) = polled(SchedulerFeed(ADDRESS)).deaths
    assert death.is_expected
    assert death.evidence == ()


def test_deaths_that_nobody_read_are_counted(schedulers):
    """But not those that the recorder dropped before anybody watched."""
    scheduler = schedulers[ADDRESS]
    scheduler.ring._most = 2
    for number in range(1, 5):
        scheduler.record(scheduler_record(number))
    first = polled(SchedulerFeed(ADDRESS))
    for number in range(5, 9):
        scheduler.record(scheduler_record(number))
    second = polled(SchedulerFeed(ADDRESS), first.cursor)
    assert (first.missed_count, second.missed_count) == (0, 2)


def test_a_restarted_scheduler_has_another_epoch(schedulers):
    """Its numbers begin anew, and all its deaths are told."""
    feed = SchedulerFeed(ADDRESS)
    schedulers[ADDRESS].record(scheduler_record(1))
    before = polled(feed).cursor
    schedulers[ADDRESS] = SimulatedScheduler()
    schedulers[ADDRESS].record(scheduler_record(2))
    batch = polled(feed, before)
    assert batch.cursor.epoch != before.epoch
    assert workers(batch.deaths) == [worker_address(2)]


def test_a_silent_scheduler_is_unreachable_and_then_seen_again(schedulers):
    """The feed connects again by itself."""
    feed = SchedulerFeed(ADDRESS)
    cursor = polled(feed).cursor
    schedulers[ADDRESS].is_up = False
    with pytest.raises(SchedulerUnreachableError, match="cannot connect"):
        polled(feed, cursor)
    schedulers[ADDRESS].is_up = True
    assert polled(feed, cursor).cursor == cursor


@pytest.mark.parametrize("kind", ["file", "callable"])
def test_a_scheduler_that_moves_is_followed(schedulers, tmp_path, kind):
    """To the address in the rewritten scheduler file, or to what the callable now returns; the name stays."""
    file = tmp_path / "scheduler.json"
    address = ADDRESS

    def move(to):
        nonlocal address
        address = to
        file.write_text(json.dumps({"type": "Scheduler", "address": to}))

    move(ADDRESS)
    feed = SchedulerFeed(file if kind == "file" else lambda: address)
    first = polled(feed)
    schedulers[OTHER] = SimulatedScheduler(id_="Scheduler-2")
    schedulers[OTHER].record(scheduler_record(2))
    move(OTHER)
    second = polled(feed, first.cursor)
    assert workers(second.deaths) == [worker_address(2)]


@pytest.mark.parametrize(
    ("reason", "error"),
    [
        ("idle-timeout-exceeded", ClusterEndedError),
        ("unknown", ClusterEndedError),
        ("signal-15", SchedulerUnreachableError),
    ],
)
def test_a_scheduler_that_says_it_closes_is_no_failure(schedulers, reason, error):
    """Unless a signal stops it: then it may start again."""
    feed = SchedulerFeed(ADDRESS)
    cursor = polled(feed).cursor

    async def run():
        asking = asyncio.ensure_future(feed.poll(cursor, wait_s=PATIENCE_S))
        await asyncio.sleep(0.1)
        await schedulers[ADDRESS].watch.close(reason)
        await asking

    with pytest.raises(error):
        asyncio.run(run())
    schedulers[ADDRESS].is_up = False
    with pytest.raises(error):
        polled(feed, cursor)


def test_deaths_before_the_close_come_first(schedulers):
    """What was lost right before the cluster was closed is told, and then that it ended."""
    feed = SchedulerFeed(ADDRESS)
    cursor = polled(feed).cursor
    schedulers[ADDRESS].record(scheduler_record(1))
    asyncio.run(schedulers[ADDRESS].watch.close("unknown"))
    batch = polled(feed, cursor)
    assert workers(batch.deaths) == [worker_address(1)]
    with pytest.raises(ClusterEndedError):
        polled(feed, batch.cursor)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"address": 7}', '{"address": "nowhere"}'])
def test_a_broken_scheduler_file_makes_the_scheduler_unreachable(tmp_path, content):
    """It may be just being written; the error says which file."""
    file = tmp_path / "scheduler.json"
    file.write_text(content)
    with pytest.raises(SchedulerUnreachableError, match=r"scheduler\.json|not the address of a scheduler"):
        polled(SchedulerFeed(file))


def test_a_callable_that_fails_makes_the_scheduler_unreachable():
    """The error says what was wrong."""

    def nowhere():
        raise LookupError("no such deployment")

    with pytest.raises(SchedulerUnreachableError, match="no such deployment"):
        polled(SchedulerFeed(nowhere))


def test_anything_else_is_no_target():
    """The error says what is."""
    with pytest.raises(TypeError, match="expected a Client, an address"):
        SchedulerFeed(7)
