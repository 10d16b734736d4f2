"""
Files that can be written through memory without ever being refused.

A store into a mapped page for which the disk has no room is a SIGBUS, which kills the worker that
was to be watched. So room is taken beforehand, and only where it is known to stay taken.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

#: File systems that write preallocated blocks in place. Those that write elsewhere (btrfs, zfs, f2fs)
#: or ask a server (nfs, lustre, 9p, fuse) may need room anew for each write of a page.
PREALLOCATING_FILESYSTEMS = frozenset({"ext2", "ext3", "ext4", "xfs", "tmpfs", "overlay"})


def preallocate_file(path: Path, size_bytes: int) -> int:
    """
    Descriptor of a new file of zeros whose room is taken; only this user may read it.

    Raises:
        OSError: No room, no permission, a file of this name, or no way to keep the room.
    """
    kind = filesystem_type(path.parent)
    if kind not in PREALLOCATING_FILESYSTEMS or not hasattr(os, "posix_fallocate"):
        raise OSError(
            errno.ENOTSUP, f"cannot keep room for a black box on {kind or 'this system'}", str(path)
        )
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size_bytes)
    except BaseException:
        os.close(descriptor)
        path.unlink(missing_ok=True)
        raise
    return descriptor


def filesystem_type(folder: Path) -> str:
    """
    Kind of the file system that a folder is on, as ``ext4`` (man 5 proc, mountinfo); empty if not known.
    """
    try:
        device = folder.stat().st_dev
        with Path("/proc/self/mountinfo").open(encoding="utf-8", errors="surrogateescape") as file:
            mounts = list(_parse_mountinfo(file))
    except (OSError, ValueError):
        return ""
    real = os.path.realpath(folder)
    above = [each for each in mounts if real == each[0] or real.startswith(each[0].rstrip("/") + "/")]
    # The deepest mount has it; of several on one place the last hides the others.
    same_device = [each for each in above if each[2] == device] or above
    return (
        max(enumerate(same_device), key=lambda each: (len(each[1][0]), each[0]))[1][1] if same_device else ""
    )


def _parse_mountinfo(lines: Iterator[str]) -> Iterator[tuple[str, str, int]]:
    """
    Place, kind and device number of each mount.
    """
    for line in lines:
        left, _, right = line.partition(" - ")
        fields = left.split()
        major, minor = fields[2].split(":")
        yield _unescape_mount_path(fields[4]), right.split()[0], os.makedev(int(major), int(minor))


def _unescape_mount_path(place: str) -> str:
    """
    The place with blanks, tabs, line feeds and backslashes, which the kernel writes as octal numbers.
    """
    for escape, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        place = place.replace(escape, character)
    return place
