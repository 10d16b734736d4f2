"""What the feed promises of the deaths that a scheduler wrote down before it went."""

from __future__ import annotations

import asyncio
import json

import fsspec
import pytest

from support.death_records import NOW, decoded, nanny_report, scheduler_record, worker_address
from workerdiag.watch.feed import scheduler_feed
from workerdiag.watch.feed.events import Cursor, FeedBatch
from workerdiag.watch.feed.scheduler_feed import SchedulerFeed, read_journal
from workerdiag.wire.recorded_death import RecordedDeath

CURSOR = Cursor(epoch="of the dead scheduler", position=3)


def lines(*messages):
    """The text of a journal."""
    return "".join(f"{json.dumps(each)}\n" for each in messages)


def stored(journal, after=CURSOR):
    """The deaths that a feed reads of a scheduler which it never saw, whose successor names the journal."""
    feed = SchedulerFeed("tcp://10.0.0.1:8786")
    feed._note_word(FeedBatch(cursor=Cursor(epoch="of its successor"), now=NOW, journal=str(journal)))
    return asyncio.run(feed.stored(after))[0]


def test_record_and_report_are_one_death_with_the_id_it_has_live(tmp_path):
    """So that whoever knows the death already does not take it for another."""
    file = tmp_path / "deaths.jsonl"
    file.write_text(lines(scheduler_record(1), nanny_report(1)))
    (death,) = stored(file)
    assert death.identity.worker == worker_address(1)
    assert death.id == RecordedDeath.of(decoded(scheduler_record(1))).id
    assert death.evidence


def test_a_torn_last_line_costs_that_line(tmp_path):
    """The scheduler may have died while it wrote."""
    file = tmp_path / "deaths.jsonl"
    file.write_text(lines(scheduler_record(1)) + '{"schema": 1, "kind": "remov')
    assert len(stored(file)) == 1


def test_the_file_that_was_put_aside_counts_too(tmp_path):
    """A file of 8 MiB becomes ``<name>.1``."""
    (tmp_path / "deaths.jsonl.1").write_text(lines(scheduler_record(1)))
    (tmp_path / "deaths.jsonl").write_text(lines(scheduler_record(2)))
    deaths = stored(tmp_path / "deaths.jsonl")
    assert [each.identity.worker for each in deaths] == [worker_address(1), worker_address(2)]


def test_objects_of_a_store_are_read():
    """Each batch of lines is an object of its own."""
    filesystem = fsspec.filesystem("memory")
    for number in (1, 2):
        name = f"/feed-journal/deaths-host-7-abc-1700000000000-000{number}.jsonl"
        filesystem.pipe_file(name, lines(scheduler_record(number)).encode())
    assert len(stored("memory://feed-journal")) == 2


def test_only_deaths_of_late_are_told(tmp_path):
    """Of an hour ago without a cursor none, as nobody watched; with one, those of a day."""
    file = tmp_path / "deaths.jsonl"
    file.write_text(
        lines(
            scheduler_record(1, noticed_at=NOW - 2 * 86400),
            scheduler_record(2, noticed_at=NOW - 3600),
            scheduler_record(3),
        )
    )
    assert len(stored(file, None)) == 1
    assert len(stored(file)) == 2
    assert len(read_journal(str(file), since=NOW - 7200, lookback_s=0.0)[0]) == 2


def many_deaths(file, count):
    """A journal of deaths with reports, within seconds of each other."""
    times = {number: {"noticed_at": NOW + number / 100} for number in range(1, count + 1)}
    records = (scheduler_record(each, stimulus_id=f"s{each}", **more) for each, more in times.items())
    reports = (nanny_report(each, **more) for each, more in times.items())
    file.write_text(lines(*(each for both in zip(records, reports, strict=True) for each in both)))


def test_all_of_many_deaths_are_told(tmp_path):
    """A host that goes takes hundreds of workers with it."""
    many_deaths(tmp_path / "deaths.jsonl", 600)
    assert len(stored(tmp_path / "deaths.jsonl")) == 600


def test_deaths_that_are_too_many_are_counted(tmp_path, monkeypatch):
    """The newest are told; of the others, those that are recent count."""
    monkeypatch.setattr(scheduler_feed, "_MAX_MESSAGES", 20)
    many_deaths(tmp_path / "deaths.jsonl", 30)
    deaths, missed_count = read_journal(str(tmp_path / "deaths.jsonl"), since=NOW + 0.055, lookback_s=0.0)
    assert [each.identity.worker for each in deaths] == [worker_address(each) for each in range(21, 31)]
    assert missed_count == 15


def test_without_a_journal_nothing_is_stored():
    """That is no error."""
    assert asyncio.run(SchedulerFeed("tcp://10.0.0.1:8786").stored(CURSOR)) == ((), 0)


def test_a_journal_that_cannot_be_read_is_an_error_that_names_it(tmp_path):
    """It may be on the scheduler's disk."""
    with pytest.raises(OSError, match=r"cannot read the journal .*nowhere"):
        stored(tmp_path / "nowhere.jsonl")
