"""Which process this is, such that a reused pid is never taken for it, and what its control group counts.

Read from ``/proc`` (man 5 proc) and the files of cgroups, versions 1 and 2 (the kernel's
``Documentation/admin-guide/cgroup-v2.rst`` and ``cgroup-v1/memory.rst``, which name files and keys); what a
system lacks is left unknown. Other processes run the text of this module (``sources/host/remote_call.py``): it
takes Python 3.8 and the standard library.
"""

from __future__ import annotations

import os
import socket
import stat
import sys
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple


def process_identity() -> Mapping[str, str]:
    """Return the identity of this process as text; unknown parts are left out.

    ``host``, ``pid``, ``started_ms`` (milliseconds from the start of the machine to that of the
    process), ``started`` (the same in seconds since the epoch), ``boot_id``, ``pid_namespace``,
    ``python``.
    """
    pid = os.getpid()
    started_ms = process_start_ms(pid)
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)  # by today's clock
    known = {
        "host": socket.gethostname(),
        "pid": str(pid),
        "started_ms": "" if started_ms is None else str(started_ms),
        "started": "" if started_ms is None else f"{booted + started_ms / 1e3:.2f}",
        "boot_id": boot_id(),
        "pid_namespace": pid_namespace(),
        "python": ".".join(map(str, sys.version_info[:3])),
    }
    return {name: value for name, value in known.items() if value}


def process_start_ms(pid: int) -> int | None:
    """When a process started, in milliseconds since the machine did; None without such a process or ``/proc``."""
    ticks = _stat_fields(pid)[19:20]
    return int(ticks[0]) * 1000 // os.sysconf("SC_CLK_TCK") if ticks else None


def is_running(pid: int, started_ms: int) -> bool:
    """Whether the very process with this pid and start is still there, in this pid namespace.

    A zombie is not: it ended, and only its parent has not asked how.
    """
    return _stat_fields(pid)[:1] not in (["Z"], ["X"]) and process_start_ms(pid) == started_ms


def _stat_fields(pid: int) -> list[str]:
    """The fields from the third on; the second, a name in parentheses, may hold blanks and parentheses."""
    return _read_text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()


def process_memory(pid: int) -> dict[str, int]:
    """The memory of a process by the names of ``/proc/PID/status`` (``VmRSS``, ``VmData``, ...), in bytes."""
    lines = _read_text(Path(f"/proc/{pid}/status")).splitlines()
    pairs = (line.partition(":")[::2] for line in lines if line.startswith("Vm"))
    return {name: int(size.split()[0]) * 1024 for name, size in pairs if size.endswith("kB")}


def host_available_bytes() -> int | None:
    """Memory that the host could still give without swapping (``man 5 proc``, meminfo); None if not known."""
    for line in _read_text(Path("/proc/meminfo")).splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def boot_id() -> str:
    """Which start of the machine this is; empty if not known. Containers of one kernel have the same."""
    return _read_text(Path("/proc/sys/kernel/random/boot_id")).strip()[:64]


