"""Files whose mapped pages can always be written.

A store into a mapped page raises SIGBUS if the disk is full, which would kill the watched worker. So space is
reserved in advance, and only on file systems that keep the reservation.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

#: File systems that write preallocated blocks in place. Those that write elsewhere (btrfs, zfs, f2fs)
#: or ask a server (nfs, lustre, 9p, fuse) may need new space for each write of a page.
PREALLOCATING_FILESYSTEMS = frozenset({"ext2", "ext3", "ext4", "xfs", "tmpfs", "overlay"})


def preallocate_file(path: Path, size_bytes: int) -> int:
    """Descriptor of a new zero-filled file with reserved space, readable by this user only.

    Raises:
        OSError: The disk is full, permission is missing, the file exists, or space cannot be reserved.
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
    return (
        max(enumerate(same_device), key=lambda each: (len(each[1][0]), each[0]))[1][1] if same_device else ""
    )


def _parse_mountinfo(lines: Iterator[str]) -> Iterator[tuple[str, str, int]]:
    """Path, type and device number of each mount."""
    for line in lines:
        left, _, right = line.partition(" - ")
        fields = left.split()
        major, minor = fields[2].split(":")
        yield _unescape_mount_path(fields[4]), right.split()[0], os.makedev(int(major), int(minor))


def _unescape_mount_path(place: str) -> str:
    """The path with the kernel's octal escapes decoded: blanks, tabs, line feeds and backslashes."""
    for escape, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        place = place.replace(escape, character)
    return place
