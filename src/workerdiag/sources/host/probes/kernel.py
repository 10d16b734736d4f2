"""Reads what the kernel logged about kills, crashes, hangs and disks, and whether its pids are valid here.

The cheapest place comes first: the ring buffer as a file (``/dev/kmsg``), then by the system call behind
``dmesg`` (``man 2 syslog``), then the journal, then the files of a syslog daemon.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Line = tuple[float, str]

#: At most this many of the latest bytes are returned; one OOM kill takes about 2 kB.
MAX_BYTES = 256 * 1024
#: At most this many bytes are read from the end of a log file.
TAIL_BYTES = 2 * 1024 * 1024
#: The initial pid namespace: PROC_PID_INIT_INO in include/linux/proc_ns.h.
FIRST_PID_NAMESPACE = "pid:[4026531836]"
#: Linux, at least 4.4: mm/oom_kill.c, mm/memcontrol.c, arch/x86/mm/fault.c, arch/x86/kernel/traps.c,
#: kernel/signal.c, kernel/hung_task.c, kernel/watchdog.c, kernel/power, kernel/cgroup/pids.c,
#: kernel/time/posix-cpu-timers.c, mm/memory-failure.c, block, fs; and the NVIDIA driver's "NVRM: Xid".
TROUBLE = re.compile(
    r"invoked oom-killer|oom-kill:|out of memory|killed process|oom_reaper:|killed as a result of limit"
    r"|memory\.oom\.group|memory: usage|fork rejected by pids"
    r"|segfault at|general protection|traps: |unexpected fatal signal|unhandled signal|bus error|divide error"
    r"|invalid opcode|stack overflow|stack guard|Memory failure:|Machine check|Hardware Error"
    r"|blocked for more than|soft lockup|hard lockup|rcu.{0,200}stall|CPU Watchdog Timeout"
    r"|I/O error|EXT4-fs error|XFS .{0,200}(?:error|shut)|Remounting filesystem read-only"
    r"|nfs: server .{0,200} (?:not responding|OK)"
    r"|PM: (?:suspend|hibernation: hibernation) (?:entry|exit)|Kernel panic|NVRM: Xid",
    re.IGNORECASE,
)
_READ_ALL, _SIZE_BUFFER = 3, 10  # SYSLOG_ACTION_*
#: The ring buffer's clock is never corrected: it may be wrong by this share of its age.
DRIFT = 5e-5
_STAMPED = re.compile(r"^(?:<\d+>)?\[ *(\d+\.\d+)\](?:\[ *[TC]\d+\])? (.*)$")
SYSTEMD = "/run/systemd/system"
_SYSLOG_FILES = ("/var/log/kern.log", "/var/log/messages", "/var/log/syslog")


def read(request: dict[str, Any]) -> dict[str, object]:
    """Return the lines about failures in the last ``request["since_s"]`` seconds of the kernel log.

    Returns:
        ``lines``: time (this machine's clock, seconds since the epoch) and text of each; ``read_from``;
        ``reaches_back``: whether the log covers that time; ``drift_s``: maximum error of its times;
        ``same_pid_namespace``: whether the kernel's pids are valid here; ``problems``: errors by place;
        ``forbidden``: whether reading a place was not permitted.
    """
    since = time.time() - float(request.get("since_s", 600.0))
    until = time.monotonic() + float(request.get("budget_s", 1.0))
    problems: dict[str, str] = {}
    facts: dict[str, object] = {
        "same_pid_namespace": _read_link("/proc/self/ns/pid") == FIRST_PID_NAMESPACE,
        "forbidden": False,
        "problems": problems,
    }
    for name, reader in (
        ("/dev/kmsg", _kmsg),
        ("dmesg", _klogctl),
        ("journalctl", _journal),
        ("files", _syslog_files),
    ):
        try:
            lines, reaches_back = reader(since, until)
        except Exception as problem:  # noqa: BLE001  the next place may be readable
            problems[name] = type(problem).__name__ + ": " + str(problem)
            facts["forbidden"] = facts["forbidden"] or isinstance(problem, PermissionError)
            continue
        trouble = [(when, text) for when, text in lines if when >= since and TROUBLE.search(text)]
        drift_s = DRIFT * (time.time() - _kernel_clock_zero()) if name in ("/dev/kmsg", "dmesg") else 0.0
        facts.update(
            read_from=name, reaches_back=reaches_back, lines=_latest_lines(trouble), drift_s=round(drift_s, 1)
        )
        break
    return facts


def _latest_lines(lines: list[Line]) -> list[Line]:
    size = 0
    for index in range(len(lines) - 1, -1, -1):
        size += len(lines[index][1]) + 40
        if size > MAX_BYTES:
            return lines[index + 1 :]
    return lines


def _kernel_clock_zero() -> float:
    """Return when the kernel log's clock was 0; like the monotonic clock it stops during a suspend."""
    return time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)


