"""A death counts once, however many tables report it."""

from __future__ import annotations

import random

from attrs import evolve

from support.fleet_rows import BEGIN, fleet_row
from workerdiag.triage.fleet.collect import merge_tables


def test_two_runs_of_triage_over_the_same_log_count_once():
    """The same place in the same log is the same death, also where nobody knows when or who."""
    rows = [fleet_row(number, died_at=None, worker=None, pid=None) for number in range(4)]
    merged = merge_tables([rows, rows[:3], [evolve(rows[3], knowledge="2026.12")]])
    assert list(merged.deaths) == rows
    assert merged.duplicate_count == 4


def test_triage_and_watcher_count_once():
    """Another place, a name in place of an address, and a clock that differs by seconds: it is the same process."""
    triaged = fleet_row(1, scheduler="tcp://10.0.0.1:8786")
    watched = fleet_row(
        1,
        url="watched:1",
        offset=0,
        run="prod",
        scheduler="prod",
        host="10.0.0.1",
        died_at=triaged.died_at + 9,
    )
    assert merge_tables([[triaged], [watched]]).duplicate_count == 1


def test_a_worker_that_crashes_in_a_loop_counts_each_time():
    """Under one address and one pid, as in a container, each death of a table is one; and once in all tables."""
    loop = [
        fleet_row(1, pid=7, died_at=BEGIN + 60 * number, offset=number, url="worker.log") for number in range(5)
    ]
    watched = [evolve(each, url=f"watched:{each.offset}", died_at=each.died_at + 2) for each in loop]
    merged = merge_tables([loop, watched[1:]])
    assert (len(merged.deaths), merged.duplicate_count) == (5, 4)


def test_what_differs_is_another_death():
    """Another pid, another cluster at the same address, an hour later, or an address alone: two deaths."""
    row = fleet_row(1, scheduler="tcp://10.0.0.1:8786")
    for other in (
        evolve(row, pid=2, offset=7),
        evolve(row, scheduler="tcp://10.9.9.9:8786", offset=7),
        evolve(row, died_at=row.died_at + 3600, offset=7),
        evolve(row, died_at=None, pid=None, offset=7),
    ):
        assert len(merge_tables([[row], [other]]).deaths) == 2


def test_what_only_one_report_knows_is_kept():
    """The surer cause counts; version, cost and that somebody asked for it come from whoever knows."""
    guess = fleet_row(1, cause="kernel.oom", probability=0.4, distributed_version="2026.8.0", lost_compute_s=3.0)
    sure = fleet_row(1, url="watched:1", stop_requested=True, lost_compute_s=5.0)
    (death,) = merge_tables([[guess], [sure]]).deaths
    assert death.cause == "nanny.memory-terminate"
    assert death.distributed_version == "2026.8.0"
    assert death.stop_requested
    assert death.lost_compute_s == 5.0


def test_the_order_of_tables_does_not_matter():
    """Whatever is read first, as many deaths are counted."""
    rows = [fleet_row(number, died_at=BEGIN + 30 * number) for number in range(60)]
    tables = [random.Random(seed).sample(rows, 40) for seed in range(4)]
    counts = {len(merge_tables(random.Random(seed).sample(tables, 4)).deaths) for seed in range(5)}
    assert counts == {len({each for table in tables for each in table})}
