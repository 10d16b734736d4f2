"""
Memory counters of the control group a process lives in: versions 1 and 2 (``man 7 cgroups``).

Standard library only, and a few file reads per look: a worker looks once a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_ROOT = Path("/sys/fs/cgroup")
#: Version 1 says "no limit" with a number near 2**63 (``PAGE_COUNTER_MAX`` in the kernel's page_counter.h).
_NO_LIMIT = 2**60


class MemoryCounters(NamedTuple):
    """
    What the kernel counts for one group; None where it does not say.
    """

    current_bytes: int | None
    #: The least limit of the group and those above it that can be seen from here.
    limit_bytes: int | None
    #: How many processes of the group the kernel killed for want of memory, since the group was made.
    oom_kills: int | None
    peak_bytes: int | None


class MemoryGroup(NamedTuple):
    """
    Where the counters of one group lie.
    """

    folder: Path
    #: 1 or 2.
    version: int

    def read(self) -> MemoryCounters:
        """
        The counters as they are now.
        """
        names = _COUNTER_FILES[self.version]
        return MemoryCounters(
            current_bytes=_read_int(self.folder / names.current),
            limit_bytes=self._limit(names.limit),
            oom_kills=_read_counter(self.folder / names.events, b"oom_kill"),
            peak_bytes=_read_int(self.folder / names.peak),
        )

    def _limit(self, name: str) -> int | None:
        limits = [_read_int(folder / name) for folder in self._with_ancestors()]
        return min((limit for limit in limits if limit is not None and limit < _NO_LIMIT), default=None)

    def _with_ancestors(self) -> Iterator[Path]:
        folder = self.folder
        while folder != _ROOT:
            yield folder
            folder = folder.parent
        yield folder


class _CounterFiles(NamedTuple):
    current: str
    limit: str
    peak: str
    events: str


#: Documentation/admin-guide/cgroup-v1/memory.rst and cgroup-v2.rst of the kernel.
_COUNTER_FILES = {
    1: _CounterFiles(
        "memory.usage_in_bytes", "memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control"
    ),
    2: _CounterFiles("memory.current", "memory.max", "memory.peak", "memory.events"),
}


def find_memory_group(process: str = "self") -> MemoryGroup | None:
    """
    The group that limits the memory of a process; None without one, or where it cannot be seen.

    Inside a container the path that the kernel tells may be one of the host. A group above it, or the
    group itself, is then mounted at the root.
    """
    for version, controller, path in _memory_paths(process):
        parts = path.strip("/").split("/")
        for folder in (_ROOT.joinpath(controller, *parts[above:]) for above in range(len(parts) + 1)):
            if (folder / _COUNTER_FILES[version].current).exists():
                return MemoryGroup(folder, version)
    return None


def _memory_paths(process: str) -> list[tuple[int, str, str]]:
    """
    Version, controller and path of the groups that count memory, the controller of version 1 first.
    """
    found = []
    for line in cgroup_lines(process):
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "memory" in controllers.split(","):
            found.append((1, "memory", path))
        elif not controllers:
            found.append((2, "", path))
    return sorted(found)


def cgroup_lines(process: str = "self") -> list[str]:
    """
    The lines of ``/proc/<process>/cgroup``, which name the container as well; empty where there are none.
    """
    try:
        with Path(f"/proc/{process}/cgroup").open(encoding="utf-8", errors="replace") as file:
            return file.read(16 * 1024).splitlines()
    except OSError:
        return []


def _read_int(path: Path) -> int | None:
    try:
        with path.open("rb") as file:
            return int(file.read(64))
    except (OSError, ValueError):  # "max", where there is no limit
        return None


def _read_counter(path: Path, name: bytes) -> int | None:
    try:
        with path.open("rb") as file:
            for line in file:
                key, _, count = line.partition(b" ")
                if key == name:
                    return int(count)
    except (OSError, ValueError):
        pass
    return None
