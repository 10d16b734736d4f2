"""An error that the code caught and wrote down ended no worker by itself."""

from __future__ import annotations

import pytest

from workerdiag import Diagnosis, LogText, explain

#: By the name of its cause, an error as a program prints it.
ERRORS = {
    "exception.memory-error": "MemoryError",
    "exception.missing-module": "ModuleNotFoundError: No module named 'cupy'",
    "exception.disk-full": "OSError: [Errno 28] No space left on device",
    "exception.permission-denied": "PermissionError: [Errno 13] Permission denied: '/data/x'",
    "exception.too-many-open-files": "OSError: [Errno 24] Too many open files: '/data/x'",
}
RUNNING = (
    "2026-05-04 11:22:01,000 - distributed.worker - INFO -       Start worker at:  tcp://10.0.0.4:40001",
    "2026-05-04 11:22:02,000 - distributed.worker - INFO -         Registered to:  tcp://10.0.0.1:8786",
)
RESTARTED = "2026-05-04 11:22:09,100 - distributed.nanny - WARNING - Restarting worker"


def of_log(*lines: str) -> Diagnosis:
    return explain(logs=[LogText("\n".join(lines) + "\n", "worker")], timeout="60s")


@pytest.mark.parametrize("ending", ["exited with status 1", "exited with status 3", "was killed by signal 15"])
@pytest.mark.parametrize("cause", ERRORS)
def test_an_error_is_not_surely_the_end_of_a_worker_that_ran_on(cause, ending):
    """Python ends with status 1 for an exception that nobody catches, and a task's ends no worker at all."""
    died = f"2026-05-04 11:22:09,000 - distributed.nanny - INFO - Worker process 7001 {ending}"
    diagnosis = of_log(*RUNNING, ERRORS[cause], died, RESTARTED)
    assert {each.id: each.probability for each in diagnosis.causes}.get(cause, 0.0) < 0.8


def test_an_error_that_ends_the_start_is_still_named():
    """A worker that never registered did end of what its main thread did not catch."""
    died = "2026-05-04 11:22:09,000 - distributed.nanny - INFO - Worker process 7001 exited with status 1"
    diagnosis = of_log("Traceback (most recent call last):", ERRORS["exception.missing-module"], died)
    assert diagnosis.top is not None
    assert diagnosis.top.id == "exception.missing-module"
    assert diagnosis.top.probability >= 0.8
