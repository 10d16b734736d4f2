"""
Reports of two ends at about one time: one death, or two.
"""

from __future__ import annotations

import pytest

import workerdiag
from workerdiag import LogText

STOP = """2026-05-04 11:22:31,400 - distributed.worker - INFO -       Start worker at:  tcp://10.0.0.5:40002
2026-05-04 11:30:{} - distributed.worker - INFO - Stopping worker at tcp://10.0.0.5:40002. Reason: scheduler-close
"""
DEATH = """2026-05-04 11:22:31,400 - distributed.worker - INFO -       Start worker at:  tcp://10.0.0.4:40002
2026-05-04 11:30:31,450 - distributed.nanny - INFO - Worker process 107 was killed by signal {}
2026-05-04 11:30:31,452 - distributed.nanny - WARNING - Restarting worker
"""


def unexpected_signals(*logs):
    deaths = workerdiag.explain(logs=[LogText(each) for each in logs]).deaths
    return [each.signal for each in deaths if not each.stop_requested]


@pytest.mark.parametrize("stopped_at", ["31,200", "32,450"])
def test_a_crash_is_not_the_stop_of_a_worker_that_no_name_joins_it_with(stopped_at):
    """
    A nanny that reports a pid alone crashed a worker; that of another log closed in order a second from it.
    """
    assert unexpected_signals(DEATH.format(11), STOP.format(stopped_at)) == [11]


def test_a_worker_that_writes_after_a_nannys_report_is_another():
    """
    The dead write nothing; a nanny has the clock of its worker.
    """
    assert unexpected_signals(DEATH.format(9), STOP.format("32,450")) == [9]


def test_a_kill_after_the_order_to_stop_ends_that_worker():
    """
    A nanny kills what does not close in time, and its log may have no more than the pid.
    """
    assert unexpected_signals(DEATH.format(9), STOP.format("31,200")) == []
