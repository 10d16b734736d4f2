"""
A process of its own for a suspect: whatever becomes of it, the caller is told and lives.
"""

from __future__ import annotations

import os
import signal
import sys

import pytest

from workerdiag.errors import TriageError
from workerdiag.triage.isolated_process import run_isolated

MEMORY_BYTES = 2**31


def test_the_result_comes_back_whatever_else_is_printed():
    """
    What the function prints is not taken for its result.
    """
    assert run_isolated("a result", print, MEMORY_BYTES, 60.0) is None
    assert run_isolated(7, pow, MEMORY_BYTES, 60.0, 2) == 49


def test_a_signal_is_told():
    """
    The error names the signal that ended the process.
    """
    with pytest.raises(TriageError, match=r"SIGKILL \(9\)"):
        run_isolated(signal.SIGKILL, signal.raise_signal, MEMORY_BYTES, 60.0)


def test_an_exit_is_told():
    """
    The error has the status.
    """
    with pytest.raises(TriageError, match="status 3"):
        run_isolated(3, os._exit, MEMORY_BYTES, 60.0)


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory hold on Linux")
def test_more_memory_than_allowed_ends_it():
    """
    The process cannot take the machine's memory.
    """
    with pytest.raises(TriageError, match="status 1: MemoryError"):
        run_isolated(2**33, bytes, MEMORY_BYTES, 60.0)


def test_a_process_that_hangs_is_ended():
    """
    The error says after which time.
    """
    import time

    with pytest.raises(TriageError, match="more than 1 s"):
        run_isolated(60, time.sleep, MEMORY_BYTES, 1.0)
