"""
What fuzzing has found stays mended: every input kept in tests/fuzz is tried again.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from fuzz.attempts import ATTEMPTS, seeds  # tools are no part of the package
from fuzz.checks import failures

KEPT = Path(__file__).parent / "fuzz"
CASES = sorted(path for path in KEPT.glob("*") if path.name.partition(".")[0] in ATTEMPTS)


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.name)
def test_what_fuzzing_found_stays_mended(case):
    """
    An input with which something went wrong once does no harm again.
    """
    kind = case.name.partition(".")[0]
    assert [each for each in failures(kind, case.read_bytes()) if not each.startswith("over-budget")] == []


@pytest.mark.parametrize("kind", ATTEMPTS)
def test_every_kind_of_input_can_be_tried(kind):
    """
    What is not mutated does no harm, and is understood for what it is.
    """
    data = seeds(kind)[0]
    assert [each for each in failures(kind, data) if not each.startswith("over-budget")] == []


def test_a_leak_and_a_wrong_all_clear_are_noticed(monkeypatch):
    """
    The checks do see what they are for.
    """
    import workerdiag
    from fuzz import checks, corpus

    hostile = workerdiag.Diagnosis(outcome="no-death", summary=f"a \x1b[0m {corpus.SECRET}")
    monkeypatch.setitem(ATTEMPTS, "log", lambda _: hostile)
    data = corpus.SECRETS[0] + b"\n" + corpus.DEATH
    said = {each.partition(":")[0] for each in checks.failures("log", data)}
    assert said >= {"leaked", "wrong-all-clear"}
