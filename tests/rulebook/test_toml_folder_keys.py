"""Keys of rules that say several things at once: patterns, any_of, booleans, reports of exits, shared files."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.sample_rule import RULE
from workerdiag.authoring.lint import check_examples
from workerdiag.errors import RuleFileError
from workerdiag.matching.match import search
from workerdiag.model.evidence import Event, LogChunk
from workerdiag.model.rules import Rulebook
from workerdiag.pipeline import diagnose
from workerdiag.rulebook.toml_folder import read_folder

PATTERN = "pattern = 'the house fell on (?P<worker>\\w+://\\S+)'"
SEVERAL = "patterns = ['the house fell on (?P<worker>\\w+://\\S+)', 'the roof came down']"


def book(folder: Path, rule: str) -> Rulebook:
    path = folder / "causes" / "house" / "rule.toml"
    path.parent.mkdir(parents=True)
    path.write_text(rule)
    return read_folder(folder)


def signs(text: str, rules: Rulebook) -> list[str]:
    return [each.sign for each in search([LogChunk(origin="a", data=text.encode())], rules).matches if each.sign]


def test_one_of_several_patterns_is_enough(tmp_path):
    """A sign may have several wordings, each with its captures."""
    rules = book(tmp_path, RULE.replace(PATTERN, SEVERAL))

    assert signs("distributed.worker - INFO - the roof came down", rules) == ["said"]
    assert signs("distributed.worker - INFO - the house fell on tcp://10.0.0.4:4002", rules) == ["said"]


def test_each_of_several_patterns_needs_an_example(tmp_path):
    """A wording that no line shows is not proven."""
    (problem,) = check_examples(book(tmp_path, RULE.replace(PATTERN, SEVERAL)))

    assert problem == "house.rule said: no `seen` line shows the pattern 'the roof came down'"


@pytest.mark.parametrize("keys", [f"{PATTERN}\n{SEVERAL}", ""])
def test_a_sign_has_either_a_pattern_or_patterns(keys, tmp_path):
    """Both or neither is a mistake, which is named."""
    with pytest.raises(RuleFileError, match="expected one of the keys 'pattern' and 'patterns'"):
        book(tmp_path, RULE.replace(PATTERN, keys))


def test_a_boolean_is_compared_as_one(tmp_path):
    """``true`` is not the word True."""
    sign = '[[sign]]\nkind = "event"\nname = "e"\ntopic = "house"\ngrade = "weak"\nwhere = { fell = true }\n'
    rules = book(tmp_path, RULE + sign)
    events = [Event(topic="house", fields={"fell": value}) for value in (True, False, "True", 1, None)]

    assert [bool(each.sign) for event in events for each in search([event], rules).matches].count(True) == 1


def test_one_of_any_of_is_enough_and_comes_last(tmp_path):
    """Together with all signs one of the others must stand close by."""
    more = """
[[sign]]
kind = "log"
name = "rain"
pattern = 'it rains again'
grade = "hint"
seen = ["it rains again"]

[[sign]]
kind = "together"
name = "both"
signs = ["said"]
any_of = ["rain", "storm"]
in_order = true
grade = "strong"

[[sign]]
kind = "log"
name = "storm"
pattern = 'a storm is here'
grade = "hint"
seen = ["a storm is here"]
"""
    rules = book(tmp_path, RULE + more)
    fell = "distributed.worker - INFO - the house fell on tcp://10.0.0.4:4002\n"

    def shown(text: str) -> set[str]:
        found = diagnose([LogChunk(origin="a", data=text.encode())], rules)
        return {clue.sign for cause in found.causes for clue in cause.evidence}

    assert "both" in shown(f"{fell}distributed.worker - INFO - a storm is here\n")
    assert "both" in shown(f"{fell}distributed.worker - INFO - it rains again\n")
    assert "both" not in shown(f"distributed.worker - INFO - it rains again\n{fell}")
    assert "both" not in shown(fell)


def test_what_causes_share_is_added_to_each_when_rules_are_loaded(tmp_path):
    """Signs against a cause, mitigations and next steps of a shared file are those of the cause."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "storm.toml").write_text("""
id = "storm"
causes = ["house.*"]

[[against]]
kind = "exit"
name = "ended-by-itself"
statuses = [3]
grade = "weak"

[[mitigation]]
do = "Leave."

[[next_step]]
inspect = "the roof"
""")
    cause = book(tmp_path, RULE).cause("house.rule")

    assert [each.name for each in cause.against] == ["ended-by-itself"]
    assert [each.do for each in cause.mitigations] == ["Leave."]
    assert [each.inspect for each in cause.next_steps] == ["the roof"]
