"""A worker that is killed writes nothing: its own log alone does not show that it lives."""

from __future__ import annotations

import pytest

from workerdiag import LogText, explain

NANNY = "2026-05-04 11:22:30,111 - distributed.nanny - INFO -         Start Nanny at: 'tcp://10.0.0.7:33333'\n"
UP = """\
2026-05-04 11:22:31,222 - distributed.worker - INFO -       Start worker at:      tcp://10.0.0.7:34937
2026-05-04 11:22:31,223 - distributed.worker - INFO - Waiting to connect to:      tcp://10.0.0.1:8786
2026-05-04 11:22:31,333 - distributed.worker - INFO -         Registered to:      tcp://10.0.0.1:8786
"""
STOPPED = "2026-05-04 11:29:00,100 - distributed.worker - INFO - Stopping worker at tcp://10.0.0.7:34937. Reason: worker-close\n"
ENDED = "2026-05-04 11:29:00,120 - distributed.dask_worker - INFO - End worker\n"
KNOWN = (
    "2026-05-04 11:22:31,333 - distributed.scheduler - INFO - Register worker addr: tcp://10.0.0.7:34937 name: 0\n"
)
KERNEL = "[ 1234.567890] eth0: link becomes ready\n"


@pytest.mark.parametrize("text", [UP, STOPPED + ENDED + UP])
def test_a_log_that_ends_while_its_worker_runs_is_not_cleared(text):
    """After ``kill -9`` it looks the same."""
    diagnosis = explain(logs=LogText(text, "worker"), timeout="60s")
    assert diagnosis.outcome == "unknown"
    assert "The log ends while the worker runs" in diagnosis.summary


def test_whoever_is_told_so_is_sent_to_the_scheduler():
    """It knows whether the worker is still there."""
    first = explain(logs=LogText(UP, "worker"), timeout="60s").next_steps[0]
    assert first.command == "client.scheduler_info()['workers']"


@pytest.mark.parametrize("text", [NANNY + UP, UP + STOPPED + ENDED])
def test_a_log_that_would_tell_of_the_end_is_cleared(text):
    """A nanny says how its worker ended; a worker that leaves takes leave."""
    assert explain(logs=LogText(text, "worker"), timeout="60s").outcome == "no-death"


def test_a_scheduler_tells_whether_its_worker_left():
    """Whatever ended it, the scheduler removes it."""
    logs = [LogText(UP, "worker"), LogText(KNOWN, "scheduler")]
    assert explain(logs=logs, timeout="60s").outcome == "no-death"


def test_a_kernel_does_not_tell_of_those_who_kill():
    """It writes down what it kills itself."""
    logs = [LogText(UP, "worker"), LogText(KERNEL, "kernel")]
    assert explain(logs=logs, timeout="60s").outcome == "unknown"
