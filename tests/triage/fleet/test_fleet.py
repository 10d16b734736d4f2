"""Shares, costs, hosts and versions are those of the deaths."""

from __future__ import annotations

import pytest

from support.fleet_rows import BEGIN, HOUR_S, fleet_row
from workerdiag.triage.fleet.collect import merge_tables
from workerdiag.triage.fleet.fleet import summarize

DAY_S = 24 * HOUR_S


def report_of(rows, **facts):
    """The fleet report of one table."""
    return summarize(merge_tables([rows]), {"kernel.oom": "The kernel ran out of memory"}, **facts)


def shares_of(report):
    """Deaths by cause."""
    return {each.cause: each.death_count for each in report.causes}


def cause_of(report, cause):
    """What the report says of one cause."""
    return next(each for each in report.causes if each.cause == cause)


def test_shares_are_of_deaths_that_nobody_asked_for():
    """Stops are counted apart, and a guess is no cause."""
    report = report_of(
        [
            *(fleet_row(number) for number in range(6)),
            *(fleet_row(10 + number, cause="kernel.oom") for number in range(3)),
            fleet_row(20, cause="kernel.oom", probability=0.4),
            fleet_row(21, cause=None),
            *(fleet_row(30 + number, stop_requested=True) for number in range(8)),
        ],
        is_partial=False,
    )
    assert (report.death_count, report.requested_count) == (11, 8)
    assert shares_of(report) == {"nanny.memory-terminate": 6, "kernel.oom": 3, None: 2}
    assert [each.cause for each in report.causes][-1] is None
    first = report.causes[0]
    assert first.share == pytest.approx(6 / 11)
    assert first.interval.low < first.share < first.interval.high
    assert cause_of(report, "kernel.oom").title == "The kernel ran out of memory"


def test_workers_that_are_lost_together_are_one_event():
    """A thousand workers of one rack count a thousand times in the share, and once for how sure that is."""
    alone = [fleet_row(number) for number in range(20)]
    rack = [fleet_row(100 + number, cause="host.lost", died_at=BEGIN + number / 500) for number in range(1000)]
    report = report_of([*alone, *rack], is_partial=False)
    lost = cause_of(report, "host.lost")
    assert (lost.death_count, lost.loss_count, report.loss_count) == (1000, 1, 21)
    assert lost.share > 0.98
    assert lost.interval.low < 0.5


def test_costs_are_summed_where_they_are_known():
    """The report says of how many deaths."""
    rows = [fleet_row(number, lost_compute_s=60.0 if number < 3 else None) for number in range(5)]
    report = report_of(rows, is_partial=False)
    assert (report.lost_compute_s, report.lost_known_count) == (180.0, 3)
    assert report_of(rows[3:], is_partial=False).lost_compute_s is None


def test_a_host_has_its_share_of_all_losses():
    """The one with most comes first, with what kills there, and the report says of how many losses."""
    rows = [fleet_row(number, host=f"node-{number % 40}") for number in range(80)]
    rows += [fleet_row(100 + number, host="bad", cause="kernel.oom") for number in range(12)]
    report = report_of(rows, is_partial=False)
    first = report.hosts[0]
    assert (first.host, first.death_count, first.cause, first.cause_count) == ("bad", 12, "kernel.oom", 12)
    assert (first.share, report.host_loss_count, report.host_count) == (pytest.approx(12 / 92), 92, 41)
    assert sum(each.share for each in report.hosts) == pytest.approx(1)


def test_a_host_that_lost_all_its_workers_once_is_not_bad():
    """Sixteen workers that go with their host are one joint loss of it."""
    rows = [fleet_row(number, host=f"node-{number % 10}") for number in range(30)]
    rows += [fleet_row(100 + number, host="node-3", died_at=BEGIN + 0.1 * number) for number in range(16)]
    (lost,) = [each for each in report_of(rows, is_partial=False).hosts if each.host == "node-3"]
    assert (lost.death_count, lost.loss_count) == (19, 4)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "0.0.0.0", None])
def test_a_machine_that_only_names_itself_is_no_host(host):
    """Each machine is 127.0.0.1 to itself."""
    rows = [fleet_row(number, host=host) for number in range(20)]
    report = report_of([*rows, *(fleet_row(50 + number) for number in range(7))], is_partial=False)
    assert report.host_count == 7
    assert len(report.hosts) == 7


