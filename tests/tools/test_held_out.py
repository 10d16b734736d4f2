"""Calibration out of sample and by channel: what is held out takes no part, and few answers prove little."""

from __future__ import annotations

from pathlib import Path

import pytest
from grading import shown_grades
from held_out import (
    by_other_families,
    channel_table,
    family,
    fitted,
    held_out_table,
    judged,
    wilson,
    with_less_knowledge,
)

from lab.natural_run import incident_meta
from lab.natural_scenario import Scenario
from support.sample_rule import house_rule
from workerdiag import LogText, explain, load_rulebook
from workerdiag.authoring.rule_tests import KnownIncident, read_incidents
from workerdiag.matching.scan import Matcher
from workerdiag.model.odds import GRADES
from workerdiag.model.rules import Rulebook

BOOK = Rulebook(
    schema=1,
    release="test",
    landmarks=(),
    causes=(
        house_rule("house.fell", "the house fell", explains=("house.dust",)),
        house_rule("house.dust", "there is dust"),
        house_rule("wood.burnt", "the wood burnt"),
    ),
)


@pytest.fixture
def incidents(tmp_path: Path) -> list[KnownIncident]:
    """Three incidents of two families, one of a terminal."""
    texts = {
        "fell": ("the house fell\nthere is dust\n", "house.fell", "logs"),
        "burnt": ("the wood burnt\n", "wood.burnt", "terminal"),
        "both": ("the house fell\nthe wood burnt\n", "wood.burnt", "logs"),
    }
    for name, (text, expected, channel) in texts.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "meta.toml").write_text(f'expected = ["{expected}"]\nchannel = "{channel}"')
        (tmp_path / name / "worker.log").write_text(text)
    return read_incidents(tmp_path)


@pytest.mark.parametrize(
    ("right", "count", "low", "high"),
    [(0, 0, 0.0, 1.0), (10, 10, 0.722, 1.0), (0, 9, 0.0, 0.299), (48, 55, 0.760, 0.937)],
)
def test_few_answers_leave_a_wide_interval(right, count, low, high):
    """Ten of ten may still be 72 in 100."""
    assert wilson(right, count) == (pytest.approx(low, abs=1e-3), pytest.approx(high, abs=1e-3))


def test_a_family_takes_no_part_in_the_ratios_that_judge_it(incidents):
    """The ratios come from the other families, and those in use are back afterwards."""
    matcher, before = Matcher(BOOK), dict(GRADES)
    shown = [(each, shown_grades(each, BOOK, matcher)) for each in incidents]
    verdicts, ranges = by_other_families(shown, BOOK, matcher)
    without_wood = fitted([pair for pair in shown if family(pair[0]) != "wood"], BOOK)
    without_house = fitted([pair for pair in shown if family(pair[0]) != "house"], BOOK)

    assert len(verdicts) == 3
    assert ranges["strong"] == tuple(sorted((without_wood["strong"], without_house["strong"])))
    assert before == GRADES


def test_with_less_knowledge_a_symptom_is_left_out_and_a_guess_is_wrong(incidents):
    """Without the fall there is dust, which is true; without the fire only the fall is left to name."""
    book, matcher = BOOK, Matcher(BOOK)
    right = [each for each in incidents if each.name != "both"]
    both = [each for each in incidents if each.name == "both"]

    assert [each.incident.name for each in with_less_knowledge(right, book, matcher)[1]] == ["burnt"]
    assert [each.right for each in judged(right, book, matcher)] == [True, True]
    assert all(not each.right for each in with_less_knowledge(both, book, matcher)[1])


def test_each_channel_has_a_row_and_one_without_incidents_keeps_its_old_one(incidents):
    """What only a lab can measure stays on the page until a lab measures it again."""
    known = judged(incidents, BOOK, Matcher(BOOK))
    table = channel_table(known, [], before="| live | 60 | as it stood |\n")

    assert "\n| terminal | 1 | 1 | " in table
    assert "\n| live | 60 | as it stood |\n" in table
    assert "\n| recorder | 0 | 0 | - | - | - | 0 | - | - | - |\n" in table
    assert "| all | 3 | " in held_out_table({"all": known})


@pytest.mark.slow
def test_an_incident_of_a_live_cluster_is_a_bundle_with_its_answers(tmp_path):
    """The lab keeps evidence and label of a run; both are read back and judged."""
    folder = tmp_path / "one"
    folder.mkdir()
    text = "2026-05-04 11:22:33,444 - distributed.nanny - INFO - Worker process 4711 was killed by signal 9\n"
    explain(logs=LogText(text)).save(folder / "death.zip")
    scenario = Scenario(name="any", program=lambda _: None, right=("external.sig*", "separate"))
    (folder / "meta.toml").write_text(incident_meta(scenario, recorded=True))
    (incident,) = read_incidents(tmp_path)
    book = load_rulebook(packs=False)
    (verdict,) = judged([incident], book, Matcher(book))

    assert incident.channel == "recorder"
    assert incident.expected == ("external.sigkill", "no-death", "unknown")
    assert verdict.answer == "external.sigkill"
    assert verdict.sure == pytest.approx(explain(logs=LogText(text)).top.probability)
