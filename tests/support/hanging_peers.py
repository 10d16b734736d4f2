"""Peers that hang as long as a test runs, so that only code that gives up continues.

This needs no clock: whatever waits for such a peer runs into the test's time-out. benchmarks/patience.py
measures how close a source comes to its time budget.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable
from pathlib import Path

import psutil
import pytest

from workerdiag.model.evidence import Evidence, Gap

#: For tests of giving up. SDKs also give up, but only after a minute.
gives_up = pytest.mark.timeout(50)


def only_timed_out(pieces: Iterable[Evidence]) -> bool:
    """Whether the *pieces* are only gaps because of a time-out."""
    return {each.reason if isinstance(each, Gap) else type(each).__name__ for each in pieces} == {"timed-out"}


def hanging_script(pids: Path) -> str:
    """Return a shell script that never ends. It notes its process id in the file *pids*."""
    return f"echo $$ >> {shlex.quote(str(pids))}; exec sleep 36000"


def still_running(pids: Path) -> list[int]:
    """Return the processes in the file *pids* that still run after a wait, because a kill takes a moment."""
    noted = [int(each) for each in pids.read_text().split()]
    assert noted, "nothing was started"
    for _ in range(200):
        running = [each for each in noted if _runs(each)]
        if not running:
            break
        time.sleep(0.05)
    return running


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
