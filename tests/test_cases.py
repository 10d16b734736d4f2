"""Whole incidents, explained from their text alone, in milliseconds and without a cluster.

``origin`` in a case's ``meta.toml`` says where its text comes from: ``recorded`` from a real run
(``python -m tests.lab.record`` writes such folders, without the key), or ``built`` from the formats that
``source`` names.
"""

from __future__ import annotations

import uuid
from functools import cache
from pathlib import Path

import pytest

import workerdiag
from workerdiag.authoring.rule_tests import explain_logs, incident_problems, read_incidents
from workerdiag.matching.scan import Matcher
from workerdiag.model.rules import EventSign, Rulebook

CASES = Path(__file__).parent / "cases"

INCIDENTS = {incident.name: incident for incident in read_incidents(CASES)}


#: More than all texts together may have, in bytes.
MOST_BYTES = 1_500_000


@cache
def shipped() -> tuple[Rulebook, Matcher]:
    """The rules that ship, ready to run."""
    book = workerdiag.load_rulebook(packs=False)
    return book, Matcher(book)


@pytest.mark.parametrize("case", INCIDENTS)
def test_a_case_is_explained_from_its_texts(case):
    """After everything is gone the logs still name the cause, or that it cannot be told from them.

    If nothing went wrong, no cause gets a fifth of the probability; a requested stop is not a cause.
    """
    assert list(incident_problems(INCIDENTS[case], *shipped())) == []


@pytest.mark.parametrize("case", INCIDENTS)
def test_the_chances_of_a_case_sum_to_one(case):
    """All causes and unknown share the whole of our belief, whatever was seen."""
    findings = explain_logs(INCIDENTS[case].logs, *shipped())
    whole = sum(cause.probability for cause in findings.causes) + findings.unknown_probability
    assert whole == pytest.approx(1.0)


def test_every_cause_has_a_whole_incident():
    """Nothing stands in the shipped rulebook that no incident shows; what only a live cluster tells, tests/lab has."""
    shown = {each for incident in INCIDENTS.values() for each in incident.expected}
    told = [cause for cause in workerdiag.load_rulebook().causes if cause.status != "deprecated"]
    causes = {each.id for each in told if not all(isinstance(sign, EventSign) for sign in each.signs)}
    assert causes <= shown, f"without an incident: {sorted(causes - shown)}"


def test_a_case_says_where_its_text_is_from():
    """Recorded, with the releases that wrote it, or built, with the source of its formats."""
    for case, incident in INCIDENTS.items():
        is_built = incident.origin == "built"
        assert incident.source if is_built else (incident.distributed and incident.python), case


def test_the_cases_tell_nothing_of_the_machine_they_were_recorded_on():
    """Only made-up paths stand in the cases, and together they stay small."""
    files = [path for path in CASES.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < MOST_BYTES
    for path in files:
        text = path.read_text()
        for private in ("/root/", "/tmp/", "/work/", "/process_api/", f"{uuid.getnode():012x}"):
            assert private not in text, f"{private} in {path}"


def test_a_task_whose_inputs_fit_no_worker_met_no_refused_allocation():
    """Dask raises MemoryError itself before anything is allocated: no operating system said no."""
    refusal = MemoryError(
        "Task 'len-1' has 1.76 GiB worth of input dependencies, but worker tcp://10.0.0.4:1 has memory_limit set to "
        "400.00 MiB. It seems like you called client.compute() on a huge collection."
    )
    assert workerdiag.explain(refusal).outcome != "explained"
    assert workerdiag.explain(MemoryError()).top.id == "exception.memory-error"


@pytest.mark.parametrize(
    ("case", "action"),
    [
        ("slow-start", "retry"),
        ("nanny-memory-slow", "retry-with-memory"),
        ("sigkill-nanny", "retry-elsewhere"),
        ("segfault", "do-not-retry"),
        ("sigkill-worker", "ask"),
    ],
)
def test_each_policy_is_that_of_a_recorded_death(case, action):
    """What a program may do after a death is decided from what real ones left behind."""
    assert explain_logs(INCIDENTS[case].logs, *shipped()).decision.policy.action == action
