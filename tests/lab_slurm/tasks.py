"""What the tasks of these deaths do; workers import it by its name."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path


def wait(seconds: float = 600.0) -> None:
    """Do nothing."""
    time.sleep(seconds)


def burst(megabytes: int) -> int:
    """Fill memory faster than a nanny looks."""
    held = [bytearray(b"x" * 2**20) for _ in range(megabytes)]
    time.sleep(60)
    return len(held)


def burst_with_nanny(megabytes: int) -> int:
    """Fill memory, where the kernel ends the nanny first."""
    Path(f"/proc/{os.getppid()}/oom_score_adj").write_text("1000")
    return burst(megabytes)


def crash() -> None:
    """Read from address 0."""
    ctypes.string_at(0)


def process() -> int:
    """The worker's process id."""
    return os.getpid()