def pid_namespace() -> str:
    """In which of the kernel's lists of pids this process stands, as ``pid:[4026531836]``; empty if not known."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def call_in_children(method: Callable[[], None]) -> None:
    """Call *method* in each forked child, as long as its object lives; such a call cannot be taken back."""
    known = weakref.WeakMethod(method)

    def call() -> None:
        if (alive := known()) is not None:
            alive()

    os.register_at_fork(after_in_child=call)


#: Version 1 writes "no limit" as the largest number of whole pages (``PAGE_COUNTER_MAX``).
UNLIMITED = 2**60
#: Counters of ``memory.events``; those of ``memory.oom_control`` have the same names.
EVENTS = ("high", "max", "oom", "oom_kill", "oom_group_kill")
#: By version: the files of single numbers, of the limit, and of the counted events.
_NUMBERS = {
    1: {
        "current_bytes": "memory.usage_in_bytes",
        "peak_bytes": "memory.max_usage_in_bytes",
        "failcnt": "memory.failcnt",
        "swap_limit_bytes": "memory.memsw.limit_in_bytes",
    },
    2: {
        "current_bytes": "memory.current",
        "peak_bytes": "memory.peak",
        "high_limit_bytes": "memory.high",
        "swap_limit_bytes": "memory.swap.max",
    },
}
_LIMIT = {1: "memory.limit_in_bytes", 2: "memory.max"}
_EVENTS = {1: "memory.oom_control", 2: "memory.events"}


class MemoryCounters(NamedTuple):
    """What the kernel counts for one group; None where it does not say."""

    current_bytes: int | None
    #: The least limit of the group and those above it that can be seen from here.
    limit_bytes: int | None
    #: How many processes of the group the kernel killed for want of memory, since the group was made.
    oom_kills: int | None
    peak_bytes: int | None


class ControlGroup(NamedTuple):
    """Where the files of one group lie."""

    folder: Path
    #: Where its hierarchy is mounted.
    mount: Path
    #: As the kernel tells it, which may be by another namespace.
    path: str
    #: 1 or 2.
    version: int

    def memory_counters(self) -> MemoryCounters:
        """The counters as they are now: a few file reads, for a worker looks once a second."""
        files = _NUMBERS[self.version]
        return MemoryCounters(
            current_bytes=_read_int(self.folder / files["current_bytes"]),
            limit_bytes=self.memory_limit()[0],
            oom_kills=self.events().get("oom_kill"),
            peak_bytes=_read_int(self.folder / files["peak_bytes"]),
        )

    def memory_limit(self) -> tuple[int | None, str]:
        """The tightest limit of the group and those above it, and the path of the group that has it."""
        limits = []
        for folder in [self.folder, *self.folder.parents][:12]:
            limit = _read_int(folder / _LIMIT[self.version])
            if limit is not None:
                limits.append((limit, "/" + str(folder)[len(str(self.mount)) :].strip("/")))
            if folder == self.mount:
                break
        return min(limits) if limits else (None, "")

    def events(self) -> dict[str, int]:
        """Return the counts of `EVENTS`; kills only of processes of this very group.

        Version 2 counts in ``memory.events`` what happens in the groups below as well.
        """
        counts = _event_counts(self.folder / _EVENTS[self.version])
        own = _event_counts(self.folder / "memory.events.local")  # since Linux 5.2
        return counts | {name: own[name] for name in ("oom_kill", "oom_group_kill") if name in own}

    def is_root(self) -> bool:
        """Whether it is the root of the whole hierarchy, also within a container."""
        if self.version == 1:
            return (self.folder / "release_agent").exists()
        return not (self.folder / "cgroup.events").exists()


def read(request: dict[str, object]) -> dict[str, object]:  # noqa: ARG001  as every probe
    """The counters and limits of this process's own group; *request* is not needed.

    Empty without control groups. ``limit_of`` is the path of the group that has the tightest limit.
    """
    group = find_group("memory")
    if group is None:
        return {}
    facts: dict[str, object] = {"version": group.version, "path": group.path, "is_root": group.is_root()}
    facts.update((name, _read_int(group.folder / file)) for name, file in _NUMBERS[group.version].items())
    facts.update(group.events())
    facts.update(_pressure(group.folder))
    limit, limit_of = group.memory_limit()
    if limit is not None:
        facts.update(memory_limit_bytes=limit, limit_of=limit_of)
    pids = find_group("pids")
    if pids is not None:
        facts.update(_pid_counters(pids.folder), pids_path=pids.path)
    return facts


def find_memory_group() -> ControlGroup | None:
    """The group that counts the memory of this process; None without one, or where it cannot be seen."""
    group = find_group("memory")
    counts = group is not None and (group.folder / _NUMBERS[group.version]["current_bytes"]).exists()
    return group if counts else None


def find_group(controller: str) -> ControlGroup | None:
    """The group of this process in the hierarchy of a controller."""
    paths = dict(group_paths(cgroup_lines()))
    for kind, name, version in (("cgroup", controller, 1), ("cgroup2", "", 2)):
        if name not in paths:
            continue
        path, mounts = paths[name], _mounted_hierarchies(kind, name)
        folders = [(_below(mount, root, path), mount) for root, mount in mounts]
        # Without any, the path belongs to another namespace; the mounted one is ours.
        for folder, mount in [*folders, *((Path(mount), mount) for _, mount in mounts)]:
            if ".." not in folder.parts and folder.is_dir() and _has_controller(folder, controller, version):
                return ControlGroup(folder, Path(mount), path, version)
    return None


def cgroup_lines() -> list[str]:
    """Return the lines of ``/proc/self/cgroup``, which also name the container; empty without any."""
    return _read_text(Path("/proc/self/cgroup")).splitlines()


def group_paths(lines: list[str]) -> list[tuple[str, str]]:
    """Controller and path of each group, ``man 7 cgroups``; the controller is empty for version 2."""
    found = []
    for line in lines:
        _, _, group = line.partition(":")
        controllers, _, path = group.partition(":")
        found += [(each, path) for each in controllers.split(",")]
    return found


def _event_counts(file: Path) -> dict[str, int]:
    pairs = (line.split() for line in _read_text(file).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if pair[:1] and pair[0] in EVENTS and pair[-1].isdecimal()}


def _pressure(folder: Path) -> dict[str, float]:
    """Percent of the last ten seconds in which all processes of the group waited for memory."""
    for line in _read_text(folder / "memory.pressure").splitlines():
        if line.startswith("full avg10="):
            return {"full_avg10": float(line.split()[1].partition("=")[2])}
    return {}


def _pid_counters(folder: Path) -> dict[str, object]:
    refused = _read_text(folder / "pids.events").split()
    return {
        "pids_current": _read_int(folder / "pids.current"),
        "pids_limit": _read_int(folder / "pids.max"),
        "pids_refused": int(refused[1]) if len(refused) == 2 else None,
    }


def _below(mount: str, root: str, path: str) -> Path:
    """Where a group is in a mount that shows the hierarchy from *root* on."""
    below = path[len(root) :] if root != "/" and path.startswith(root) else path
    return Path(mount + "/" + below.strip("/"))


def _has_controller(folder: Path, controller: str, version: int) -> bool:
    """Whether the controller is active there; besides version 1, version 2 may be mounted without controllers."""
    names = _read_text(folder / "cgroup.controllers").split()
    return version == 1 or controller in names or (folder / f"{controller}.current").exists()


def _mounted_hierarchies(kind: str, controller: str) -> list[tuple[str, str]]:
    """Root and place of each mounted hierarchy of that kind, ``man 5 proc_pid_mountinfo``."""
    found = []
    for line in _read_text(Path("/proc/self/mountinfo")).splitlines():
        before, _, after = line.partition(" - ")
        mount, system = before.split(), after.split()
        if system[:1] == [kind] and (not controller or controller in system[-1].split(",")):
            found.append((mount[3], mount[4]))
    return found


def stderr_location() -> Mapping[str, str]:
    """Return ``stderr_path``, ``stderr_file`` (see `file_id`) and ``stderr_offset``, its current size in bytes.

    Empty if standard error is not a regular file with a name (a pipe, a terminal, a deleted file), or without
    ``/proc`` (``man 5 proc``).
    """
    try:
        about = os.fstat(2)
        path = str(Path("/proc/self/fd/2").readlink())
    except OSError:
        return {}
    if not stat.S_ISREG(about.st_mode) or not about.st_nlink or len(os.fsencode(path)) > 500:
        return {}  # an identity in a black box has no room for more
    return {"stderr_path": path, "stderr_file": file_id(about), "stderr_offset": str(about.st_size)}


def file_id(about: os.stat_result) -> str:
    """Device and inode of a file as text: the same for every name and descriptor of it."""
    return f"{about.st_dev}:{about.st_ino}"


def _read_int(path: Path) -> int | None:
    """Return the number in a file; None without one, and for ``max``."""
    text = _read_text(path).strip()
    return int(text) if text.isdecimal() and int(text) < UNLIMITED else None


def _read_text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""
