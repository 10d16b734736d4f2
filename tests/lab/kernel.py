"""
What the lab asks of the kernel: memory cgroups (v1 and v2), a small file system, the kernel log.

Each needs rights that not everybody has; who lacks them gets `UnavailableError` with the
reason, and the fault is skipped.
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
    """
    The machine, or the user, cannot provide what the fault needs.
    """


@frozen(kw_only=True)
class LabCgroup:
    """
    A memory cgroup of our own.
    """

    folder: Path
    #: 1 or 2.
    version: int

    @property
    def processes(self) -> Path:
        """
        The file that a process joins by.
        """
        return self.folder / "cgroup.procs"

    def oom_kills(self) -> int:
        """
        How many processes the kernel killed in it for want of memory.
        """
        counters = self.folder / ("memory.oom_control" if self.version == 1 else "memory.events")
        counters_by_name = dict(line.split() for line in counters.read_text().splitlines())
        return int(counters_by_name["oom_kill"])


@contextlib.contextmanager
def memory_group(*, limit_bytes: int, name: str = "lab") -> Iterator[LabCgroup]:
    """
    A new group below our own one, gone again with its last process.

    Raises:
        UnavailableError: Neither version has a memory controller that we may divide.
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
    except OSError:  # the memory controller is not delegated to children of our group
        folder.rmdir()
        return None
    with contextlib.suppress(OSError):  # not there without swap
        (folder / "memory.swap.max").write_text("0")
    return LabCgroup(folder=folder, version=2)


def own_group(controller: str) -> str | None:
    """
    Path of our group in the hierarchy of *controller* (empty: version 2), see ``man 7 cgroups``.
    """
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
    """
    Let the kernel kill a Python that is none of Dask's, in a group of its own; returns its process id.

    Raises:
        UnavailableError: As `memory_group`.
    """
    with memory_group(limit_bytes=60 * 10**6, name="stranger") as group:
        command = [sys.executable, "-c", LAUNCH, str(group.processes), sys.executable, "-c", "b'x' * 10**9"]
        with subprocess.Popen(command) as stranger:
            assert stranger.wait() == -signal.SIGKILL
            return stranger.pid


@contextlib.contextmanager
def small_disk(folder: Path, *, size_bytes: int) -> Iterator[Path]:
    """
    A file system in memory that is soon full.

    Raises:
        UnavailableError: We may not mount.
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
    """
    The kernel's ring buffer as ``dmesg`` prints it; empty where it may not be read.
    """
    try:
        return subprocess.run(["dmesg"], check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""


def kernel_log_since(before: str) -> str:
    """
    What the kernel wrote after *before* was read.
    """
    known = set(before.splitlines())
    return os.linesep.join(line for line in kernel_log().splitlines() if line not in known)
