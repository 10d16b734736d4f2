"""The folders of black boxes: where boxes are, which belong to dead processes, and when they are removed.

They are never in a worker's local directory, which the nanny deletes before anybody can look. A box is named
``<host>-<pid>-<start>.box``, with the start of its process in milliseconds after the start of the machine.
Its space is reserved in advance, on file systems that keep the reservation: a store into a mapped page raises
SIGBUS if the disk is full, which would kill the watched worker.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from workerdiag.procfs_and_cgroups import boot_id, is_running, pid_namespace, process_start_ms
from workerdiag.recorder.box.layout import fault_path
from workerdiag.settings import setting

VARIABLE = "WORKERDIAG_RECORDER_DIRECTORY"
SETTING = "recorder.directory"
SUFFIX = ".box"
#: At most this many orphaned boxes are kept in a folder, for a day.
MAX_RETAINED_BOXES = 64
#: A box of another machine, whose processes cannot be looked up, is orphaned after this silence.
SILENCE_S = 600.0
#: Where temporary files are on a file system that keeps no room, shared memory (man 7 shm_overview) may.
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  only a folder in it that is this user's alone
_NAME = re.compile(r"(?P<host>[\w.-]{1,64})-(?P<pid>\d{1,10})-(?P<start>\d{1,16})(?:\.(?P<nth>\d{1,3}))?\.box")

_NUMBER = re.compile(r"[0-9]{1,16}")


class BoxName(NamedTuple):
    """What the name of a box says."""

    host: str
    pid: int
    #: When the process started, in milliseconds after the machine; 0 if that was not known.
    started_ms: int


def box_name(identity: Mapping[str, str], nth: int = 1) -> str:
    """The name of the box of a process; *nth* distinguishes workers that share one."""
    host = re.sub(r"[^\w.-]", "_", identity.get("host") or "localhost", flags=re.ASCII)[:64]
    more = f".{nth}" if nth > 1 else ""
    return f"{host}-{identity.get('pid') or os.getpid()}-{identity.get('started_ms') or 0}{more}{SUFFIX}"


def parse_box_name(path: Path) -> BoxName | None:
    """Parse the name of a file; None if it is not the name of a box."""
    found = _NAME.fullmatch(path.name)
    return BoxName(found["host"], int(found["pid"]), int(found["start"])) if found else None


# ------------------------------------------------------------------------------------ folders
def configured_directory() -> Path | None:
    """The folder that the environment variable, or else Dask's configuration, names."""
    named = os.environ.get(VARIABLE) or setting(SETTING)
    return Path(str(named)).expanduser().absolute() if named else None


def box_directories() -> tuple[Path, ...]:
    """The folders in which boxes of this user may lie, the likeliest first; they need not exist."""
    if configured := configured_directory():
        return (configured,)
    import tempfile

    name = f"workerdiag-{_user_id()}"
    return tuple(dict.fromkeys((Path(tempfile.gettempdir(), name), _SHARED_MEMORY / name)))


def _user_id() -> int:
    """The number of this user; 0 on Windows, where a folder for temporary files is a user's own."""
    return os.getuid() if hasattr(os, "getuid") else 0


def writable_directory(local_directory: str | None = None) -> Path:
    """Return the folder for a new box, created if necessary: the first with enough room that is our own.

    Raises:
        OSError: There is none, or it is in *local_directory*, that of the worker.
    """
    problem: OSError | None = None
    for each in box_directories():
        try:
            return _ensure_directory(each, local_directory)
        except OSError as why:
            problem = problem or why
    assert problem is not None
    raise problem


def _ensure_directory(directory: Path, local_directory: str | None) -> Path:
    real = os.path.realpath(directory)
    if local_directory and Path(real).is_relative_to(os.path.realpath(local_directory)):
        raise OSError(f"{directory} is in the worker's local directory, which is deleted with the worker")
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (kind := filesystem_type(directory)) not in PREALLOCATING_FILESYSTEMS:
        raise OSError(f"cannot keep room for a black box on {kind or 'this system'} ({directory})")
    if directory != configured_directory():
        about = directory.lstat()
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != _user_id() or about.st_mode & 0o022:
            raise OSError(f"{directory} is not this user's alone")
    return directory


# ------------------------------------------------------------------------------------ finding
def find_boxes(folders: Iterable[Path] | None = None, *, pid: int | None = None) -> tuple[Path, ...]:
    """Return the boxes in *folders* (default: `box_directories`), the latest first, or those of *pid* only."""
    found = []
    for folder in box_directories() if folders is None else folders:
        for path, about in _regular_files(folder):
            name = parse_box_name(path)
            if name is not None and pid in (None, name.pid):
                found.append((name.started_ms if pid is not None else about.st_mtime, str(path), path))
    return tuple(path for *_, path in sorted(found, reverse=True))


def find_orphans(folders: Iterable[Path] | None = None) -> tuple[Path, ...]:
    """The boxes whose processes are gone, the latest first, at most 64. Those that cannot be read are left out."""
    return tuple(islice(filter(is_orphan, find_boxes(folders)), MAX_RETAINED_BOXES))


def is_orphan(path: Path, *, now: float | None = None) -> bool:
    """Whether the process that wrote a box is certainly gone; False also if the box cannot be read.

    On the same kernel the lock on the file decides, whatever the container of the process. If it is held,
    perhaps by a surviving child, pid and start of the process decide. A box from before a restart of the
    machine belongs to a dead process; a box of another machine does if nothing was written for ten minutes.
    """
    return _writer_state(path, time.time() if now is None else now) == "dead"


