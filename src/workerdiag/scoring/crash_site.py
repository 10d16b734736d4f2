"""
Where a process crashed: the Python frames that faulthandler wrote for the thread that got the signal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from attrs import frozen

from workerdiag.model.diagnosis import Match
from workerdiag.model.rules import STACK_CAPTURE

#: Frames that findings carry, at most.
MAX_FRAMES = 10
_MAX_CHARS = 120
_FRAME = re.compile(r'File "([^"\n]{1,1000})", line (\d{1,9}) in ([^\n]{1,300})')
#: Whoever runs tasks: what these call is a task's own code.
_RUNNERS = re.compile(
    r"(?:^|/)(?:distributed|dask|concurrent/futures|multiprocessing)/|(?:^|/)threading\.py$"
)
_PACKAGES = re.compile(r"(?:^|/)(?:site|dist)-packages/(.+)")
_LIBRARY = re.compile(r"(?:^|/)(?:python\d[\d.]*|Lib)/(.+)")


@frozen
class CrashFrame:
    """
    One line of such a dump.
    """

    path: str
    line: int
    function: str

    def __str__(self) -> str:
        is_by_value = self.path.startswith("<")  # what cloudpickle sends has no file: <dynamic-code>
        place = f"line {self.line} of its file" if is_by_value else f"{_package_path(self.path)}:{self.line}"
        return f"{self.function} ({place})"[:_MAX_CHARS]


def frames_of(matches: Iterable[Match]) -> tuple[CrashFrame, ...]:
    """
    The frames of the crashed thread, innermost first (CPython, Python/traceback.c, ``dump_frame``).

    Empty where no dump tells which thread that was.
    """
    stack = next((each.captures[STACK_CAPTURE] for each in matches if each.captures.get(STACK_CAPTURE)), "")
    found = _FRAME.findall(stack)[: 3 * MAX_FRAMES]
    return tuple(CrashFrame(path.replace("\\", "/"), int(line), name.strip()) for path, line, name in found)


def frame_texts(frames: Sequence[CrashFrame]) -> tuple[str, ...]:
    """
    Frames as findings carry them: those of the task, or all where it was not one that crashed.
    """
    return tuple(map(str, (_task_frames(frames) or tuple(frames))[:MAX_FRAMES]))


def crash_placeholders(frames: Sequence[CrashFrame]) -> dict[str, str]:
    """
    What mitigations may say: ``frame``, and ``package`` where the innermost code is of an installed one.
    """
    if not frames:
        return {}
    packages = [found[1].partition("/")[0] for each in frames if (found := _PACKAGES.search(each.path))]
    package = next((each for each in packages if each not in ("distributed", "dask")), "")
    return {"frame": str(frames[0])} | ({"package": package.removesuffix(".py")} if package else {})


def _task_frames(frames: Sequence[CrashFrame]) -> tuple[CrashFrame, ...]:
    """
    The frames that the worker's own code called; empty if it crashed in that itself.
    """
    runner = next((index for index, each in enumerate(frames) if _RUNNERS.search(each.path)), len(frames))
    return tuple(frames[:runner])


def _package_path(path: str) -> str:
    """
    A path from its package on, so that it neither names a user nor differs between workers.
    """
    found = _PACKAGES.search(path) or _LIBRARY.search(path)
    return found[1] if found else path.rpartition("/")[2]