def test_versions_are_shared_out_with_their_main_cause():
    """Deaths whose version nobody noted are a row of their own."""
    rows = [fleet_row(number, distributed_version="2026.8.0", python_version="3.12") for number in range(5)]
    rows += [fleet_row(10, distributed_version="2025.1.0", cause="kernel.oom"), fleet_row(11)]
    versions = report_of(rows, is_partial=False).versions
    assert [(each.package, each.version, each.death_count, each.cause) for each in versions] == [
        ("distributed", "2026.8.0", 5, "nanny.memory-terminate"),
        ("distributed", None, 1, "nanny.memory-terminate"),
        ("distributed", "2025.1.0", 1, "kernel.oom"),
        ("python", "3.12", 5, "nanny.memory-terminate"),
        ("python", None, 2, "kernel.oom"),
    ]


def test_what_becomes_more_frequent_has_a_larger_share_of_the_second_half():
    """The time is that of all deaths, so a cause can be new or gone."""
    others = [fleet_row(number, cause="kernel.oom") for number in range(0, 241, 10)]
    rows = [fleet_row(1000 + hour, died_at=BEGIN + hour * HOUR_S) for hour in (0, 30, *range(180, 240, 6))]
    report = report_of([*others, *rows], is_partial=False)
    assert (report.half_at, report.late_count) == (BEGIN + 120 * HOUR_S, 13 + 10)
    assert cause_of(report, "kernel.oom").late_count == 13
    late = cause_of(report, "nanny.memory-terminate")
    assert (late.death_count, late.late_count, late.first_at) == (12, 10, BEGIN)


def test_days_become_weeks_where_there_are_many():
    """A day is counted by hours, a month by days, a year by weeks that begin on Monday; only those with a death."""
    report = report_of([fleet_row(0), fleet_row(5)], is_partial=False)
    assert report.period == "hour"
    assert [each.begin for each in report.causes[0].periods] == ["2026-07-20T09:00", "2026-07-20T14:00"]
    report = report_of([fleet_row(0), fleet_row(1), fleet_row(30)], is_partial=False)
    assert report.period == "day"
    assert [(each.begin, each.death_count) for each in report.causes[0].periods] == [
        ("2026-07-20", 2),
        ("2026-07-21", 1),
    ]
    report = report_of([fleet_row(0), fleet_row(1, died_at=BEGIN + 90 * DAY_S)], is_partial=False)
    assert report.period == "week"
    assert [each.begin for each in report.causes[0].periods] == ["2026-07-20", "2026-10-12"]


def test_deaths_without_a_time_count_and_are_in_no_half():
    """Nothing is known of when, and that is said."""
    report = report_of([fleet_row(number, died_at=None) for number in range(6)], is_partial=False)
    assert (report.death_count, report.undated_count, report.loss_count) == (6, 6, 6)
    assert (report.causes[0].late_count, report.causes[0].first_at, report.half_at) == (0, None, None)


def test_nothing_lost_is_a_report_too():
    """Of stops alone there is no share and nothing fails."""
    report = report_of([fleet_row(0, stop_requested=True)], is_partial=False)
    assert (report.death_count, report.causes, report.hosts, report.versions) == (0, (), (), ())


def test_what_stays_unexplained_comes_with_the_command_that_drafts_a_rule():
    """Deaths of one case that ended alike are one entry; what only a watcher saw has no log to draft from."""
    rows = [fleet_row(number, cause=None, signal=35, url=f"s3://logs/{number}.log") for number in range(5)]
    rows += [
        fleet_row(9, cause=None, url="a b.log"),
        fleet_row(10, cause=None, url="watched:epoch-1"),
        fleet_row(11),
    ]
    report = report_of(rows, is_partial=False)
    assert [(each.death_count, each.exit) for each in report.unexplained] == [(5, "signal 35"), (1, "unknown")]
    assert report.unexplained[0].urls == ("s3://logs/0.log", "s3://logs/1.log", "s3://logs/2.log")
    assert "    workerdiag knowledge draft 'a b.log'\n" in str(report)
