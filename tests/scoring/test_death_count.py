"""How many deaths are said to be: all that are known of, and "at least" where there may be more."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from workerdiag import Diagnosis, LogText, explain, load_rulebook
from workerdiag.model.evidence import Event, Gap, Inspected
from workerdiag.pipeline import diagnose
from workerdiag.scoring.summary import MAX_DEATHS

BOOK = load_rulebook(packs=False)
NOON = datetime(2026, 5, 4, 12, tzinfo=UTC).timestamp()
STOP = (
    "2026-05-04 11:59:59,000 - distributed.scheduler - INFO - "
    "Retire worker addresses (stimulus_id='retire-workers-1777895999.1') ['tcp://10.0.0.9:1']\n"
)


def removals(count, *, first=0):
    """Lines in which a scheduler lets go of so many workers, ten in each second."""
    lines = []
    for number in range(first, first + count):
        when = datetime.fromtimestamp(NOON + number / 10, tz=UTC)
        lines.append(
            f"{when:%Y-%m-%d %H:%M:%S},{when.microsecond // 1000:03d} - distributed.scheduler - INFO - "
            f"Remove worker addr: tcp://10.0.0.4:{number} name: w{number} "
            f"(stimulus_id='handle-worker-cleanup-{NOON}')\n"
        )
    return "".join(lines)


def both_reports(number):
    """What a nanny and the scheduler say of a worker that crashes."""
    when = datetime.fromtimestamp(NOON + number, tz=UTC)
    return (
        f"{when:%Y-%m-%d %H:%M:%S},000 - distributed.nanny - INFO - "
        f"Worker process {7000 + number} was killed by signal 11\n"
        f"{when:%Y-%m-%d %H:%M:%S},100 - distributed.scheduler - INFO - "
        f"Remove worker addr: tcp://10.0.0.4:{number} name: w{number} "
        f"(stimulus_id='handle-worker-cleanup-{NOON}')\n"
    )


def lost(number):
    """The scheduler's event of a worker that went."""
    worker = f"tcp://10.0.0.4:{number}"
    fields = {"action": "remove-worker", "worker": worker, "expected": False}
    return Event(topic="all", fields=fields, when=NOON + number)


def counted(number, *, is_lower_bound=False):
    """What the scheduler counts, where it stands."""
    fields = {"lost_unasked": number, "lost_unasked_is_lower_bound": is_lower_bound}
    return Event(topic="scheduler-state", fields=fields)


@pytest.mark.parametrize("count", [700, 1500, 10_000])
def test_a_log_full_of_losses_has_all_of_them_counted(count):
    """Only the first and the last are listed, and the number is that of all."""
    found = explain(logs=[LogText(removals(count), "scheduler")], timeout="300s")
    assert found.summary.startswith(f"{count:,} workers died")
    assert (found.death_count, found.unlisted_deaths.maybe_more) == (count, False)
    assert f"Deaths ({count:,})" in str(found)


def test_a_death_that_both_sides_report_counts_once():
    """The scheduler lets go of each worker that its nanny saw dying."""
    found = explain(logs=[LogText("".join(map(both_reports, range(1500))))], timeout="300s")
    assert (found.death_count, found.unlisted_deaths.maybe_more) == (1500, False)


@pytest.mark.parametrize(
    "log",
    [
        pytest.param(STOP + removals(1500), id="some were asked for"),
        pytest.param(removals(1500).replace(" - INFO - ", " -- INFO: "), id="headers of another shape"),
        pytest.param(removals(1500) + "".join(map(both_reports, range(1600))), id="unequal kinds"),
    ],
)
def test_where_the_reports_between_tell_no_number_it_is_a_lower_bound(log):
    """That there were no others than those that are listed is not said."""
    found = explain(logs=[LogText(log)], timeout="300s")
    assert "at least " in found.summary
    assert found.unlisted_deaths.maybe_more


def test_the_same_log_given_twice_counts_once(tmp_path):
    """A copy tells of no other deaths."""
    for name in ("one.log", "two.log"):
        (tmp_path / name).write_text(removals(1500))
    found = explain(logs=[tmp_path / "one.log", tmp_path / "two.log"], timeout="300s")
    assert found.summary.startswith("1,500 workers died")


def test_the_scheduler_s_own_count_is_the_number():
    """Three removals are told of, and the scheduler counted ten thousand."""
    found = diagnose([*map(lost, range(3)), counted(10_000), Inspected(place="scheduler events")], BOOK)
    assert found.summary.startswith("10,000 workers died")
    assert (len(found.deaths), found.death_count) == (3, 10_000)
    assert found.unlisted_deaths.maybe_more is False


def test_a_count_in_part_and_a_cut_search_say_at_least():
    """Whoever counted only some of them does not know how many there were."""
    late = Gap(source="log", place="log", reason="timed-out", detail="x")
    for evidence in ([counted(50, is_lower_bound=True)], [counted(50), late]):
        found = diagnose([*map(lost, range(3)), *evidence], BOOK)
        assert found.summary.startswith("at least 50 workers died")


def test_of_very_many_deaths_the_first_and_the_last_are_listed():
    """The first victim stays, and so does the end of the cascade."""
    found = diagnose(map(lost, range(MAX_DEATHS + 500)), BOOK)
    numbers = [each.identity.worker.rpartition(":")[2] for each in found.deaths]
    assert (numbers[0], numbers[-1], len(numbers)) == ("0", str(MAX_DEATHS + 499), MAX_DEATHS)
    assert found.death_count == MAX_DEATHS + 500


def test_the_number_survives_json():
    """Also that there may be more; a diagnosis of before has just what it lists."""
    found = explain(logs=[LogText(removals(2), "scheduler")], timeout="300s")
    assert Diagnosis.from_json(found.to_json()) == found
    content = found.to_dict()
    assert content.pop("unlisted_deaths") == {"count": 0, "maybe_more": False}


@pytest.mark.slow
def test_a_bundle_that_did_not_keep_all_evidence_says_at_least(tmp_path):
    """Of ten thousand deaths it keeps the first and the last; read again it does not tell these as all."""
    found = explain(sources=[Known(6000)], timeout="300s")
    found.save(tmp_path / "deaths.zip")
    again = explain(logs=[tmp_path / "deaths.zip"], timeout="300s")
    assert (found.death_count, found.unlisted_deaths.maybe_more) == (6000, False)
    assert again.death_count < 6000
    assert again.unlisted_deaths.maybe_more
    assert "not kept" in " ".join(each.detail for each in again.gaps)


class Known:
    """A source of so many removals."""

    name = "removals"

    def __init__(self, count):
        self.count = count

    def collect(self, *, budget_s):
        """Yield each."""
        del budget_s
        yield from map(lost, range(self.count))
