"""
Peers that hang for as long as a test lasts, so that only who gives up by itself gets on.

No clock is needed for that: whatever waits for such a peer ends with the test's own time-out. How close to
its budget a source comes is measured by benchmarks/patience.py.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable
from pathlib import Path

import psutil
import pytest

from workerdiag.model.evidence import Evidence, Gap

#: For tests of who gives up; SDKs do so by themselves, but only after a minute.
gives_up = pytest.mark.timeout(50)


def only_timed_out(pieces: Iterable[Evidence]) -> bool:
    """
    Whether there are gaps for want of time among the *pieces*, and nothing else.
    """
    return {each.reason if isinstance(each, Gap) else type(each).__name__ for each in pieces} == {"timed-out"}


def hanging_script(pids: Path) -> str:
    """
    Shell text that never ends; the number of its process is noted in the file *pids*.
    """
    return f"echo $$ >> {shlex.quote(str(pids))}; exec sleep 36000"


def still_running(pids: Path) -> list[int]:
    """
    Those noted in the file *pids* that still run once it is clear that they do: a kill takes a moment.
    """
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
