"""A worker that leaves in order while it is needed may have been ended by anything."""

from __future__ import annotations

import pytest

from workerdiag import LogText, explain


def line(second: str, text: str, logger: str = "scheduler") -> str:
    return f"2026-05-04 11:22:{second} - distributed.{logger} - INFO - {text}"


BEGAN = line("00,000", "  Scheduler at:     tcp://10.0.0.1:8786")
CAME = line("01,000", "Receive client connection: Client-7d1f-a")
REGISTERED = line("02,000", "Register worker addr: tcp://10.0.0.4:40002 name: 0")
LEFT = (
    line("05,000", "Received 'close-stream' from tcp://10.0.0.4:51000; closing.", "core"),
    line(
        "05,001",
        "Remove worker addr: tcp://10.0.0.4:40002 name: 0 (stimulus_id='handle-worker-cleanup-1795249711.3')",
    ),
)
BACK = line("07,000", "Register worker addr: tcp://10.0.0.4:40009 name: 0")
WENT_NEXT = line("05,300", "Remove client Client-7d1f-a")
WENT_LATER = line("58,000", "Remove client Client-7d1f-a")
STOPPED = line("05,900", "Closing scheduler. Reason: unknown")


def outcome(*lines: str) -> str:
    return explain(logs=LogText("\n".join(lines) + "\n"), timeout="60s").outcome


@pytest.mark.parametrize("after", [(), (BACK,), (BACK, WENT_LATER), (WENT_LATER,)])
def test_a_leave_that_nobody_asked_for_is_not_cleared(after):
    """SIGTERM, the end of its life and an error of its own look the same to a scheduler."""
    assert outcome(CAME, REGISTERED, *LEFT, *after) == "unknown"


@pytest.mark.parametrize("after", [(WENT_NEXT,), (STOPPED,)])
def test_a_leave_at_the_end_of_the_work_is_cleared(after):
    """The worker goes, and clients or the scheduler go with it."""
    assert outcome(CAME, REGISTERED, *LEFT, *after) == "no-death"


def test_a_leave_that_no_client_could_notice_is_cleared():
    """A worker that is started and stopped by hand, between two programs."""
    assert outcome(BEGAN, REGISTERED, *LEFT) == "no-death"


def test_a_leave_in_a_part_of_a_log_is_not_cleared():
    """A client may have come before that part begins."""
    assert outcome(REGISTERED, *LEFT) == "unknown"
    assert outcome(REGISTERED, *LEFT, STOPPED) == "no-death"


@pytest.mark.parametrize("is_asked_first", [True, False])
def test_an_order_to_stop_that_comes_after_the_loss_clears_nothing(is_asked_first):
    """A cluster closes the nanny of a worker whose connection broke, and the scheduler some seconds later."""
    nanny = line("01,500", "        Start Nanny at: 'tcp://10.0.0.4:40001'", "nanny")
    up = line("01,900", "      Start worker at:      tcp://10.0.0.4:40002", "worker")
    order = line("05,002", "Closing Nanny at 'tcp://10.0.0.4:40001'. Reason: nanny-close", "nanny")
    loss = (line("05,000", "Connection to tcp://10.0.0.4:51000 has been closed.", "core"), LEFT[1])
    closed = line("09,010", "Nanny at 'tcp://10.0.0.4:40001' closed.", "nanny")
    end_of_all = line("12,000", "Closing scheduler. Reason: unknown")
    lines = (order, *loss) if is_asked_first else (*loss, order)
    expected = "no-death" if is_asked_first else "unknown"
    assert outcome(BEGAN, nanny, up, REGISTERED, *lines, closed, end_of_all) == expected
