"""Which process this is, such that no other one is ever taken for it: pids are used again.

Read from ``/proc`` (man 5 proc); what a system does not have is left unknown.
"""

from __future__ import annotations

import os
import socket
import sys
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path

from workerdiag._version import __version__


def process_identity() -> Mapping[str, str]:
    """Return the identity of this process as text; unknown parts are left out.

    ``host``, ``pid``, ``started_ms`` (milliseconds from the start of the machine to that of the
    process), ``started`` (the same in seconds since the epoch), ``boot_id``, ``pid_namespace``,
    ``python``, ``workerdiag``.
    """
    pid = os.getpid()
    started_ms = process_start_ms(pid)
    known = {
        "host": socket.gethostname(),
        "pid": str(pid),
        "started_ms": "" if started_ms is None else str(started_ms),
        "started": "" if started_ms is None else f"{_boot_time() + started_ms / 1e3:.2f}",
        "boot_id": boot_id(),
        "pid_namespace": pid_namespace(),
        "python": ".".join(map(str, sys.version_info[:3])),
        "workerdiag": __version__,
    }
    return {name: value for name, value in known.items() if value}


def process_start_ms(pid: int) -> int | None:
    """When a process started, in milliseconds since the machine did; None without such a process or ``/proc``."""
    try:
        with Path(f"/proc/{pid}/stat").open("rb") as file:
            stat = file.read(4096)
        # Field 22, counted from 1; the second, a name in parentheses, may hold blanks and parentheses.
        ticks = int(stat[stat.rindex(b")") + 2 :].split()[19])
        return ticks * 1000 // os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def is_running(pid: int, started_ms: int) -> bool:
    """Whether the very process with this pid and start is still there, in this pid namespace.

    A zombie is not: it ended, and only its parent has not asked how.
    """
    try:
        with Path(f"/proc/{pid}/stat").open("rb") as file:
            state = file.read(4096).rpartition(b")")[2].split()[:1]
    except OSError:
        return False
    return state not in ([b"Z"], [b"X"]) and process_start_ms(pid) == started_ms


def boot_id() -> str:
    """Which start of the machine this is; empty if not known. Containers of one kernel have the same."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()[:64]
    except (OSError, ValueError):
        return ""


def pid_namespace() -> str:
    """In which of the kernel's lists of pids this process stands, as ``pid:[4026531836]``; empty if not known."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _boot_time() -> float:
    """When the machine started, in seconds since the epoch, by today's clock."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def call_in_children(method: Callable[[], None]) -> None:
    """Call *method* in each forked child, as long as its object lives; such a call cannot be taken back."""
    known = weakref.WeakMethod(method)

    def call() -> None:
        if (alive := known()) is not None:
            alive()

    os.register_at_fork(after_in_child=call)
