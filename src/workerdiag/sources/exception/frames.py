"""
The frames of a traceback, as Python prints them, in bounded time and space.
"""

from __future__ import annotations

import linecache
import stat
import traceback
from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import FrameType, TracebackType

#: Of one traceback, the innermost frames are printed; of one that has more than this, the outermost of it.
_MAX_FRAMES = 40
MAX_DEPTH = 20_000
#: A frame may name any file as its source; what no source can be is not read.
_MAX_SOURCE_BYTES = 4 * 2**20


def printed_frames(raised_at: TracebackType | None) -> str:
    """
    The innermost frames; empty if they cannot be printed.
    """
    walked = deque(islice(walk(raised_at), MAX_DEPTH), maxlen=_MAX_FRAMES)
    try:
        plain = all(is_source(frame.f_code.co_filename) for frame, _ in walked)
        frames = traceback.StackSummary.extract(iter(walked)) if plain else _without_lines(walked)
        return "".join(frames.format())
    except Exception:  # noqa: BLE001  frames that were rebuilt may lack anything
        return ""


def walk(raised_at: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    """
    The frames with their lines, outermost first.
    """
    while raised_at is not None:
        yield raised_at.tb_frame, raised_at.tb_lineno
        raised_at = raised_at.tb_next


def _without_lines(walked: deque[tuple[FrameType, int]]) -> traceback.StackSummary:
    frames = [(frame.f_code.co_filename, line, frame.f_code.co_name, "") for frame, line in walked]
    return traceback.StackSummary.from_list(frames)


def is_source(file: str) -> bool:
    """
    Whether asking for lines of that file reads no more than a source file has.
    """
    if file in linecache.cache:
        return True
    try:
        found = Path(file).stat()
    except (OSError, ValueError):  # it is not there: ``<stdin>``, or a path of another machine
        return True
    return stat.S_ISREG(found.st_mode) and found.st_size <= _MAX_SOURCE_BYTES
