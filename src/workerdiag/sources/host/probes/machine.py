"""Reads a machine's uptime, free memory and disk space, process limits and core dumps."""

from __future__ import annotations

import calendar
import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

#: Limits of a process that workers inherit, by the names of ``man 2 getrlimit``.
LIMITS = ("AS", "CORE", "CPU", "DATA", "FSIZE", "MEMLOCK", "NOFILE", "NPROC", "STACK")


def read(request: dict[str, Any]) -> dict[str, object]:
    """Return the machine's state, and ``coredumpctl``'s output about ``request["pids"]``.

    ``addresses`` are servers on this machine that may be gone, ``since_s`` is the maximum age of a core dump, and
    ``nannies`` are addresses of nannies in this process whose directories to check.
    """
    until = time.monotonic() + float(request.get("budget_s", 1.0))
    return {
        "host": _host_facts(),
        "limits": _process_limits(),
        "disks": _disk_facts(_worker_directories(request), min(0.3, float(request.get("budget_s", 1.0)))),
        "cores": _core_dumps(request, until),
        "listening": {each: _listens(each) for each in list(request.get("addresses", ()))[:4]},
    }


def _host_facts() -> dict[str, object]:
    facts: dict[str, object] = {"now": time.time(), "cpus": os.cpu_count()}
    if hasattr(time, "CLOCK_BOOTTIME"):
        uptime = time.clock_gettime(time.CLOCK_BOOTTIME)
        facts["uptime_s"] = round(uptime, 1)
        facts["suspended_s"] = max(0.0, round(uptime - time.clock_gettime(time.CLOCK_MONOTONIC), 1))
    sizes = dict(line.split(":", 1) for line in _read_text("/proc/meminfo").splitlines() if ":" in line)
    for name in ("MemTotal", "MemAvailable", "SwapTotal", "SwapFree"):
        size = sizes.get(name, "").split()
        if size:
            facts[name] = int(size[0]) * 1024
    pressure = re.search(r"full avg10=([\d.]+)", _read_text("/proc/pressure/memory"))
    if pressure:
        facts["full_avg10"] = float(pressure.group(1))
    return facts


def _process_limits() -> dict[str, object]:
    try:
        import resource
    except ImportError:  # Windows
        return {}
    facts: dict[str, object] = {}
    for name in LIMITS:
        both = resource.getrlimit(getattr(resource, "RLIMIT_" + name))
        soft, hard = (None if each == resource.RLIM_INFINITY else each for each in both)
        facts[name.lower() + "_soft"], facts[name.lower() + "_hard"] = soft, hard
    with contextlib.suppress(OSError):
        facts["open_files"] = sum(1 for _ in Path("/proc/self/fd").iterdir())
    facts["core_pattern"] = _read_text("/proc/sys/kernel/core_pattern").strip()[:300]
    return facts


def _worker_directories(request: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the directories that workers write to, with labels: those of local nannies, and the usual ones."""
    wanted = set(request.get("nannies", ()))
    nannies = getattr(getattr(sys.modules.get("distributed.nanny"), "Nanny", None), "_instances", ())
    found = [
        (str(getattr(nanny, "local_directory", "")), "local directory")
        for nanny in list(nannies)
        if getattr(nanny, "address_safe", None) in wanted
    ]
    temporary = os.environ.get("TMPDIR", "/tmp")  # noqa: S108  it is only inspected
    return [*found, (temporary, "temporary"), ("/dev/shm", "shared memory")]  # noqa: S108  as above


def _disk_facts(places: list[tuple[str, str]], seconds: float) -> list[dict[str, object]]:
    """Return the free space of each place, measured in parallel; a hanging one is abandoned."""
    facts = [{"path": path, "what": what} for path, what in places]
    threads = [threading.Thread(target=_measure_disk, args=(each,), daemon=True) for each in facts]
    for thread in threads:
        thread.start()
    until = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    silent = {"problem": "no answer within " + str(seconds) + " s"}
    return [dict(each, **({} if len(each) > 2 else silent)) for each in facts]


def _measure_disk(facts: dict[str, object]) -> None:
    try:
        facts.update(_disk_space(Path(str(facts["path"]))))
    except Exception as problem:  # noqa: BLE001  an exception in this thread would be lost
        facts["problem"] = getattr(problem, "strerror", None) or str(problem)


def _disk_space(path: Path) -> dict[str, object]:
    there = next(each for each in [path, *path.parents] if each.exists())  # a worker's directory may be gone
    status = os.statvfs(str(there))
    return {
        "size_bytes": status.f_frsize * status.f_blocks,
        "free_bytes": status.f_frsize * status.f_bavail,
        "inodes": status.f_files,
        "free_inodes": status.f_favail,
        "read_only": bool(status.f_flag & os.ST_RDONLY),
    }


def _core_dumps(request: dict[str, Any], until: float) -> list[str]:
    """Return systemd-coredump's descriptions of the requested processes (``man 1 coredumpctl``)."""
    program = shutil.which("coredumpctl")
    found = []
    for pid in list(request.get("pids", ()))[:4] if program else ():
        environment = dict(os.environ, LC_ALL="C", TZ="UTC")
        try:
            result = subprocess.run(  # noqa: S603  a fixed command and a number
                [str(program), "info", "--no-pager", str(int(pid))],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=max(0.05, until - time.monotonic()),
                env=environment,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            break
        text = result.stdout.decode("utf-8", "replace")[: 16 * 1024]
        if result.returncode == 0 and _is_recent(text, float(request.get("since_s", 600.0))):
            found.append(text)
    return found


def _is_recent(text: str, since_s: float) -> bool:
    """Whether the dump is recent, and so not of an earlier process with the same pid."""
    stamp = re.search(r"Timestamp: \w+ (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC", text)
    if stamp is None:
        return False
    return calendar.timegm(time.strptime(stamp.group(1), "%Y-%m-%d %H:%M:%S")) >= time.time() - since_s


def _listens(address: str) -> str:
    """Return whether a server at a Dask address accepts connections: ``yes``, ``no`` or ``unknown``."""
    host, _, port = address.partition("://")[2].rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=0.1).close()
    except ConnectionRefusedError:
        return "no"
    except (OSError, ValueError):
        return "unknown"
    return "yes"


def _read_text(path: str) -> str:
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            return file.read(64 * 1024)
    except OSError:
        return ""
