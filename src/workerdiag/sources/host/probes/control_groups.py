"""
What the control group of a process counts and allows, in versions 1 and 2.

Names of files and keys are those of the kernel: ``Documentation/admin-guide/cgroup-v2.rst``
and ``Documentation/admin-guide/cgroup-v1/memory.rst``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

#: How far up to look for the group that sets the limit.
MAX_ANCESTORS = 12
#: Version 1 writes "no limit" as the largest number of whole pages (``PAGE_COUNTER_MAX``).
UNLIMITED = 2**62
#: Counters of ``memory.events``; those of ``memory.oom_control`` have the same names.
EVENTS = ("high", "max", "oom", "oom_kill", "oom_group_kill")


def read(request: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG001  as every probe
    """
    The counters and limits of this process's own group; *request* is not needed.

    Returns:
        Empty without control groups. ``memory_limit_bytes`` is the tightest limit of the group and those
        above it as far as they can be seen, ``limit_of`` the path of the group that has it.
    """
    memory = _controller_folder("memory")
    if memory is None:
        return {}
    folder, mount, path, version = memory
    facts: dict[str, Any] = {"version": version, "path": path}
    facts.update(_memory_v1(folder) if version == 1 else _memory_v2(folder))
    facts.update(_tightest_limit(folder, mount, "memory.limit_in_bytes" if version == 1 else "memory.max"))
    pids = _controller_folder("pids")
    if pids is not None:
        facts.update(_pid_counters(pids[0]))
    return facts


def _memory_v2(folder: Path) -> dict[str, Any]:
    facts: dict[str, Any] = {
        # Only the root of the whole hierarchy lacks it, also within a container.
        "is_root": not (folder / "cgroup.events").exists(),
        "current_bytes": _read_int(folder, "memory.current"),
        "peak_bytes": _read_int(folder, "memory.peak"),
        "high_limit_bytes": _read_int(folder, "memory.high"),
        "swap_limit_bytes": _read_int(folder, "memory.swap.max"),
    }
    facts.update(_event_counters(folder, "memory.events"))
    facts.update(_pressure(folder))
    return facts


def _memory_v1(folder: Path) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "is_root": (folder / "release_agent").exists(),  # only the root has one
        "current_bytes": _read_int(folder, "memory.usage_in_bytes"),
        "peak_bytes": _read_int(folder, "memory.max_usage_in_bytes"),
        "failcnt": _read_int(folder, "memory.failcnt"),
        "swap_limit_bytes": _read_int(folder, "memory.memsw.limit_in_bytes"),
    }
    facts.update(_event_counters(folder, "memory.oom_control"))
    return facts


def _event_counters(folder: Path, name: str) -> dict[str, int]:
    pairs = (line.split() for line in _read_text(folder / name).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[0] in EVENTS}


def _pressure(folder: Path) -> dict[str, float]:
    """
    Percent of the last ten seconds in which all processes of the group waited for memory.
    """
    for line in _read_text(folder / "memory.pressure").splitlines():
        if line.startswith("full avg10="):
            return {"full_avg10": float(line.split()[1].partition("=")[2])}
    return {}


def _tightest_limit(folder: Path, mount: Path, name: str) -> dict[str, Any]:
    limits = []
    for at in [folder, *folder.parents][:MAX_ANCESTORS]:
        limit = _read_int(at, name)
        if limit is not None:
            limits.append((limit, "/" + str(at)[len(str(mount)) :].strip("/")))
        if at == mount:
            break
    if not limits:
        return {}
    limit, of = min(limits)
    return {"memory_limit_bytes": limit, "limit_of": of}


def _pid_counters(folder: Path) -> dict[str, Any]:
    refused = _read_text(folder / "pids.events").split()
    return {
        "pids_current": _read_int(folder, "pids.current"),
        "pids_limit": _read_int(folder, "pids.max"),
        "pids_refused": int(refused[1]) if len(refused) == 2 else None,
    }


def _controller_folder(controller: str) -> tuple[Path, Path, str, int] | None:
    """
    Folder of this process's group, where its hierarchy is mounted, its path there, and the version.
    """
    paths = {}
    for line in _read_text(Path("/proc/self/cgroup")).splitlines():
        _, names, path = line.split(":", 2)
        paths.update(dict.fromkeys(names.split(","), path))
    for kind, name, version in (("cgroup", controller, 1), ("cgroup2", "", 2)):
        if name not in paths:
            continue
        path, mounts = paths[name], _mounted_hierarchies(kind, name)
        folders = [(_below(mount, root, path), mount) for root, mount in mounts]
        # Where none is there, the path is that of another namespace; what is mounted is ours.
        for folder, mount in [*folders, *((Path(mount), mount) for _, mount in mounts)]:
            if ".." not in folder.parts and folder.is_dir() and _has_controller(folder, controller, version):
                return folder, Path(mount), path, version
    return None


def _below(mount: str, root: str, path: str) -> Path:
    """
    Where a group is in a mount that shows the hierarchy from *root* on.
    """
    below = path[len(root) :] if root != "/" and path.startswith(root) else path
    return Path(mount + "/" + below.strip("/"))


def _has_controller(folder: Path, controller: str, version: int) -> bool:
    """
    Whether the controller is at work there; beside version 1, version 2 is mounted without any.
    """
    names = _read_text(folder / "cgroup.controllers").split()
    return version == 1 or controller in names or (folder / f"{controller}.current").exists()


def _mounted_hierarchies(kind: str, controller: str) -> list[tuple[str, str]]:
    """
    Root and place of each mounted hierarchy of that kind, ``man 5 proc_pid_mountinfo``.
    """
    found = []
    for line in _read_text(Path("/proc/self/mountinfo")).splitlines():
        before, _, after = line.partition(" - ")
        fields, (is_kind, *_, options) = before.split(), after.split()
        if is_kind == kind and (not controller or controller in options.split(",")):
            found.append((fields[3], fields[4]))
    return found


def _read_int(folder: Path, name: str) -> int | None:
    """
    The number in a file; None where there is none, and for ``max``.
    """
    text = _read_text(folder / name).strip()
    return int(text) if text.isdigit() and int(text) < UNLIMITED else None


def _read_text(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(256 * 1024)
    except OSError:
        return ""