def _writer_state(path: Path, now: float) -> str:
    """``alive``, ``dead``, or ``unreadable``."""
    from workerdiag.errors import BadBoxError
    from workerdiag.recorder.box.reader import read_box, read_identity

    try:
        identity = read_identity(path)
        if identity.get("boot_id", "") == boot_id():
            dead = not _is_locked(path) or _is_process_gone(identity)
        elif identity.get("host") == socket.gethostname():
            dead = True
        else:
            dead = read_box(path).written_at < now - SILENCE_S
    except (BadBoxError, OSError):
        return "unreadable"
    return "dead" if dead else "alive"


def _is_process_gone(identity: Mapping[str, str]) -> bool:
    """Whether no process has this pid and start; False where its pids are not those we see."""
    if identity.get("pid_namespace") != pid_namespace() or process_start_ms(os.getpid()) is None:
        return False
    pid, started = identity.get("pid", ""), identity.get("started_ms", "")
    if not (_NUMBER.fullmatch(pid) and _NUMBER.fullmatch(started)):
        return False
    return not is_running(int(pid), int(started))


def _is_locked(path: Path) -> bool:
    """Whether a process holds the lock that a writer takes for life."""
    import fcntl

    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


# ----------------------------------------------------------------------------------- removing
def discard(path: Path) -> None:
    """Remove a box that was reported, with its companion; what cannot be removed stays."""
    for each in (path, fault_path(path)):
        with suppress(OSError):
            each.unlink(missing_ok=True)


def sweep(folders: Iterable[Path] | None = None) -> tuple[Path, ...]:
    """Remove boxes of dead processes, older than a day or beyond 64 in a folder. Returns the removed ones."""
    moment = time.time()
    removed: list[Path] = []
    for folder in box_directories() if folders is None else folders:
        files = sorted(_regular_files(folder), key=lambda each: each[1].st_mtime, reverse=True)
        named = {path for path, _ in files if parse_box_name(path)}
        dead = 0
        for path, about in files:
            is_old = about.st_mtime < moment - 24 * 3600
            if path not in named:
                goes = is_old and _is_leftover(path)
            elif is_old or len(named) > MAX_RETAINED_BOXES:
                state = _writer_state(path, moment)
                dead += state == "dead"
                goes = state != "alive" and (is_old or (state == "dead" and dead > MAX_RETAINED_BOXES))
            else:
                continue
            if goes:
                discard(path)
                removed.append(path)
    return tuple(removed)


def _is_leftover(path: Path) -> bool:
    """Whether a file is a companion without its box, or a box that was never finished."""
    name = path.name
    if name.endswith(".new"):
        return name.startswith(".") and SUFFIX in name
    if name.endswith(".fault"):
        box_path = path.with_suffix("")
        return parse_box_name(box_path) is not None and not box_path.exists()
    return False


def _regular_files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """The regular files in a folder, as many as may be looked at; others may remove theirs meanwhile."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in islice(entries, 10_000):
            try:
                about = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if stat.S_ISREG(about.st_mode):
                yield Path(entry.path), about


#: File systems that write preallocated blocks in place. Those that write elsewhere (btrfs, zfs, f2fs)
#: or ask a server (nfs, lustre, 9p, fuse) may need new space for each write of a page.
PREALLOCATING_FILESYSTEMS = frozenset({"ext2", "ext3", "ext4", "xfs", "tmpfs", "overlay"})


def preallocate_file(path: Path, size_bytes: int) -> int:
    """Descriptor of a new zero-filled file of this user's with reserved space; raises OSError if there is none."""
    kind = filesystem_type(path.parent)
    if kind not in PREALLOCATING_FILESYSTEMS or not hasattr(os, "posix_fallocate"):
        raise OSError(errno.ENOTSUP, f"cannot keep room for a black box on {kind or 'this system'}", str(path))
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size_bytes)
    except BaseException:
        os.close(descriptor)
        path.unlink(missing_ok=True)
        raise
    return descriptor


def filesystem_type(folder: Path) -> str:
    """Type of a folder's file system, such as ``ext4`` (man 5 proc, mountinfo); empty if unknown."""
    try:
        device = folder.stat().st_dev
        with Path("/proc/self/mountinfo").open(encoding="utf-8", errors="surrogateescape") as file:
            mounts = list(_parse_mountinfo(file))
    except (OSError, ValueError):
        return ""
    real = os.path.realpath(folder)
    above = [each for each in mounts if real == each[0] or real.startswith(each[0].rstrip("/") + "/")]
    # The deepest mount contains it; of several mounts on one path, the last hides the others.
    same_device = [each for each in above if each[2] == device] or above
    return max(enumerate(same_device), key=lambda each: (len(each[1][0]), each[0]))[1][1] if same_device else ""


def _parse_mountinfo(lines: Iterator[str]) -> Iterator[tuple[str, str, int]]:
    """Path, type and device number of each mount; the kernel writes blanks and the like in octal."""
    for line in lines:
        left, _, right = line.partition(" - ")
        fields = left.split()
        major, minor = fields[2].split(":")
        path = re.sub(r"\\(\d{3})", lambda found: chr(int(found[1], 8)), fields[4])
        yield path, right.split()[0], os.makedev(int(major), int(minor))
