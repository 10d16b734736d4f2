"""A log may say anything where a number belongs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workerdiag import LogText, explain
from workerdiag.model.normalize import decimal, whole

LINES = """\
2026-05-04 11:22:33,000 - distributed.nanny - WARNING - Worker process still alive after NUMBER seconds, killing
2026-05-04 11:22:33,100 - distributed.nanny - INFO - Worker process NUMBER was killed by signal NUMBER
2026-05-04 11:22:33,200 - distributed.nanny - INFO - Worker process NUMBER exited with status NUMBER
2026-05-04 11:22:33,300 - distributed.core - INFO - Event loop was unresponsive in Worker for NUMBERs.
2026-05-04 11:22:33,400 - distributed.scheduler - ERROR - Task f marked as failed because NUMBER workers died
distributed.scheduler.KilledWorker: Attempted to run task 'f' on NUMBER different workers, but all those workers \
died while running it. The last worker that attempt to run the task was tcp://10.0.0.4:1.
"""


@given(st.text() | st.integers().map(str) | st.floats().map(str))
def test_any_text_is_a_number_or_none(text):
    """What is no number raises nothing, and what is one is finite."""
    assert whole(text) is None or str(whole(text)) == text.lstrip("0") or not text.strip("0")
    number = decimal(text)
    assert number is None or abs(number) < float("inf")


@pytest.mark.parametrize("text", ["9" * 5000, "²", "٣", "-1", "1_0", "", None])
def test_a_whole_number_has_few_plain_digits(text):
    """Thousands of digits, which Python refuses to read, and digits of other scripts are no numbers."""
    assert whole(text) is None


@pytest.mark.parametrize("number", ["9" * 5000, "...", "1.2.3", "0" * 400, "9" * 400])
def test_no_number_in_a_log_ends_the_diagnosis(number):
    """Pids, signals, statuses, seconds and counts that are none leave the rest as it is."""
    said = explain(logs=LogText(LINES.replace("NUMBER", number)))
    assert not [gap for gap in said.gaps if gap.source == "workerdiag"]
