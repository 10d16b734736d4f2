"""What `workerdiag.triage` says of arguments that it cannot use, before it does anything."""

from __future__ import annotations

import sys

import pytest

import workerdiag
from workerdiag.errors import TriageError


class AsynchronousClient:
    """As far as is looked at."""

    asynchronous = True


def test_an_asynchronous_client_is_refused(tmp_path):
    """The error says what to do."""
    with pytest.raises(TypeError, match="that is not asynchronous"):
        workerdiag.triage(tmp_path, AsynchronousClient())


@pytest.mark.parametrize(
    "wanted",
    [
        {"share": 0},
        {"share": 2},
        {"part_bytes": 0},
        {"suspect_memory": "much"},
        {"form": "xls", "output": "o"},
    ],
)
def test_values_without_sense_are_refused(tmp_path, wanted):
    """The error says what makes sense."""
    with pytest.raises(ValueError, match=r"share is above 0|form is one of"):
        workerdiag.triage(tmp_path, **wanted)


def test_nothing_to_read_is_no_summary():
    """No deaths in no logs would look like an answer."""
    with pytest.raises(ValueError, match="give paths, folders, patterns or URLs"):
        workerdiag.triage([])


def test_without_pyarrow_it_is_told_before_hours_of_work(tmp_path, monkeypatch):
    """The error names the extra, and the forms that need nothing."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(workerdiag.TableError, match=r"workerdiag\[triage\].*\.csv"):
        workerdiag.triage(tmp_path, output=tmp_path / "out")


def test_nothing_to_read_needs_no_cluster(tmp_path):
    """What is not there is a row, without a cluster being started."""
    result = workerdiag.triage(tmp_path / "gone.log")
    assert [(each.status, each.reason) for each in result.inputs] == [
        ("failed", "no such file: check the path or pattern")
    ]
    assert (result.deaths, result.output) == ((), None)


class ClosedClient:
    """As far as is looked at."""

    asynchronous = False
    status = "closed"


def test_a_closed_client_and_what_is_no_path_are_refused(tmp_path):
    """Each error names the argument, and what to give."""
    with pytest.raises(TriageError, match=r"the client is closed \(give an open one"):
        workerdiag.triage(tmp_path, ClosedClient())
    with pytest.raises(TypeError, match="urls must be paths"):
        workerdiag.triage(None)
