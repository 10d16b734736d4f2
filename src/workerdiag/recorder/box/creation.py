"""
The file of a new box: with room, locked and under its name, or not there at all.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from threading import get_ident

from workerdiag.recorder.box.directories import box_name
from workerdiag.recorder.box.preallocation import preallocate_file

#: Workers of one process (``LocalCluster(processes=False)``) that get a box.
_MAX_BOXES_PER_PROCESS = 64


def create_mapped_box(
    directory: Path, known: Mapping[str, str], size_bytes: int, header: bytes
) -> tuple[Path, mmap.mmap]:
    """
    Path and memory of a new file, locked (man 2 flock) as long as this process lives and keeps the map.

    The map has a duplicate of the descriptor, and with it the lock. Workers that share a process have
    a file each.

    Raises:
        OSError: As of `preallocate_file`.
    """
    path, descriptor = _create_locked_file(directory, known, size_bytes, header)
    try:
        return path, mmap.mmap(descriptor, size_bytes)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def _create_locked_file(
    directory: Path, known: Mapping[str, str], size_bytes: int, header: bytes
) -> tuple[Path, int]:
    """
    Path and descriptor of a new file, which nobody sees by its name before it has room, lock and header.
    """
    unfinished = directory / f".{box_name(known)}.{get_ident()}.new"
    descriptor = preallocate_file(unfinished, size_bytes)
    try:
        import fcntl  # Windows has none, and no room to keep either

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.pwrite(descriptor, header, 0)
        return _link_under_name(unfinished, directory, known), descriptor
    except BaseException:
        os.close(descriptor)
        raise
    finally:
        unfinished.unlink(missing_ok=True)


def _link_under_name(unfinished: Path, directory: Path, known: Mapping[str, str]) -> Path:
    for nth in range(1, _MAX_BOXES_PER_PROCESS + 1):
        path = directory / box_name(known, nth)
        try:
            os.link(unfinished, path)  # fails, as a rename does not, if there is one
        except FileExistsError:
            continue
        return path
    raise FileExistsError(errno.EEXIST, "this process has too many black boxes", str(directory))
