"""A rule for a crash says which exit it explains."""

from __future__ import annotations

import pytest

from workerdiag.authoring.rule_tests import evaluate_rules

RULE = """
id = "house.fire"
revision = 1
title = "The house burnt down"
why = "It burns."
ends = "{ends}"
blame = "platform"
retry = "safe"
explains = {explains}

[[sign]]
kind = "log"
name = "fire"
pattern = 'the whole house burns at (?P<address>\\S+)'
grade = "strong"
seen = ["the whole house burns at 10.0.0.1"]
lookalikes = ["the whole house sleeps at 10.0.0.1"]
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ends", "explains", "is_noted"),
    [
        ("crashed", "[]", True),
        ("crashed", '["code.process-exit"]', False),
        ("standstill", "[]", False),
    ],
)
def test_a_crash_that_explains_no_exit_is_noted(tmp_path, ends, explains, is_noted):
    """On a live cluster the exit shows as well, so its shipped cause would win over the rule."""
    path = tmp_path / "causes" / "house" / "fire.toml"
    path.parent.mkdir(parents=True)
    path.write_text(RULE.format(ends=ends, explains=explains))
    notes = evaluate_rules(tmp_path).unproven
    assert any("name the cause of that exit" in each for each in notes) is is_noted
