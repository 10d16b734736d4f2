"""
Which of the three answers is given: explained, nothing died, could not tell.
"""

from __future__ import annotations

import pytest

import workerdiag
from workerdiag import LogText


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
