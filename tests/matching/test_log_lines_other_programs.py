"""What logs of a shared machine say about programs that are no worker."""

import pytest

import workerdiag
from workerdiag import LogText

RUNNING = """\
2026-05-04 11:00:00,111 - distributed.nanny - INFO -         Start Nanny at: 'tcp://10.0.0.4:33333'
2026-05-04 11:00:01,444 - distributed.worker - INFO -       Start worker at:      tcp://10.0.0.4:3493
2026-05-04 11:00:02,444 - distributed.worker - INFO -         Registered to:      tcp://10.0.0.1:8786
"""
ENDS = [
    "May  4 11:00:05 node17 systemd[1]: nginx.service: Main process exited, code=killed, status=11/SEGV\n",
    "May  4 11:00:05 node17 kernel: [1234.5] mysqld[812]: segfault at 0 ip 00007f0 sp 00007ffd error 4 in libc.so\n",
    "redis-1 exited with code 139\n",
    "           PID: 4711 (chrome)\n        Signal: 11 (SEGV)\n       Message: Process 4711 (chrome) of user 1000 dumped core.\n",
]


@pytest.mark.parametrize("end", ENDS)
def test_a_crash_of_another_program_is_no_death(end):
    """It stands in the same log, and no worker died of it."""
    diagnosis = workerdiag.explain(logs=LogText(end + RUNNING))
    assert diagnosis.outcome == "no-death"
    assert not diagnosis.deaths


@pytest.mark.parametrize("end", ENDS)
def test_a_crash_of_another_program_alone_says_nothing(end):
    """Nothing in such a log is about Dask; a log of the kernel would not show each death."""
    assert workerdiag.explain(logs=LogText(end)).outcome in ("no-evidence", "unknown")


def test_a_crash_of_a_worker_beside_one_of_another_program_counts():
    """Only the message about the other program is left out."""
    death = (
        "May  4 11:00:06 node17 systemd[1]: dask-worker.service: Main process exited, code=killed, status=11/SEGV\n"
    )
    diagnosis = workerdiag.explain(logs=LogText(RUNNING + ENDS[0] + death))
    assert diagnosis.top is not None
    assert diagnosis.top.id == "signal.segfault"


def test_a_death_that_an_end_of_another_program_follows_counts():
    """A line without header belongs to the message before it, and says nothing of that message."""
    death = "2026-05-04 11:00:04,444 - distributed.nanny - INFO - Worker process 71 was killed by signal 11\n"
    diagnosis = workerdiag.explain(logs=LogText(RUNNING + death + ENDS[2]))
    assert diagnosis.top is not None
    assert diagnosis.top.id == "signal.segfault"
