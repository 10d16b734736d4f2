"""The book counts each death once, shows where it is thought to belong now, and stays small."""

from __future__ import annotations

import json

import pytest
from attrs import evolve

from support.dashboard_deaths import OOM, SEGFAULT, case, judgement, victim
from workerdiag.integrations.dashboard import judge_process as book_module
from workerdiag.integrations.dashboard.judge_process import DeathBook

UNKNOWN = ("unknown", "unknown", "unknown")


@pytest.fixture
def book():
    return DeathBook()


def shown(book):
    """The number of deaths in each case that is shown."""
    return {each["id"]: each["death_count"] for each in json.loads(book.to_json())["cases"]}


def counted(book):
    """The counts that are not zero."""
    return {labels: count for labels, count in book.counts.items() if count}


def test_nothing_is_known_at_first(book):
    """Before anything is judged there is one count, and it is zero."""
    assert book.counts == {UNKNOWN: 0}
    assert json.loads(book.to_json())["cases"] == []


def test_known_causes_begin_at_zero(book):
    """Who watches a rate sees the first death of each cause as an increase."""
    book.add(judgement())
    assert book.counts == {UNKNOWN: 0, SEGFAULT: 0, OOM: 0}


def test_a_death_is_counted_once(book):
    """A death that is judged again, with more evidence, is not counted again."""
    book.add(judgement(case(1, 2)))
    book.add(judgement(case(2)))
    book.add(judgement(case(3)))
    assert counted(book) == {SEGFAULT: 3}
    assert shown(book) == {"aaaaaaaaaaaa": 3}


def test_a_death_that_the_scheduler_notices_late_is_counted_once(book):
    """The nanny's report may come long before the scheduler's record, by which the death gets another id."""
    reported = victim(1, id="by-report", report_id="by-report")
    book.add(judgement(evolve(case(1), victims=(reported,))))
    noticed = victim(1, id="by-record", report_id="by-report")
    book.add(judgement(evolve(case(1, id_="bbbbbbbbbbbb"), victims=(noticed,))))
    assert counted(book) == {SEGFAULT: 1}
    assert shown(book) == {"bbbbbbbbbbbb": 1}


def test_a_death_moves_to_where_it_is_now_thought_to_belong(book):
    """Late evidence moves a death to another case; its count stays where it was, as counters never fall."""
    book.add(judgement(case(1, 2)))
    book.add(judgement(case(2, id_="bbbbbbbbbbbb", cause=OOM)))
    assert shown(book) == {"aaaaaaaaaaaa": 1, "bbbbbbbbbbbb": 1}
    assert counted(book) == {SEGFAULT: 2}


def test_a_case_that_lost_its_deaths_is_gone(book):
    """A stop that turns out to have been asked for leaves no empty row."""
    book.add(judgement(case(1)))
    book.add(judgement(also=[1]))
    assert shown(book) == {}
    book.add(judgement(case(1)))
    assert shown(book) == {"aaaaaaaaaaaa": 1}
    assert counted(book) == {SEGFAULT: 1}


def test_a_guess_is_counted_as_unknown(book):
    """Nobody is alarmed about a cause that is less likely than not."""
    book.add(judgement(case(1, is_likely=False, blame="unknown")))
    assert counted(book) == {UNKNOWN: 1}


def test_json_has_what_the_page_shows(book):
    """A row tells the cause, how sure, how many, when, who, whom to blame, and where its report is."""
    book.add(judgement(case(1, 2)))
    (row,) = json.loads(book.to_json())["cases"]
    workers = row.pop("workers")
    assert row == {
        "id": "aaaaaaaaaaaa",
        "title": "It crashed",
        "cause": "signal.segfault",
        "family": "signal",
        "probability": 0.9,
        "is_likely": True,
        "blame": "task",
        "death_count": 2,
        "first_at": victim(1).when,
        "last_at": victim(2).when,
        "report": "workerdiag/deaths/aaaaaaaaaaaa.html",
    }
    assert [each["name"] for each in workers] == ["w2", "w1"]
    assert workers[0]["memory"] == {"seconds": [-2.0, -1.0], "rss_bytes": [10, 20], "limit_bytes": 100}
    assert book.report("aaaaaaaaaaaa") == b"<p>why</p>"


def test_json_is_made_once_for_each_change(book):
    """A hundred viewers cost the scheduler no more than one."""
    book.add(judgement(case(1)))
    assert book.to_json() is book.to_json()
    before = book.to_json()
    book.settle(1)
    assert book.to_json() != before


def test_the_newest_case_comes_first(book):
    """What died last is what people came for."""
    book.add(judgement(case(1), case(9, id_="bbbbbbbbbbbb")))
    assert list(shown(book)) == ["bbbbbbbbbbbb", "aaaaaaaaaaaa"]
    book.add(judgement(case(10)))
    assert list(shown(book)) == ["aaaaaaaaaaaa", "bbbbbbbbbbbb"]


def test_ten_thousand_cases_take_no_room(book, monkeypatch):
    """Cases, victims, reports and known deaths are bounded, and counts go on."""
    monkeypatch.setattr(book_module, "MAX_CASES", 10)
    monkeypatch.setattr(book_module, "MAX_REPORTS", 3)
    monkeypatch.setattr(book_module, "_MAX_KNOWN", 20)
    for number in range(500):
        book.add(judgement(case(number, id_=f"{number:012x}")))
    assert len(shown(book)) == 10
    rows = json.loads(book.to_json())["cases"]
    assert [row["report"] is not None for row in rows] == [True] * 3 + [False] * 7
    assert len(book._case_of) <= 20
    assert counted(book) == {SEGFAULT: 500}


def test_of_many_victims_the_newest_are_listed(book):
    """A case that kills a thousand workers is one row with a thousand deaths."""
    book.add(judgement(case(*range(1000))))
    (row,) = json.loads(book.to_json())["cases"]
    assert row["death_count"] == 1000
    assert [each["name"] for each in row["workers"]] == [f"w{number}" for number in range(999, 989, -1)]


def test_memory_is_drawn_of_the_newest_victims(book):
    """The answer stays small however many died."""
    book.add(judgement(*(case(number, id_=f"{number:012x}") for number in range(60))))
    rows = json.loads(book.to_json())["cases"]
    drawn = [row["id"] for row in rows if "memory" in row["workers"][0]]
    assert drawn == [f"{number:012x}" for number in range(59, 39, -1)]
    assert rows[0]["cause"] == "signal.segfault"
