"""
A line of others that tells of an end, in words that nobody has written down, is no "nothing died".
"""

from __future__ import annotations

import pytest

import workerdiag
from workerdiag import LogText

UP = """\
2026-05-04 11:22:30,111 - distributed.nanny - INFO -         Start Nanny at: 'tcp://10.0.0.7:33333'
2026-05-04 11:22:31,222 - distributed.worker - INFO -       Start worker at:      tcp://10.0.0.7:34937
2026-05-04 11:22:31,333 - distributed.worker - INFO -         Registered to:      tcp://10.0.0.1:8786
"""
ENDS = [
    "agent on n12: the allocation has vanished",
    "The batch node was lost.",
    "orchestrator> container geo-3 is unhealthy, replacing it",
    "supervisor says that child 4711 did not answer",
    "FATAL: the allocator gave in",
    "thread 'io' panicked at src/pool.rs:12:5",
    "terminate called without an active exception",
    "Run time limit reached",
    "ship's power failure in hall 2",
    "my worker is dead again",
]
FINE = [
    "If a node is lost, its tasks are computed elsewhere.",
    "no container was killed",
    "0 of 12 jobs crashed",
    "lost 3 rows to NaN",
    "panic mode: off",
    "node n12 is well, container running",
    "Task 12 was cancelled by the user",
    "skipped 3 downloads that failed",
    "done in 12.3 s, exit code 0",
]


def outcome(text: str) -> str:
    return workerdiag.explain(logs=LogText(text)).outcome


@pytest.mark.parametrize("line", ENDS)
def test_a_line_that_tells_of_an_end_bars_the_all_clear(line):
    """
    Who wrote it is unknown, but something came to an end.
    """
    assert outcome(UP + line + "\n") != "no-death"


@pytest.mark.parametrize("line", ENDS)
def test_what_stands_between_messages_of_workers_that_are_well_counts_too(line):
    after = "2026-05-04 11:31:00,100 - distributed.worker - INFO - Run out-of-band function 'ping'\n"
    assert outcome(UP + line + "\n" + after) != "no-death"


@pytest.mark.parametrize("line", FINE)
def test_conditions_denials_and_orderly_ends_bar_nothing(line):
    assert outcome(UP + line + "\n") == "no-death"


def test_an_exception_without_frames_is_not_a_line_of_others():
    """
    A caller shows so what a task raised, whatever the words.
    """
    assert (
        outcome(UP + "acme.errors.RemoteError: the tile server died, its connection was lost\n") == "no-death"
    )


def test_the_words_of_a_failed_task_are_its_own():
    failed = (
        "2026-05-04 11:31:00,100 - distributed.worker - WARNING - Compute Failed\n"
        "Key:       load-7\n"
        "Function:  load\n"
        "args:      (7,)\n"
        "kwargs:    {}\n"
        "Exception: \"ValueError('the sensor was lost')\"\n"
    )
    assert outcome(UP + failed) == "no-death"
