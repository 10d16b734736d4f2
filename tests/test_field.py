"""Incidents as people report them: part of a log, one side's view, no known end.

They measure whether the probabilities are right (``tools/calibrate.py``). The text of several does not show
the cause, so unlike in ``tests/cases`` a wrong answer does not fail a test.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import workerdiag
from workerdiag.authoring.rule_tests import read_incidents, unknown_expectations

FIELD = Path(__file__).parent / "field"
INCIDENTS = read_incidents(FIELD)


def test_field_incidents_expect_what_can_be_answered():
    """Every expected answer is a cause that ships, or an outcome."""
    assert list(unknown_expectations(INCIDENTS, workerdiag.load_rulebook(packs=False))) == []


@pytest.mark.parametrize("outcome", ["unknown", "no-death"])
def test_field_incidents_hold_what_is_easily_told_wrongly(outcome):
    """At least a fifth of them name no cause: calibration on explained deaths alone would flatter us."""
    assert sum(outcome in each.expected for each in INCIDENTS) * 5 >= len(INCIDENTS)


def test_field_incidents_are_told_as_made_up():
    """None claims to be a recording, and each is marked quiet exactly when nothing went wrong."""
    for each in INCIDENTS:
        assert each.origin == "built", each.name
        assert each.quiet == ("no-death" in each.expected), each.name
