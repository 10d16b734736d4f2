"""Calibration: measured anew for the current release, kept for the older ones, never worse than the last."""

from __future__ import annotations

from pathlib import Path

import calibrate
import pytest
from calibration_page import (
    Answer,
    Measures,
    error_by_chance,
    grade_table,
    in_order,
    measured,
    read_measures,
    with_release,
)
from grading import Counted, GradeCounts, explained_by, graded, shown_grades, tellable

from support.sample_rule import house_rule
from workerdiag.authoring.rule_tests import read_incidents
from workerdiag.matching.scan import Matcher
from workerdiag.model.odds import GRADES
from workerdiag.model.rules import Rulebook

ROOT = Path(__file__).parents[2]

GOOD = [Answer(case="a", sure=0.9, right=True), Answer(case="b", sure=0.55, right=True)]
BAD = [Answer(case="a", sure=0.9, right=False), Answer(case="b", sure=0.55, right=True)]


def test_a_new_release_leaves_the_tables_of_older_ones_alone():
    """The page gets a row and a section for each release; what stood there stays, to the letter."""
    first = with_release("", "2026.9.0", BAD, "old grades")
    both = with_release(first, "2026.11.0", GOOD, "new grades")

    assert list(read_measures(both)) == ["2026.9.0", "2026.11.0"]
    assert read_measures(both)["2026.9.0"] == read_measures(first)["2026.9.0"]
    assert first[first.index("## 2026.9.0") :] == both[both.index("## 2026.9.0") :]
    assert both.index("## 2026.11.0") < both.index("## 2026.9.0")


def test_writing_a_release_again_replaces_it_alone():
    """Measured twice, a release has the newer numbers, once."""
    both = with_release(with_release("", "2026.9.0", GOOD, "old"), "2026.11.0", BAD, "once")
    again = with_release(both, "2026.11.0", GOOD, "twice")

    assert again.count("## 2026.11.0") == again.count("| 2026.11.0 |") == 1
    assert "\nonce\n" not in again
    assert read_measures(again)["2026.9.0"] == read_measures(both)["2026.9.0"]
    assert with_release(again, "2026.11.0", GOOD, "twice") == again


def test_chance_alone_errs_less_the_more_answers_there_are():
    """A goal for the calibration error can be judged: what promises that hold exactly would show is told."""
    few = [Answer(case="a", sure=0.9, right=True)] * 20
    certain = [Answer(case="a", sure=1.0, right=True)] * 20

    assert error_by_chance(certain) == 0.0
    assert 0.03 < error_by_chance(few) < 0.08
    assert error_by_chance(few * 25) < 0.02


def test_the_page_of_the_docs_is_one_that_can_be_read_back():
    """The committed page holds the measures of the release that ships, and its grades."""
    page = (ROOT / "docs" / "calibration.md").read_text(encoding="utf-8")
    release = calibrate.workerdiag.load_rulebook(packs=False).release

    assert release in read_measures(page)
    assert page.index(f"## {release}") < page.index("Likelihood ratios, measured on")


def test_each_ratio_in_use_lies_inside_what_was_measured():
    """The newest section of the page has a row for each grade, and none is outside of its interval."""
    page = (ROOT / "docs" / "calibration.md").read_text(encoding="utf-8")
    newest = page.split("\n## ")[1]

    assert newest.count(": inside |") == len(GRADES)
    assert "OUTSIDE" not in newest


def test_releases_sort_by_calendar():
    """November comes after September, whatever the letters say."""
    assert sorted(["2026.11.0", "2026.9.0", "2026.11.1"], key=in_order) == [
        "2026.9.0",
        "2026.11.0",
        "2026.11.1",
    ]


