"""Signal 9 alone does not say who sent it: memory stays possible."""

from __future__ import annotations

import pytest

from workerdiag import LogText, explain

REPORTS = [
    "2026-05-04 11:22:33,444 - distributed.nanny - INFO - Worker process 4711 was killed by signal 9\n",
    """2026-05-04 11:22:33,444 - distributed.nanny - INFO - Worker process 4711 was killed by signal 9
2026-05-04 11:22:33,454 - distributed.nanny - WARNING - Restarting worker
""",
    "[2026-05-04 11:22:33,444: ERROR/MainProcess] Process 'ForkPoolWorker-31' pid:90 exited with 'signal 9 (SIGKILL)'\n",
    "PM2      | 2026-05-04T11:22:33: App [dask-worker:0] exited with code [0] via signal [SIGKILL]\n",
    "mpirun noticed that process rank 3 with PID 4711 on node n12 exited on signal 9 (Killed).\n",
]


@pytest.mark.parametrize("text", REPORTS)
def test_a_kill_of_which_no_sender_is_known_may_have_been_for_memory(text):
    """Whoever reports it: where no kernel log was read, an unknown sender is not sure, and the kernel is named."""
    chances = {each.id: each.probability for each in explain(logs=LogText(text), timeout="60s").causes}
    assert 0.5 < chances["external.sigkill"] < 0.8
    assert chances["kernel.oom-killer"] > 0.05


def test_a_kernel_log_without_a_kill_speaks_against_memory():
    """It was read, and would have said so."""
    kernel = "[  100.000001] eth0: link becomes ready\n[ 9000.000001] eth0: link is down\n"
    logs = [LogText(REPORTS[0], "nanny"), LogText(kernel, "kernel")]
    chances = {each.id: each.probability for each in explain(logs=logs, timeout="60s").causes}
    assert chances["external.sigkill"] > 0.9
