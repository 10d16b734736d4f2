"""
Files of this user's own in a folder of this user's own: nobody else wrote them, nothing else is read.

What lies in a cache folder may be a link, a pipe or somebody else's file: each is as if nothing lay there.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

#: Not of every system: without links to follow or users to tell apart there is nothing to ask for.
_OPENED_AS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def read(path: Path, *, most_bytes: int) -> bytes:
    """
    What is in the file.

    Raises:
        OSError: It is not there, no file, or not this user's own.
    """
    _check_folder(path.parent)
    handle = os.open(path, os.O_RDONLY | _OPENED_AS)
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or not _is_own(found) or found.st_size > most_bytes:
            raise PermissionError(f"{path} is no file of this user's own")
        return file.read(most_bytes)


def write(path: Path, data: bytes) -> None:
    """
    Put a file there, whole or not at all.

    Raises:
        OSError: The folder is not this user's own, or there is no room.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_folder(path.parent)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def _check_folder(folder: Path) -> None:
    """
    A folder that others can write to, or that a link leads to, is not ours.

    Raises:
        OSError: That is so, or there is none.
    """
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or not _is_own(found):
        raise PermissionError(f"{folder} is no folder of this user's own")


def _is_own(found: os.stat_result) -> bool:
    if not hasattr(os, "getuid"):
        return True
    return found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
