"""Which code is the user's own, and what its frames hold. Standard library only: every worker loads this."""

from __future__ import annotations

import re
import sys
from inspect import CO_OPTIMIZED
from types import FrameType

_LIBRARY = re.compile(
    r"/(?:site|dist)-packages/|/(?:python3[.\d]*|Lib)/\w|/(?:dask|distributed)/\w|^<(?:frozen |__array_function__)"
)


def is_library(path: str) -> bool:
    """Whether it is of Python, of Dask or of an installed package, and not the user's own."""
    return _LIBRARY.search(path.replace("\\", "/")) is not None


def local_variables(frame: FrameType) -> list[tuple[str, object]]:
    """The variables of a frame that may be running in another thread, without a trace of us.

    Before Python 3.13 asking makes the frame keep what the variables hold now, until it ends; so that is taken
    from it again, unless somebody else has the dictionary too (PEP 667).
    """
    code = frame.f_code
    if sys.version_info >= (3, 13) or not code.co_flags & CO_OPTIMIZED:
        return list(frame.f_locals.items())
    # before Python 3.13 it is one dictionary that all who ask get; code with these names may keep it
    if frame.f_trace is not None or not {"locals", "vars", "dir", "eval", "exec"}.isdisjoint(code.co_names):
        return []
    shared = frame.f_locals
    found = list(shared.items())
    if sys.getrefcount(shared) == 3:  # kept by the frame, by us and by the call
        shared.clear()
    return found
