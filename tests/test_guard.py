"""A block that fails does not fail the program around it, and tells what failed."""

from __future__ import annotations

import asyncio
import logging
import weakref

import pytest

from workerdiag.guard import guarded


def test_what_fails_in_the_block_ends_the_block_alone():
    """The exception is kept, handed to *note*, and the program goes on."""
    noted = []
    with guarded("dividing", noted.append) as division:
        1 / 0  # noqa: B018
    assert isinstance(division.problem, ZeroDivisionError)
    assert noted == [division.problem]


def test_a_block_that_works_has_no_problem():
    """Nothing is noted where nothing fails."""
    with guarded("adding", pytest.fail) as addition:
        pass
    assert addition.problem is None


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_what_ends_a_program_or_a_task_passes(kind):
    """Ctrl-C, an exit and a cancelled task are no failures of ours to hide."""
    with pytest.raises(kind), guarded("waiting"):
        raise kind


def test_the_debug_log_says_what_failed_and_where(caplog):
    """Whoever looks for a fault of ours finds the line; the exception's own text is not made."""
    with caplog.at_level(logging.DEBUG, "workerdiag.guard"), guarded("dividing"):
        1 / 0  # noqa: B018
    (record,) = caplog.records
    assert record.getMessage().startswith("Failed while dividing: ZeroDivisionError\n")
    assert "test_guard.py" in record.getMessage()


def test_a_failing_log_handler_fails_nobody(monkeypatch):
    """The guard does not fail in place of its block."""
    monkeypatch.setattr(logging.Logger, "isEnabledFor", lambda *_: 1 / 0)
    with guarded("dividing") as division:
        1 / 0  # noqa: B018
    assert isinstance(division.problem, ZeroDivisionError)


def test_a_kept_problem_holds_no_frames():
    """What the block held is let go of at once, however large."""

    class Large:
        pass

    with guarded("dividing") as division:
        large = Large()
        kept = weakref.ref(large)
        del large
        1 / 0  # noqa: B018
    assert division.problem.__traceback__ is None
    assert kept() is None
