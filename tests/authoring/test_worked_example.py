"""The example of docs/writing-a-rule.md passes all that the project asks of a rule."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from workerdiag.authoring.rule_tests import evaluate_rules
from workerdiag.cli import main
from workerdiag.rulebook.toml_folder import read_folder

PAGE = Path(__file__).parents[2] / "docs" / "writing-a-rule.md"


def block(language: str, begins: str) -> str:
    """The code block of the page that begins so, without its indentation."""
    for indent, text in re.findall(rf"(?ms)^( *)```{language}\n(.*?)^ *```$", PAGE.read_text(encoding="utf-8")):
        plain = re.sub(rf"(?m)^{indent}", "", text)
        if plain.lstrip().startswith(begins):
            return plain
    raise AssertionError(f"{PAGE.name} has no block that begins with {begins!r}")


@pytest.fixture
def rules(tmp_path):
    """The folder that the page describes."""
    rule = block("toml", "# our-rules/causes/")
    path = tmp_path / re.search(r"# our-rules/(\S+)", rule)[1]
    path.parent.mkdir(parents=True)
    path.write_text(rule)
    incident = tmp_path / "incidents" / "tuesday"
    incident.mkdir(parents=True)
    (incident / "meta.toml").write_text(block("toml", "about = "))
    (incident / "worker.log").write_text(block("text", "2026-05-04"))
    return tmp_path


def test_the_example_passes_strict_lint(rules):
    """Whoever follows the page has nothing to add."""
    run = CliRunner().invoke(main, ["knowledge", "lint", str(rules), "--strict"])
    assert (run.exit_code, run.output) == (0, f"{rules}: 1 cause, 0 landmarks, no problems\n")


def test_the_example_passes_its_own_tests(rules):
    """Lines, the incident and quiet logs: nothing is unproven."""
    trial = evaluate_rules(rules)
    assert (trial.problems, trial.unproven) == ((), ())
    assert trial.incident_count == 1


def test_the_example_may_be_locked(rules):
    """A new rule has revision 1, and an edit before its first release leaves it there."""
    path = next(rules.glob("causes/*/*.toml"))
    path.write_text(path.read_text().replace('grade = "strong"', 'grade = "moderate"'))
    run = CliRunner().invoke(main, ["knowledge", "lock", str(rules)])
    assert run.exit_code == 0, run.output
    assert next(iter(read_folder(rules).causes)).revision == 1
