"""
The line of a task that raised, with its neighbours, as far as this machine has the source.
"""

from __future__ import annotations

import linecache
import re
from itertools import islice
from types import FrameType, TracebackType

from workerdiag.sources.exception.frames import MAX_DEPTH, is_source, walk
from workerdiag.sources.exception.tracebacks import is_rebuilt_frame

#: Lines before and after the one that raised, and characters of each.
_NEIGHBOURS, _LINE_CHARS = 2, 200
#: Files that are no work of the user's: installed packages, and Python's own library.
_LIBRARY = re.compile(
    r"/(?:site|dist)-packages/|/(?:python3[.\d]*|Lib)/\w|/(?:dask|distributed)/\w|^<frozen "
)


def task_line(raised_at: TracebackType | None) -> tuple[str, tuple[str, ...]]:
    """
    The innermost line of a task that is nobody's library, as ``function (file:line)``, with its neighbours.

    Both are empty where no frame is known to be of a task: of an exception that Dask carried to the client,
    those that were rebuilt, or else those after the client's own.
    """
    walked = list(islice(walk(raised_at), MAX_DEPTH))
    rebuilt = (at for at, (frame, _) in enumerate(walked) if is_rebuilt_frame(frame))
    of_client = (at + 1 for at, (frame, _) in reversed(list(enumerate(walked))) if _is_client(frame))
    first = next(rebuilt, None) or next(of_client, len(walked))
    own = [(frame, line) for frame, line in walked[first:] if not _LIBRARY.search(_file_of(frame))]
    if not own:
        return "", ()
    frame, line = own[-1]
    name = _file_of(frame).rpartition("/")[2]
    return f"{frame.f_code.co_name} ({name}:{line})", _lines_around(frame.f_code.co_filename, line)


def _file_of(frame: FrameType) -> str:
    return frame.f_code.co_filename.replace("\\", "/")


def _is_client(frame: FrameType) -> bool:
    return _file_of(frame).endswith(("distributed/client.py", "distributed/utils.py"))


def _lines_around(file: str, line: int) -> tuple[str, ...]:
    try:
        lines = linecache.getlines(file) if is_source(file) else []
    except Exception:  # noqa: BLE001  frames that were rebuilt may lack anything
        return ()
    if not 0 < line <= len(lines):
        return ()
    first = max(line - _NEIGHBOURS, 1)
    return tuple(
        f"{'>' if number == line else ' '} {number:>4}  {text.rstrip()[:_LINE_CHARS]}"
        for number, text in enumerate(lines[first - 1 : line + _NEIGHBOURS], first)
    )
