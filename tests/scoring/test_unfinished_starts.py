"""Workers whose start came to no end, in logs that say no more."""

from __future__ import annotations

import pytest

from workerdiag import Diagnosis, LogText, explain

IMPORT = "2026-05-04 11:22:30,100 - distributed.preloading - INFO - Import preload module: /srv/app/setup.py"
RELOAD = "2026-05-04 11:22:30,101 - distributed.utils - INFO - Reload module setup from .py file"
NANNY = "2026-05-04 11:22:30,200 - distributed.nanny - INFO -         Start Nanny at: 'tcp://10.0.0.4:40001'"
SET_UP = "2026-05-04 11:22:31,300 - distributed.preloading - INFO - Run preload setup: /srv/app/setup.py"
WORKER = "2026-05-04 11:22:31,400 - distributed.worker - INFO -       Start worker at:  tcp://10.0.0.4:40002"
REGISTERED = "2026-05-04 11:22:31,450 - distributed.worker - INFO -         Registered to:  tcp://10.0.0.1:8786"
SCHEDULER = "2026-05-04 11:22:31,400 - distributed.scheduler - INFO -   Scheduler at:    tcp://10.0.0.1:8786"
CLOSED = "2026-05-04 11:22:31,500 - distributed.nanny - INFO - Closing Nanny at 'tcp://10.0.0.4:40001'"
DIED = "2026-05-04 11:22:31,500 - distributed.nanny - INFO - Worker process 7001 was killed by signal 11"


def of_log(*lines: str) -> Diagnosis:
    return explain(logs=[LogText("\n".join(lines) + "\n", "worker")], timeout="60s")


@pytest.mark.parametrize("lines", [(RELOAD,), (IMPORT,), (IMPORT, SET_UP), (IMPORT, NANNY, IMPORT, SET_UP)])
def test_a_log_that_ends_while_code_is_preloaded_is_not_cleared(lines):
    """A preload that crashes a worker without a nanny, or the nanny itself, leaves these lines and no more."""
    assert of_log(*lines).outcome == "unknown"


@pytest.mark.parametrize(
    "lines",
    [
        (IMPORT, NANNY, SET_UP, WORKER, REGISTERED),
        (NANNY, WORKER, REGISTERED, RELOAD),
        (IMPORT, SCHEDULER, SET_UP),
    ],
)
def test_a_preload_of_what_came_up_says_nothing(lines):
    """Schedulers run it last, nannies first; a file that is uploaded is loaded again while all runs."""
    assert of_log(*lines).outcome == "no-death"


@pytest.mark.parametrize("lines", [(NANNY,), (NANNY, WORKER), (NANNY, CLOSED), (NANNY, WORKER, CLOSED)])
def test_a_start_that_ends_before_the_worker_registers_is_not_cleared(lines):
    """The log was cut there, or the worker ended; older nannies do not say why they close."""
    assert of_log(*lines).outcome == "unknown"


def test_a_start_without_an_end_is_not_told_as_something_wrong():
    assert of_log(NANNY).summary.startswith("A process began to start, and the evidence does not show")


def test_no_task_is_blamed_where_no_worker_came_up():
    """Before a worker is up it runs what it was told to load, and no task."""
    assert of_log(IMPORT, NANNY, IMPORT, SET_UP, DIED).blame.verdict == "environment"
    assert of_log(NANNY, WORKER, DIED).blame.verdict == "task"
