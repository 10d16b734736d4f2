"""
How a machine is: since when it runs, what memory and disks have left, what processes are allowed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from typing import Any, Callable

#: A file system that has not answered after so long (a network mount whose server is gone) will not.
DISK_S = 0.3
#: What one core dump's description may take.
CORE_CHARS = 16 * 1024
MOST_CORES = 4
#: Limits of a process that workers inherit, by the names of ``man 2 getrlimit``.
LIMITS = ("AS", "CORE", "CPU", "DATA", "FSIZE", "MEMLOCK", "NOFILE", "NPROC", "STACK")


def read(asked: dict[str, Any]) -> dict[str, Any]:
    """
    What the machine says of itself, and ``coredumpctl`` of ``asked["pids"]``.

    Args:
        asked: ``pids``; ``directories``: more places to look for space, by what they are; ``since_s``;
            ``nannies``: addresses of nannies in this process whose directory counts.
    """
    until = time.monotonic() + float(asked.get("budget_s", 1.0))
    return {
        "host": _host(),
        "limits": _limits(),
        "disks": _disks(dict(_directories(asked))),
        "cores": _cores(asked, until),
    }


def _host() -> dict[str, Any]:
    told: dict[str, Any] = {"now": time.time(), "cpus": os.cpu_count()}
    if hasattr(time, "CLOCK_BOOTTIME"):
        uptime = time.clock_gettime(time.CLOCK_BOOTTIME)
        told["uptime_s"] = round(uptime, 1)
        told["suspended_s"] = max(0.0, round(uptime - time.clock_gettime(time.CLOCK_MONOTONIC), 1))
    sizes = dict(line.split(":", 1) for line in _text("/proc/meminfo").splitlines() if ":" in line)
    for name in ("MemTotal", "MemAvailable", "SwapTotal", "SwapFree"):
        size = sizes.get(name, "").split()
        if size:
            told[name] = int(size[0]) * 1024
    pressure = re.search(r"full avg10=([\d.]+)", _text("/proc/pressure/memory"))
    if pressure:
        told["full_avg10"] = float(pressure.group(1))
    return told


def _limits() -> dict[str, Any]:
    """
    Soft and hard limits; None stands for unlimited.
    """
    try:
        import resource
    except ImportError:  # Windows
        return {}
    told: dict[str, Any] = {}
    for name in LIMITS:
        both = resource.getrlimit(getattr(resource, "RLIMIT_" + name))
        soft, hard = (None if each == resource.RLIM_INFINITY else each for each in both)
        told[name.lower() + "_soft"], told[name.lower() + "_hard"] = soft, hard
    try:
        told["open_files"] = len(os.listdir("/proc/self/fd"))
    except OSError:
        pass
    told["core_pattern"] = _text("/proc/sys/kernel/core_pattern").strip()[:300]
    return told


def _directories(asked: dict[str, Any]) -> list[tuple[str, str]]:
    """
    Where workers write: what is asked for, the directories of the nannies in this process, and the usual.
    """
    found = [(str(path), str(what)) for what, path in dict(asked.get("directories", {})).items()]
    wanted = set(asked.get("nannies", ()))
    module = sys.modules.get("distributed.nanny")
    for nanny in list(getattr(getattr(module, "Nanny", None), "_instances", ())):
        if wanted & {getattr(nanny, "_address", None), getattr(nanny, "address_safe", None)}:
            found.append((str(getattr(nanny, "local_directory", "")), "local directory"))
    return found + [(os.environ.get("TMPDIR", "/tmp"), "temporary"), ("/dev/shm", "shared memory")]  # noqa: S108


def _disks(places: dict[str, str]) -> list[dict[str, Any]]:
    return [dict(_within(DISK_S, lambda path=path: _space(path)), path=path, what=what) for path, what in places.items()]


def _space(path: str) -> dict[str, Any]:
    while path and not os.path.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)  # removed together with the worker
    said = os.statvfs(path)
    return {
        "size_bytes": said.f_frsize * said.f_blocks,
        "free_bytes": said.f_frsize * said.f_bavail,
        "inodes": said.f_files,
        "free_inodes": said.f_favail,
        "read_only": bool(said.f_flag & os.ST_RDONLY),
    }


def _within(seconds: float, call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """
    What *call* returns, or what came in between; a call that hangs is left behind.
    """
    told: dict[str, Any] = {}

    def run() -> None:
        try:
            told.update(call())
        except Exception as problem:  # noqa: BLE001  nobody else would see it in this thread
            told["problem"] = getattr(problem, "strerror", None) or str(problem)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    return dict(told) or {"problem": "no answer within " + str(seconds) + " s"}


def _cores(asked: dict[str, Any], until: float) -> list[str]:
    """
    What systemd-coredump keeps of the processes in question, ``man 1 coredumpctl``.
    """
    program = shutil.which("coredumpctl")
    found = []
    for pid in list(asked.get("pids", ()))[:MOST_CORES] if program else ():
        environment = dict(os.environ, LC_ALL="C", TZ="UTC")
        try:
            said = subprocess.run(  # noqa: S603  a fixed command and a number
                [str(program), "info", "--no-pager", str(int(pid))],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=max(0.05, until - time.monotonic()),
                env=environment,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            break
        text = said.stdout.decode("utf-8", "replace")[:CORE_CHARS]
        if said.returncode == 0 and _is_recent(text, float(asked.get("since_s", 600.0))):
            found.append(text)
    return found


def _is_recent(text: str, since_s: float) -> bool:
    """
    Whether the dump is of the process in question, not of one that had its pid before.
    """
    stamp = re.search(r"Timestamp: \w+ (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC", text)
    if stamp is None:
        return False
    import calendar

    return calendar.timegm(time.strptime(stamp.group(1), "%Y-%m-%d %H:%M:%S")) >= time.time() - since_s


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(64 * 1024)
    except OSError:
        return ""