def _kmsg(since: float, until: float) -> tuple[list[Line], bool]:
    started = _kernel_clock_zero()
    lines: list[Line] = []
    reaches_back = False
    file = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    try:
        first = True
        while time.monotonic() < until:
            try:
                record = os.read(file, 16 * 1024).decode("utf-8", "replace")
            except BlockingIOError:  # the end
                return lines, reaches_back
            except OSError as problem:
                if problem.errno == errno.EPIPE:  # overwritten while we read: read the next one
                    continue
                raise
            head, _, text = record.partition(";")
            priority, number, microseconds = head.split(",")[:3]
            when = started + int(microseconds) / 1e6
            if first:
                first, reaches_back = False, number == "0" or when < since
            if int(priority) >> 3 == 0:  # facility 0: from the kernel itself
                lines.append((when, text.partition("\n")[0]))
    finally:
        os.close(file)
    raise TimeoutError("it is too long to read in the time given")


def _klogctl(since: float, until: float) -> tuple[list[Line], bool]:  # noqa: ARG001  it takes a millisecond
    library = ctypes.CDLL(None, use_errno=True)
    size = max(0, library.klogctl(_SIZE_BUFFER, None, 0))
    buffer = ctypes.create_string_buffer(min(size, 64 * 1024 * 1024) + 1)
    length = library.klogctl(_READ_ALL, buffer, size)
    if length < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    if not size or not length:
        raise OSError(errno.ENOSYS, "the kernel's buffer is hidden here")  # as gVisor and others do
    started = _kernel_clock_zero()
    lines: list[Line] = []
    for line in buffer.raw[:length].decode("utf-8", "replace").splitlines():
        found = _STAMPED.match(line)
        if found:
            lines.append((started + float(found.group(1)), found.group(2)))
    return lines, bool(lines) and lines[0][0] < max(since, started + 1.0)


def _journal(since: float, until: float) -> tuple[list[Line], bool]:
    program = shutil.which("journalctl")
    if program is None:
        raise FileNotFoundError("no such command")
    recent = ["-n", "10000", "--since", "@" + str(int(since))]
    result = _run_journalctl(program, recent, until)
    if result.returncode != 0 or not Path(SYSTEMD).is_dir():
        raise PermissionError(result.stderr.strip()[:300] or "the journal of this machine is not readable")
    lines: list[Line] = []
    for line in result.stdout.splitlines():
        when, _, rest = line.partition(" ")
        text = rest.partition(" kernel: ")[2]
        if text:
            lines.append((float(when), text))
    # Without permission the answer is empty.
    if not lines and not _run_journalctl(program, ["-n", "1"], until).stdout.strip():
        raise PermissionError("the journal has no kernel messages, or they are not readable")
    return lines, True


def _run_journalctl(program: str, options: list[str], until: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603  a fixed command
        [program, "-k", "-q", "--no-pager", "-o", "short-unix", *options],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=max(0.05, until - time.monotonic()),
        env=dict(os.environ, LC_ALL="C", TZ="UTC"),
        check=False,
    )


def _syslog_files(since: float, until: float) -> tuple[list[Line], bool]:  # noqa: ARG001  2 MiB are read in milliseconds
    refused = None
    for path in _SYSLOG_FILES:
        try:
            size = Path(path).stat().st_size
            with Path(path).open("rb") as file:
                file.seek(max(0, size - TAIL_BYTES))
                text = file.read(TAIL_BYTES).decode("utf-8", "replace")
        except OSError as problem:
            refused = refused if isinstance(refused, PermissionError) else problem
            continue
        stamped = [(_syslog_time(line), line) for line in text.splitlines() if " kernel: " in line]
        lines = [(when, line.partition(" kernel: ")[2]) for when, line in stamped if when is not None]
        lines = [(when, re.sub(r"^\[ *\d+\.\d+\] ", "", line)) for when, line in lines]
        if lines:
            return lines, lines[0][0] < since
    raise refused or FileNotFoundError("no syslog file has kernel messages")


def _syslog_time(line: str) -> float | None:
    """Return the time of a syslog line in either usual format; it is in this machine's time zone."""
    now = time.localtime()
    try:
        if line[:4].isdigit():
            return time.mktime(time.strptime(line[:19], "%Y-%m-%dT%H:%M:%S"))
        when = time.mktime(time.strptime(str(now.tm_year) + " " + line[:15], "%Y %b %d %H:%M:%S"))
    except ValueError:
        return None
    return when if when < time.time() + 86400 else when - 365 * 86400.0


def _read_link(path: str) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115  newer than Python 3.8
    except OSError:
        return ""
