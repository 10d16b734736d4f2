"""Where a worker's standard error goes, noted at its start, if that is a file."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

#: The descriptor of standard error (``man 3 stderr``).
STDERR = 2
#: An identity in a black box has no room for longer values.
_MAX_PATH_BYTES = 500


def stderr_location() -> Mapping[str, str]:
    """Return ``stderr_path``, ``stderr_file`` (see `file_id`) and ``stderr_offset``, its current size in bytes.

    Empty if standard error is not a regular file with a name (a pipe, a terminal, a deleted file), or without
    ``/proc`` (``man 5 proc``).
    """
    try:
        about = os.fstat(STDERR)
        path = str(Path(f"/proc/self/fd/{STDERR}").readlink())
    except OSError:
        return {}
    if not stat.S_ISREG(about.st_mode) or not about.st_nlink or len(os.fsencode(path)) > _MAX_PATH_BYTES:
        return {}
    return {"stderr_path": path, "stderr_file": file_id(about), "stderr_offset": str(about.st_size)}


def file_id(about: os.stat_result) -> str:
    """Device and inode of a file as text: the same for every name and descriptor of it."""
    return f"{about.st_dev}:{about.st_ino}"
