"""A process of its own for a suspect: whatever becomes of it, the caller is told and lives."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from workerdiag.triage.jobs import Failed, run_isolated

MEMORY_BYTES = 2**31


def reasons(results):
    """Why each job failed."""
    return [each.reason for each in results if isinstance(each, Failed)]


def test_the_result_comes_back_whatever_else_is_printed():
    """What the function prints is not taken for its result."""
    assert run_isolated(["a result"], print, MEMORY_BYTES, 60.0) == [None]
    assert run_isolated([7, 8], pow, MEMORY_BYTES, 60.0, 2) == [49, 64]


def test_an_error_is_told_and_ends_nothing():
    """The jobs before and after one that raises have their results."""
    failed = Failed("ValueError: invalid literal for int() with base 10: 'x'")
    assert run_isolated(["1", "x", "2"], int, MEMORY_BYTES, 60.0) == [1, failed, 2]


def test_a_signal_is_told():
    """The reason names the signal that ended the process."""
    assert reasons(run_isolated([signal.SIGKILL], signal.raise_signal, MEMORY_BYTES, 60.0)) == [
        "the process that read it was killed by SIGKILL (9)"
    ]


def test_what_ends_its_process_costs_no_other_job():
    """Of several jobs only those fail that end a process in which they are the first."""
    signals = [0, signal.SIGKILL, 0, signal.SIGKILL, signal.SIGKILL, 0]  # none ends nothing
    results = run_isolated(signals, signal.raise_signal, MEMORY_BYTES, 60.0)
    assert [isinstance(each, Failed) for each in results] == [bool(each) for each in signals]


def test_an_exit_is_told():
    """The reason has the status."""
    assert "status 3" in reasons(run_isolated([3], os._exit, MEMORY_BYTES, 60.0))[0]


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory hold on Linux")
def test_more_memory_than_allowed_ends_it():
    """The process cannot take the machine's memory."""
    assert "status 1: MemoryError" in reasons(run_isolated([2**33], bytes, MEMORY_BYTES, 60.0))[0]


def test_a_process_that_hangs_is_ended():
    """The reason says after which time."""
    import time

    assert "more than 1 s" in reasons(run_isolated([60], time.sleep, MEMORY_BYTES, 1.0))[0]
