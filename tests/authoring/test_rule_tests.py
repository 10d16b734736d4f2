"""Trying a folder of rules: its examples, its whole incidents, and the quiet of healthy clusters."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import sample_rule
from workerdiag.authoring.rule_tests import RuleEvaluation, evaluate_rules, read_incidents
from workerdiag.errors import RuleFileError
from workerdiag.rulebook.load import shipped_folder

RULE = (
    sample_rule.RULE.replace("house.rule", "house.fell")
    + 'lookalikes = ["distributed.worker - INFO - the house fell silent"]\n'
)
FELL = (
    "2026-05-04 11:22:33,444 - distributed.nanny - INFO - the house fell on tcp://10.0.0.4:4002\n"
    "2026-05-04 11:22:33,544 - distributed.nanny - INFO - Worker process 129 was killed by signal 9\n"
)
CALM = (
    "2026-05-04 11:22:33,444 - distributed.nanny - INFO -         Start Nanny at: 'tcp://10.0.0.4:40001'\n"
    "2026-05-04 11:24:33,444 - distributed.nanny - INFO - Closing Nanny at 'tcp://10.0.0.4:40001'. Reason: nanny-close\n"
)
#: More than the quiet logs that ship may have, in bytes.
MOST_QUIET_BYTES = 100_000


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """A folder with one good rule."""
    write(tmp_path / "causes" / "house" / "fell.toml", RULE)
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def incident(folder: Path, name: str, log: str, meta: str) -> None:
    write(folder / name / "worker.log", log)
    write(folder / name / "meta.toml", meta)


def test_a_good_rule_with_an_incident_is_proven(rules):
    """Lines, an incident and quiet logs of its own: nothing to complain of, nothing left to prove."""
    incident(rules / "incidents", "fell", FELL, 'expected = ["house.fell"]')
    write(rules / "quiet" / "night.log", CALM)
    write(rules / "quiet.txt", "# calm\ndistributed.worker - INFO - the house fell silent\n")
    trial = evaluate_rules(rules)

    assert (trial.problems, trial.unproven) == ((), ())
    assert trial.incident_count == 1
    assert trial.quiet_count > 1  # ours as well


def test_what_nothing_shows_is_not_proven_but_no_problem(rules):
    """A rule without lookalikes and without an incident is told, and passes."""
    write(rules / "causes" / "house" / "fell.toml", RULE[: RULE.index("lookalikes")])
    trial = evaluate_rules(rules)

    assert trial.problems == ()
    assert trial.unproven == (
        "house.fell said: has no `lookalikes` line",
        "house.fell: no whole incident shows it",
    )


def only_problem(trial: RuleEvaluation) -> str:
    (problem,) = trial.problems
    return problem


def test_an_incident_explained_otherwise_tells_what_was_said_instead(rules):
    """The message names the incident, what was expected, and what was said with which chance."""
    incident(rules / "incidents", "fell", FELL, 'expected = ["kernel.oom-killer"]')
    problem = only_problem(evaluate_rules(rules))

    assert problem.startswith("incident fell: expected kernel.oom-killer; said house.fell 0.9")


def test_an_incident_that_is_not_explained_tells_the_outcome(rules):
    """The answer "nothing died" where a cause was expected is wrong too."""
    incident(rules / "incidents", "fell", CALM, 'expected = ["house.fell"]')

    assert only_problem(evaluate_rules(rules)) == "incident fell: expected house.fell; said no-death"


def test_incidents_of_another_folder_are_tried_as_well(rules, tmp_path_factory):
    """A folder of incidents need not lie beside the rules."""
    other = tmp_path_factory.mktemp("deaths")
    incident(other, "fell", FELL, 'expected = ["house.fell"]')
    trial = evaluate_rules(rules, incidents=[other])

    assert trial.incident_count == 1
    assert trial.problems == trial.unproven == ()


@pytest.mark.slow
def test_a_quiet_incident_may_only_name_what_it_expects(rules):
    """A stop that was asked for may be named in a quiet incident; a cause that is not expected may not."""
    incident(rules / "incidents", "calm", FELL, 'expected = ["no-death"]\nquiet = true')
    incident(rules / "incidents", "named", FELL, 'expected = ["house.fell"]\nquiet = true')
    problem = only_problem(evaluate_rules(rules))

    assert problem.startswith("quiet incident calm: house.fell gets 0.9")
    assert "sign said" in problem


def test_a_folders_own_quiet_logs_must_stay_quiet(rules):
    """A file in ``quiet/`` and a line in ``quiet.txt`` in which the rule sees its cause are problems."""
    write(rules / "quiet" / "night.log", FELL)
    write(rules / "quiet.txt", "distributed.worker - INFO - the house fell on tcp://10.0.0.4:4002\n")
    said = "\n".join(evaluate_rules(rules).problems)

    assert "quiet log quiet/night.log: house.fell gets" in said
    assert "quiet line 'distributed.worker - INFO - the house fell on" in said


def test_a_rule_that_shouts_at_healthy_clusters_fails_on_what_ships(rules):
    """Who has no quiet logs of their own is tried on ours, with their rules added."""
    loud = RULE.replace("the house fell on (?P<worker>\\w+://\\S+)", "Start Nanny at:|the house fell on")
    write(rules / "causes" / "house" / "fell.toml", loud)
    said = "\n".join(evaluate_rules(rules).problems)

    assert "quiet log quiet/working-day.one.log: house.fell gets" in said
    assert "quiet line " in said


def test_a_name_that_nobody_can_answer_is_a_problem(rules):
    """A typo in ``expected`` is told as one."""
    incident(rules / "incidents", "fell", FELL, 'expected = ["house.fell", "house.flel"]')

    assert (
        only_problem(evaluate_rules(rules)) == "incident fell: expects house.flel, which is no cause and no outcome"
    )


def test_all_mistakes_of_incidents_are_told_at_once(tmp_path):
    """Each mistake with the incident's name and the key."""
    incident(tmp_path, "a", FELL, "expected = ")
    incident(tmp_path, "b", FELL, 'expected = "house.fell"\nquiet = "no"\nmood = "calm"\nabout = 1')
    write(tmp_path / "c" / "meta.toml", 'expected = ["house.fell"]')
    write(tmp_path / "d" / "worker.log", FELL)
    with pytest.raises(RuleFileError) as caught:
        read_incidents(tmp_path)

    said = str(caught.value)
    for expected in (
        "a: meta.toml: ",
        "b: meta.toml: .expected: expected a list, got 'house.fell'",
        "b: meta.toml: .quiet: expected boolean, got 'no'",
        "b: meta.toml: .: unknown key mood",
        "b: meta.toml: .about: expected string, got 1",
        "c: holds no text",
        "d: has no meta.toml",
    ):
        assert expected in said


def test_a_folder_without_incidents_is_told_what_belongs_there(rules, tmp_path_factory):
    """A wrong path does not pass for "all incidents are explained"."""
    with pytest.raises(RuleFileError, match="holds no incident"):
        evaluate_rules(rules, incidents=[tmp_path_factory.mktemp("empty")])


def test_the_quiet_logs_that_ship_are_few_and_tell_nothing_of_their_machine():
    """They are in every wheel, so they stay small."""
    files = list((shipped_folder() / "quiet").iterdir())

    assert files
    assert sum(path.stat().st_size for path in files) < MOST_QUIET_BYTES
    for path in files:
        text = path.read_text(encoding="utf-8")
        for private in ("/root/", "/tmp/", "/work/", "/process_api/"):
            assert private not in text, f"{private} in {path.name}"
