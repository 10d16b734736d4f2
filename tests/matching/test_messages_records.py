"""Records of ``client.get_worker_logs()``, saved as JSON or printed: each worker's newest first."""

from __future__ import annotations

import json
import pprint
from collections.abc import Callable, Mapping

import pytest

from workerdiag import LogText, explain
from workerdiag.matching.repair import split_log_records

NEWER = "2026-11-21 08:07:07,700 - distributed.worker - INFO -         Registered to:      tcp://10.0.0.1:8786"
QUOTED = '2026-11-21 08:07:07,650 - app - INFO - it\'s "so", \\o/'
OLDER = "2026-11-21 08:07:07,624 - distributed.worker - INFO - Waiting to connect to:      'tcp://10.0.0.1:8786'"
FAILED = """\
2026-11-21 08:09:07,624 - distributed.worker - ERROR - Compute Failed
Key:       load-17
Exception: "KeyError('station')"
"""
LOGS = {
    "tcp://10.0.0.4:4001": [("INFO", NEWER), ("INFO", QUOTED), ("INFO", OLDER)],
    "tcp://10.0.0.5:4001": [("INFO", OLDER)],
}


def indented(logs: Mapping[str, object]) -> str:
    return json.dumps(logs, indent=1)


@pytest.mark.parametrize("written", [json.dumps, indented, repr, pprint.pformat])
def test_the_records_of_each_worker_come_in_the_order_in_which_they_were_written(
    written: Callable[[object], str],
):
    """JSON on one line or many, as printed, and as printed by pprint, which cuts long texts."""
    lines = split_log_records(written(LOGS).encode())
    assert lines is not None
    assert [line.decode() for _, line in lines] == [OLDER, QUOTED, NEWER, OLDER]


def test_each_line_says_where_its_record_stands():
    """A record of several lines stands in one line of JSON."""
    lines = split_log_records(indented({"tcp://10.0.0.4:4001": [["ERROR", FAILED]]}).encode())
    assert lines is not None
    assert [number for number, _ in lines] == [5, 5, 5]


@pytest.mark.parametrize("text", ["", "{", '{"a": [1, 2]}', OLDER, '["INFO", "cut off in the mid', "("])
def test_what_is_something_else_stays_as_it_is(text: str):
    """Only what begins as such a document, with whole records, is one."""
    assert split_log_records(text.encode()) is None


def test_a_worker_that_has_registered_does_not_wait():
    """Read from its end it seemed to."""
    one = {"tcp://10.0.0.4:4001": LOGS["tcp://10.0.0.4:4001"]}
    summary = explain(logs=LogText(indented(one)), timeout="60s").summary
    assert "Waiting to connect" not in summary


def test_a_task_that_two_copies_of_a_log_tell_of_failed_once():
    """The file, and what the worker answered when it was asked."""
    logs = [LogText(OLDER + "\n" + FAILED), LogText(indented({"w": [["ERROR", FAILED], ["INFO", OLDER]]}))]
    assert "2 tasks" not in explain(logs=logs, timeout="60s").summary


def test_tasks_that_fail_alike_in_one_moment_are_as_many_as_one_log_tells():
    """A copy of the log adds none."""
    ended = "2026-11-21 08:10:00,000 - distributed.worker - INFO - Stopping worker at tcp://10.0.0.4:4001. Reason: worker-close\n"
    text = OLDER + "\n" + NEWER + "\n" + FAILED + FAILED.replace("17", "18") + ended
    summary = explain(logs=[LogText(text), LogText(text)], timeout="60s").summary
    assert "2 tasks failed" in summary
