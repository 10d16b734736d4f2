"""Where native code crashed, from the stack that faulthandler wrote for the thread that received the signal."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from workerdiag.model.diagnosis import Match
from workerdiag.model.rules import STACK_CAPTURE

#: Frames in the findings at most.
_MAX_FRAMES = 10
_MAX_CHARS = 120
_FRAME = re.compile(r'File "([^"\n]{1,1000})", line (\d{1,9}) in ([^\n]{1,300})')
#: Modules that run tasks: what they call is the code of a task.
_RUNNERS = re.compile(
    r"(?:^|/)(?:distributed|dask|concurrent/futures|multiprocessing)/|(?:^|/)threading\.py$"
)
_PACKAGES = re.compile(r"(?:^|/)(?:site|dist)-packages/(.+)")
_LIBRARY = re.compile(r"(?:^|/)(?:python\d[\d.]*|Lib)/(.+)")


class CrashFrame(NamedTuple):
    """One line of the stack that faulthandler writes for the thread that received a fatal signal."""

    path: str
    line: int
    function: str

    def __str__(self) -> str:
        is_by_value = self.path.startswith("<")  # what cloudpickle sends has no file: <dynamic-code>
        place = f"line {self.line} of its file" if is_by_value else f"{_package_path(self.path)}:{self.line}"
        return f"{self.function} ({place})"[:_MAX_CHARS]


def _crash_frames(matches: Iterable[Match]) -> list[CrashFrame]:
    """The frames of the crashed thread, innermost first (CPython, Python/traceback.c, ``dump_frame``).

    Empty if no dump says which thread crashed.
    """
    stack = next((each.captures[STACK_CAPTURE] for each in matches if each.captures.get(STACK_CAPTURE)), "")
    found = _FRAME.findall(stack)[: 3 * _MAX_FRAMES]
    return [CrashFrame(path.replace("\\", "/"), int(line), name.strip()) for path, line, name in found]


def crash_site(matches: Iterable[Match]) -> tuple[str, ...]:
    """The frames that the worker's own code called; all frames if the worker's own code crashed."""
    frames = _crash_frames(matches)
    runner = next((index for index, each in enumerate(frames) if _RUNNERS.search(each.path)), len(frames))
    return tuple(map(str, (frames[:runner] or frames)[:_MAX_FRAMES]))


def crash_placeholders(matches: Iterable[Match]) -> dict[str, str]:
    """The placeholders of mitigations: ``frame``, and ``package`` if the innermost code is in an installed one."""
    frames = _crash_frames(matches)
    if not frames:
        return {}
    packages = [found[1].partition("/")[0] for each in frames if (found := _PACKAGES.search(each.path))]
    package = next((each for each in packages if each not in ("distributed", "dask")), "")
    return {"frame": str(frames[0])} | ({"package": package.removesuffix(".py")} if package else {})


def _package_path(path: str) -> str:
    """A path relative to its package, so that it neither names a user nor differs between workers."""
    found = _PACKAGES.search(path) or _LIBRARY.search(path)
    return found[1] if found else path.rpartition("/")[2]
