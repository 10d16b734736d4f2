"""Reports of two ends at about one time: one death, or two."""

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
    """A nanny that reports a pid alone crashed a worker; that of another log closed in order a second from it."""
    assert unexpected_signals(DEATH.format(11), STOP.format(stopped_at)) == [11]


def test_a_worker_that_writes_after_a_nannys_report_is_another():
    """The dead write nothing; a nanny has the clock of its worker."""
    assert unexpected_signals(DEATH.format(9), STOP.format("32,450")) == [9]


def test_a_kill_after_the_order_to_stop_ends_that_worker():
    """A nanny kills what does not close in time, and its log may have no more than the pid."""
    assert unexpected_signals(DEATH.format(9), STOP.format("31,200")) == []


def test_workers_that_die_together_ended_in_the_order_in_which_they_were_removed():
    """The nannies of one machine report how, the scheduler who, some hundredths of a second later."""
    nannies = "".join(
        f"2026-05-04 11:30:31,{400 + 6 * number} - distributed.nanny - INFO - Worker process {number} {how}\n"
        for number, how in enumerate(
            ("was killed by signal 11", "exited with status 3", "was killed by signal 9"), 1
        )
    )
    scheduler = "".join(
        f"2026-05-04 11:30:31,{424 + number} - distributed.scheduler - INFO - Remove worker addr: "
        f"tcp://10.0.0.4:4000{number} name: w-{number} (stimulus_id='handle-worker-cleanup-1')\n"
        for number in (1, 2, 3)
    )
    deaths = workerdiag.explain(logs=[LogText(nannies), LogText(scheduler)]).deaths
    assert [(each.identity.worker[-1], each.identity.pid) for each in deaths] == [
        ("1", 1),
        ("2", 2),
        ("3", 3),
    ]