@pytest.mark.parametrize(
    ("release", "before", "told"),
    [
        ("2026.11.0", {"2026.11.0": 0.05}, []),
        ("2026.11.0", {"2026.11.0": 0.02}, ["2026.11.0"]),
        ("2026.11.0", {"2026.9.0": 0.02, "2026.11.0": 0.05}, ["2026.9.0"]),
        ("2026.11.0", {"2026.8.0": 0.02, "2026.9.0": 0.05, "2026.11.0": 0.05}, []),
        ("2026.11.0", {"2026.9.0": 0.05}, ["no row for 2026.11.0"]),
        ("2026.11.0", {}, ["no row for 2026.11.0"]),
    ],
)
def test_worse_is_told_against_the_last_release_and_against_itself(release, before, told):
    """Older releases than the last do not count, and a release without a row must be written down."""
    then = {each: Measures(count=9, brier=0.05, calibration_error=error) for each, error in before.items()}
    now = Measures(count=9, brier=0.05, calibration_error=0.05)
    problems = list(calibrate.worse(now, release, then))

    assert len(problems) == len(told)
    assert all(part in problem for part, problem in zip(told, problems, strict=True))


def test_perfect_answers_measure_zero():
    """Sure and right is neither Brier score nor calibration error."""
    assert measured([Answer(case="a", sure=1.0, right=True)]) == Measures(count=1, brier=0, calibration_error=0)


def test_a_ratio_lies_in_its_interval_and_more_incidents_narrow_it():
    """10 of 20 against 10 of 2000 is a hundred, and ten times as much evidence says so more exactly."""
    few = Counted(true_pairs=20, true_shown=10, false_pairs=2000, false_shown=10).ratio
    many = Counted(true_pairs=200, true_shown=100, false_pairs=20000, false_shown=100).ratio

    assert few.low < many.low < 100 < many.high < few.high
    assert many.value == pytest.approx(100, rel=0.05)


def test_a_sign_never_seen_wrongly_has_a_finite_ratio():
    """Nothing seen otherwise is no proof of an infinite ratio."""
    ratio = Counted(true_pairs=20, true_shown=10, false_pairs=2000, false_shown=0).ratio

    assert 1 < ratio.low < ratio.value < ratio.high < float("inf")


def test_signs_are_counted_by_grade_where_they_are_right_and_where_not(tmp_path):
    """A sign counts for its own incident, against in others; consequences and unknowns do not count."""
    book = Rulebook(
        schema=1,
        release="test",
        landmarks=(),
        causes=(
            house_rule("house.fell", "the house fell", explains=("house.dust",)),
            house_rule("house.dust", "there is dust"),
            house_rule("house.burnt", "the house burnt"),
        ),
    )
    texts = {
        "fell": ("the house fell\nthere is dust\n", '["house.fell"]'),
        "both": ("the house fell and the house burnt\n", '["house.burnt"]'),
        "nobody": ("the house fell\n", '["unknown"]'),
    }
    for name, (text, expected) in texts.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "meta.toml").write_text(f"expected = {expected}")
        (tmp_path / name / "worker.log").write_text(text)
    incidents = read_incidents(tmp_path)
    matcher = Matcher(book)
    counts = graded([(each, shown_grades(each, book, matcher)) for each in incidents], book)["strong"]
    strong = counts.all

    assert len(tellable(incidents)) == 2
    assert explained_by(["house.fell"], book) == {"house.dust"}
    assert (strong.true_shown, strong.true_pairs) == (2, 2)
    assert (strong.false_shown, strong.false_pairs) == (1, 3)  # burnt in "fell"; fell and dust in "both"
    assert f"| strong | 2000 | {counts.ratio}: " in grade_table({"strong": counts}, 2)


def test_what_a_sign_is_worth_beside_a_stronger_one_is_not_the_worth_of_its_company():
    """Hints that come with every strong sign, right or wrong, measure much over all pairs and one by themselves."""
    counts = GradeCounts(grade="hint")
    for true, shown, times in (
        (True, {"strong", "hint"}, 60),
        (True, {"strong"}, 60),
        (False, {"strong", "hint"}, 10),
        (False, {"strong"}, 10),
        (False, set(), 9_980),
    ):
        for _ in range(times):
            counts.add(true=true, shown=shown)

    assert counts.all.ratio.low > 200
    assert counts.ratio.low < 1 < counts.ratio.high < 2
