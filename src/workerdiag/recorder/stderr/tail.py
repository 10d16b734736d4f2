"""
The end of a file that somebody else writes, or may have replaced by anything.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from workerdiag.recorder.stderr.location import file_id

#: At most this much of a file is read.
MAX_BYTES = 16 * 1024
#: A pipe that took the file's place must not make us wait (``man 7 fifo``), nor a terminal become ours.
_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_CLOEXEC", 0)
)


def tail(path: Path, *, file: str | None = None, since: int = 0, until: int | None = None) -> str:
    """
    The last whole lines, at most 16 KiB, of what came into a file after its first *since* bytes.

    Empty if the file is not there, is no regular file, or is shorter than *since*: then it was cut, and
    nobody knows what of it is new. No link is followed.

    Args:
        path: Of the file.
        file: Device and inode that it must have, as `file_id` gives them; None: any.
        since: Where to begin, in bytes.
        until: Where to end, in bytes, if there is more by now.
    """
    try:
        if not _is_expected_file(path.lstat(), file):
            return ""
        descriptor = os.open(path, _FLAGS)
    except (OSError, ValueError):
        return ""
    try:
        about = os.fstat(descriptor)
        if not _is_expected_file(about, file) or about.st_size < since:
            return ""
        end = about.st_size if until is None else min(about.st_size, until)
        begin = max(since, end - MAX_BYTES)
        data = os.pread(descriptor, max(end - begin, 0), begin)
    except OSError:
        return ""
    finally:
        os.close(descriptor)
    if begin > since:
        data = data.partition(b"\n")[2] or data
    return data.replace(b"\0", b"").decode("utf-8", "replace")


def _is_expected_file(about: os.stat_result, file: str | None) -> bool:
    return stat.S_ISREG(about.st_mode) and file in (None, file_id(about))
