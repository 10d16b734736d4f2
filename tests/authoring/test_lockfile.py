"""The lock: an edit of a released rule that can change a diagnosis needs a new revision, and no id vanishes."""

from __future__ import annotations

import json

import pytest
from attrs import evolve

from workerdiag.authoring.lockfile import LOCK_FILE, lock_problems, lock_rules, lock_text, revision_problems
from workerdiag.model.rules import Cause, Landmark, LogSign, Rulebook
from workerdiag.rulebook.load import shipped_folder
from workerdiag.rulebook.toml_folder import read_folder

SIGN = LogSign(name="said", pattern="the house fell", grade="strong", seen=("the house fell",))
RULE = Cause(
    id="house.rule",
    revision=3,
    title="A rule of this house",
    why="Because.",
    ends="killed",
    blame="operator",
    retry="safe",
    signs=(SIGN,),
)
MARK = Landmark(id="house.mark", role="death", pattern="the house fell")
BOOK = Rulebook(schema=1, release="test", causes=(RULE,), landmarks=(MARK,))


def problems(book: Rulebook) -> list[str]:
    return list(revision_problems(json.loads(lock_text(BOOK)), book))


def with_rule(**changes: object) -> Rulebook:
    return evolve(BOOK, causes=(evolve(RULE, **changes),))


@pytest.mark.parametrize(
    "changes",
    [
        {"signs": (evolve(SIGN, pattern="the roof fell"),)},
        {"signs": (evolve(SIGN, grade="weak"),)},
        {"against": (evolve(SIGN, name="other"),)},
        {"explains": ("house.other",)},
        {"frequency": "rare"},
        {"blame": "task"},
    ],
)
def test_an_edit_that_can_change_a_diagnosis_needs_a_revision(changes):
    """Patterns, grades and what a cause explains are not edited in silence."""
    assert problems(with_rule(**changes)) == [
        "house.rule: was edited since revision 3 was released; set revision = 4"
    ]
    assert problems(with_rule(**changes, revision=4)) == []


@pytest.mark.parametrize(
    "changes",
    [{"title": "Better words"}, {"why": "For."}, {"signs": (evolve(SIGN, seen=("the house fell again",)),)}],
)
def test_words_and_examples_are_mended_freely(changes):
    """What cannot change a diagnosis needs no revision."""
    assert problems(with_rule(**changes)) == []


def test_an_id_does_not_vanish():
    """A cause that is no longer wanted is deprecated, not deleted."""
    assert sorted(problems(evolve(BOOK, causes=(), landmarks=()))) == [
        'house.mark: has vanished; keep it, with status = "deprecated" and the reason',
        'house.rule: has vanished; keep it, with status = "deprecated" and the reason',
    ]


def test_a_revision_does_not_go_back():
    """A report's "revision 3" stays what it was."""
    assert problems(with_rule(revision=2)) == ["house.rule: is as revision 3 was released; set revision = 3"]


def test_a_second_edit_before_a_release_needs_no_further_revision():
    """Revisions count releases of a rule, not edits."""
    assert problems(with_rule(blame="task", revision=5)) == [
        "house.rule: was edited since revision 3 was released; set revision = 4"
    ]


def test_a_rule_that_was_never_released_has_revision_1():
    """Nobody has met it, so it is edited freely."""
    assert list(revision_problems({}, with_rule(revision=2))) == [
        "house.rule: was never released; set revision = 1"
    ]
    assert list(revision_problems({}, with_rule(revision=1))) == []


def test_a_landmark_is_locked_too():
    """Deaths are made of landmarks, so an edit of one can change a diagnosis."""
    edited = evolve(BOOK, landmarks=(evolve(MARK, pattern="the roof fell"),))

    assert problems(edited) == ["house.mark: was edited since revision 1 was released; set revision = 2"]


def test_without_a_lock_nothing_was_released(tmp_path):
    """A new folder of rules needs no lock before its first release."""
    assert lock_problems(tmp_path, with_rule(revision=1)) == []


def test_a_lock_that_is_broken_is_said_to_be(tmp_path):
    """The message says what to restore."""
    (tmp_path / "lock.json").write_text("[1]")
    assert lock_problems(tmp_path, BOOK)[0].startswith("lock.json cannot be read")


@pytest.mark.parametrize("content", ["<<<<<<< HEAD\n{}", "[]", '{"house.rule": 3}'])
def test_a_lock_that_is_none_is_not_written_over(tmp_path, content):
    """After a merge with conflicts nobody knows which edits a new lock would hide."""
    path = tmp_path / LOCK_FILE
    path.write_text(content)
    assert "cannot be read" in lock_rules(tmp_path, BOOK)[0]
    assert path.read_text() == content
    path.write_text(lock_text(BOOK))
    assert lock_rules(tmp_path, with_rule(title="Mended words")) == []


def test_the_shipped_rules_keep_their_lock():
    """Whoever edits a released rule here raises its revision."""
    folder = shipped_folder()

    assert lock_problems(folder, read_folder(folder)) == []
