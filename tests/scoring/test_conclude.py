"""
Which of the three answers is given: explained, nothing died, could not tell.
"""

from __future__ import annotations

import pytest
from attrs import evolve

import workerdiag
from workerdiag import LogText, load_rulebook
from workerdiag.correlation.incident import assemble
from workerdiag.model.evidence import Gap
from workerdiag.scoring.conclude import conclude

BOOK = load_rulebook()


@pytest.mark.parametrize(
    "text",
    [
        "distributed.scheduler.KilledWorker: Attempted to run task",
        "KilledWorker: (\"('getitem-4f7d', 3)\", <Worker",
    ],
)
def test_a_killed_worker_that_was_cut_short_is_a_death_of_unknown_cause(text):
    """
    A title or a table shows half of the message; that nothing died would be wrong.
    """
    assert workerdiag.explain(logs=LogText(text)).outcome == "unknown"


def test_the_same_trouble_is_told_once():
    """
    Eight victims on one machine whose log cannot be read are one gap, not eight.
    """
    gap = Gap(source="journal", reason="forbidden", detail="of others", remedy="journalctl _PID=1")
    found = conclude(assemble([], []), BOOK, gaps=[gap, evolve(gap, remedy="journalctl _PID=2")], version="")

    assert found.gaps == (gap,)


def test_of_thousands_of_deaths_all_are_listed():
    """
    Not all are judged, which would take longer than anybody waits.
    """
    line = "2026-05-04 11:{:02d}:{:02d},444 - distributed.nanny - INFO - Worker process {} was killed by signal 11\n"
    log = "".join(line.format(number // 60 % 60, number % 60, 7000 + number) for number in range(700))
    diagnosis = workerdiag.explain(logs=LogText(log), timeout="100s")

    assert diagnosis.top is not None
    assert diagnosis.top.id == "signal.segfault"
    assert len(diagnosis.deaths) == 700
