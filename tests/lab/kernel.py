"""Kernel features that the lab uses: memory cgroups (v1 and v2), a small file system, the kernel log.

Each needs permissions. Without them `UnavailableError` gives the reason, and the fault is skipped.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from attrs import frozen

from .processes import LAUNCH, wait_until


class UnavailableError(Exception):
    """The machine or the user's permissions cannot provide what the fault needs."""


@frozen(kw_only=True)
class LabCgroup:
    """A memory cgroup created by the lab."""

    folder: Path
    #: 1 or 2.
    version: int

    @property
    def processes(self) -> Path:
        """The file to which a joining process writes its pid."""
        return self.folder / "cgroup.procs"

    def oom_kills(self) -> int:
        """Return the number of OOM kills in the cgroup."""
        counters = self.folder / ("memory.oom_control" if self.version == 1 else "memory.events")
        counters_by_name = dict(line.split() for line in counters.read_text().splitlines())
        return int(counters_by_name["oom_kill"])


@contextlib.contextmanager
def memory_group(*, limit_bytes: int, name: str = "lab") -> Iterator[LabCgroup]:
    """Create a cgroup below our own, and remove it after its last process.

    Raises:
        UnavailableError: No cgroup version lets us create a memory cgroup.
    """
    name = f"workerdiag-{name}-{os.getpid()}"
    group = _make_v1(name, limit_bytes) or _make_v2(name, limit_bytes)
    if group is None:
        raise UnavailableError("no memory cgroup, of version 1 or 2, may be made below our own")
    try:
        yield group
    finally:
        wait_until(lambda: not group.processes.read_text().strip(), "the cgroup to empty")
        group.folder.rmdir()


def _make_v1(name: str, limit_bytes: int) -> LabCgroup | None:
    own = own_group("memory")
    parent = Path("/sys/fs/cgroup/memory", own.lstrip("/")) if own is not None else None
    if parent is None or not (folder := _made(parent / name)):
        return None
    (folder / "memory.limit_in_bytes").write_text(str(limit_bytes))
    with contextlib.suppress(OSError):  # swap is not accounted everywhere
        (folder / "memory.memsw.limit_in_bytes").write_text(str(limit_bytes))
    return LabCgroup(folder=folder, version=1)


def _make_v2(name: str, limit_bytes: int) -> LabCgroup | None:
    own = own_group("")
    parent = Path("/sys/fs/cgroup", own.lstrip("/")) if own is not None else None
    if parent is None or not (folder := _made(parent / name)):
        return None
    try:
        (folder / "memory.max").write_text(str(limit_bytes))
    except OSError:  # the memory controller is not delegated to our cgroup's children
        folder.rmdir()
        return None
    with contextlib.suppress(OSError):  # not there without swap
        (folder / "memory.swap.max").write_text("0")
    return LabCgroup(folder=folder, version=2)


def own_group(controller: str) -> str | None:
    """Return our cgroup path in the hierarchy of *controller* ("" for version 2), see ``man 7 cgroups``."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(",") and (controller or not controllers):
            return path
    return None


def _made(folder: Path) -> Path | None:
    try:
        folder.mkdir()
    except OSError:
        return None
    return folder


def kill_stranger() -> int:
    """Make the kernel kill a Python process unrelated to Dask, in its own cgroup; return its pid.

    Raises:
        UnavailableError: As for `memory_group`.
    """
    with memory_group(limit_bytes=60 * 10**6, name="stranger") as group:
        command = [sys.executable, "-c", LAUNCH, str(group.processes), sys.executable, "-c", "b'x' * 10**9"]
        with subprocess.Popen(command) as stranger:
            assert stranger.wait() == -signal.SIGKILL
            return stranger.pid


@contextlib.contextmanager
def small_disk(folder: Path, *, size_bytes: int) -> Iterator[Path]:
    """Mount a small tmpfs, which fills up soon.

    Raises:
        UnavailableError: Mounting is not permitted.
    """
    folder.mkdir()
    options = f"size={size_bytes},mode=700"
    mount = ["mount", "-t", "tmpfs", "-o", options, "workerdiag-lab", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as problem:
        raise UnavailableError(f"cannot mount a tmpfs: {problem}") from None
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def kernel_log() -> str:
    """Return the kernel's ring buffer as ``dmesg`` prints it; empty without permission."""
    try:
        return subprocess.run(["dmesg"], check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""


def kernel_log_since(before: str) -> str:
    """Return what the kernel logged after *before* was read."""
    known = set(before.splitlines())
    return os.linesep.join(line for line in kernel_log().splitlines() if line not in known)
