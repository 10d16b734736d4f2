"""A line of others that tells of an end, in words that nobody has written down, is no "nothing died"."""

from __future__ import annotations

import pytest

import workerdiag
from workerdiag import LogText

UP = """\
2026-05-04 11:22:30,111 - distributed.nanny - INFO -         Start Nanny at: 'tcp://10.0.0.7:33333'
2026-05-04 11:22:31,222 - distributed.worker - INFO -       Start worker at:      tcp://10.0.0.7:34937
2026-05-04 11:22:31,333 - distributed.worker - INFO -         Registered to:      tcp://10.0.0.1:8786
"""
AFTER = "2026-05-04 11:31:00,100 - distributed.worker - INFO - Run out-of-band function 'ping'\n"
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
    return workerdiag.explain(logs=LogText(text), timeout="60s").outcome


@pytest.mark.parametrize("line", ENDS)
def test_a_line_that_tells_of_an_end_bars_the_all_clear(line):
    """Who wrote it is unknown, but something came to an end."""
    assert outcome(UP + line + "\n") != "no-death"


@pytest.mark.parametrize("line", ENDS)
def test_what_stands_between_messages_of_workers_that_are_well_counts_too(line):
    assert outcome(UP + line + "\n" + AFTER) != "no-death"


@pytest.mark.parametrize("line", FINE)
def test_conditions_denials_and_orderly_ends_bar_nothing(line):
    assert outcome(UP + line + "\n" + AFTER) == "no-death"


@pytest.mark.parametrize("order", [1, -1])
def test_a_denial_speaks_of_its_own_line(order):
    """That no other job was killed does not deny that this one was."""
    lines = ["no other jobs of this host were killed", "agent: our process group was killed"][::order]
    assert outcome(UP + "\n".join(lines) + "\n" + AFTER) == "unknown"


LAST = [
    "[gridd] contract 7 withdrawn by the tenant",
    "host n7 flushed for a firmware update",
    "no room for the dump, skipped",
    "see you next week",
]


@pytest.mark.parametrize("line", LAST)
def test_a_log_that_ends_in_a_line_that_nobody_knows_is_not_cleared(line):
    """Whoever would have written of the worker's end may have ended with it; the line is quoted."""
    diagnosis = workerdiag.explain(logs=LogText(UP + line + "\n"), timeout="60s")
    assert diagnosis.outcome == "unknown"
    assert f'with a line that no rule knows: "{line}"' in diagnosis.summary


@pytest.mark.parametrize("line", LAST)
def test_a_line_that_nobody_knows_bars_nothing_where_dask_goes_on(line):
    """So it is above another line of Dask's, and where the scheduler's log is there as well."""
    known = "2026-05-04 11:22:31,333 - distributed.scheduler - INFO - Register worker addr: tcp://10.0.0.7:34937 name: 0\n"
    logs = [LogText(UP + line + "\n"), LogText(known, "scheduler")]
    assert outcome(UP + line + "\n" + AFTER) == "no-death"
    assert workerdiag.explain(logs=logs, timeout="60s").outcome == "no-death"


@pytest.mark.parametrize("line", ["loading part 8 of 12", "saved out/8.nc in 3.1 s", "done in 12.3 s, exit code 0"])
def test_a_program_that_says_how_it_goes_on_bars_nothing(line):
    assert outcome(UP + line + "\n") == "no-death"


def test_a_line_like_those_above_is_the_programs_own():
    """It wrote such lines while the worker went on."""
    assert outcome(UP + "sigma=0.31 mu=2.2\n" + AFTER + "sigma=0.29 mu=2.1\n") == "no-death"


def test_an_exception_without_frames_is_not_a_line_of_others():
    """A caller shows so what a task raised, whatever the words."""
    assert outcome(UP + "acme.errors.RemoteError: the tile server died, its connection was lost\n") == "no-death"


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


KNOWN = (
    "2026-05-04 11:22:31,333 - distributed.scheduler - INFO - Register worker addr: tcp://10.0.0.7:34937 name: 0\n"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gridd 4.1\nslot 3 handed on: tenant expired\n", "unknown"),
        ("sacct: cannot reach slurmdbd\n", "unknown"),
        ("result 12.3\nall good\n", "no-death"),
    ],
)
def test_a_log_of_which_nothing_is_known_bars_the_all_clear_where_it_tells_of_an_end(text, expected):
    """Also where the scheduler's log lost nobody: somebody gave it because of something. It is quoted."""
    diagnosis = workerdiag.explain(logs=[LogText(KNOWN), LogText(text)], timeout="60s")
    assert diagnosis.outcome == expected
    assert (f'says: "{text.splitlines()[-1]}"' in diagnosis.summary) == (expected == "unknown")


def test_such_a_log_alone_is_no_evidence():
    assert outcome("slot 3 handed on: tenant expired\n") == "no-evidence"
