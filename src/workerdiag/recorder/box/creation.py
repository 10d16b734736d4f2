"""Atomic creation of a box file: reserved, locked and named, or not created at all."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from threading import get_ident

from workerdiag.recorder.box.directories import box_name
from workerdiag.recorder.box.preallocation import preallocate_file

#: At most this many workers of one process (``LocalCluster(processes=False)``) get a box.
_MAX_BOXES_PER_PROCESS = 64


def create_mapped_box(
    directory: Path, known: Mapping[str, str], size_bytes: int, header: bytes
) -> tuple[Path, mmap.mmap]:
    """Path and memory map of a new file, locked (man 2 flock) until the map or this process ends.

    The map duplicates the descriptor and so keeps the lock. Workers that share a process have one file each.

    Raises:
        OSError: As for `preallocate_file`.
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
    """Path and descriptor of a new file, which gets its name after its space, lock and header."""
    unfinished = directory / f".{box_name(known)}.{get_ident()}.new"
    descriptor = preallocate_file(unfinished, size_bytes)
    try:
        import fcntl  # Windows has neither fcntl nor fallocate

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
            os.link(unfinished, path)  # unlike a rename, fails if the name exists
        except FileExistsError:
            continue
        return path
    raise FileExistsError(errno.EEXIST, "this process has too many black boxes", str(directory))
