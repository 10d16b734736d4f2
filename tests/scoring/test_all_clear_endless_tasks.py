"""Where tasks run, whether they may never end."""

from __future__ import annotations

import pytest

from support.diagnoses import FixedSource
from workerdiag import explain
from workerdiag.model.evidence import Event, Inspected

ASKED = [Inspected(place=each) for each in ("worker states", "task states", "scheduler events")]


def told(**fields):
    """What is said of a scheduler that stands so."""
    state = {"workers": 2, "running_workers": 2, "waiting_tasks": 0, "lost_unasked": 0, **fields}
    return explain(sources=[FixedSource((Event(topic="scheduler-state", fields=state), *ASKED))])


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"starved_tasks": 6, "threads_taken_s": 9.2}, "6 tasks wait that running tasks asked for"),
        ({"starved_tasks": 1, "threads_taken_s": 5.0}, "1 task waits that running tasks asked for"),
        ({"overdue_tasks": 1}, "1 task has run for more than a minute, and for ten times"),
        (
            {"idle_tasks": 2},
            "2 tasks have run for more than a minute on workers that use hardly any processor",
        ),
    ],
)
def test_there_is_no_all_clear_over_tasks_that_may_never_end(fields, said):
    """Tasks that wait for tasks of their own with no thread left, and one far slower than its kind."""
    found = told(**fields)
    assert found.outcome == "unknown"
    assert found.summary.startswith(said)
    assert "client.call_stack()" in found.next_steps[0].command


@pytest.mark.parametrize(
    "fields",
    [
        {"overdue_tasks": 0, "idle_tasks": 0},
        {"starved_tasks": 0, "threads_taken_s": 900.0},
        {"starved_tasks": 6, "threads_taken_s": 0.4},
    ],
)
def test_tasks_that_run_are_no_trouble(fields):
    """Nor are those that were begun a moment ago."""
    assert told(**fields).outcome == "no-death"
