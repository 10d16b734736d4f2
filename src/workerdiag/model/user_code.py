"""Which code is the user's own. Standard library only: every worker loads this."""

from __future__ import annotations

import re

_LIBRARY = re.compile(
    r"/(?:site|dist)-packages/|/(?:python3[.\d]*|Lib)/\w|/(?:dask|distributed)/\w|^<(?:frozen |__array_function__)"
)


def is_library(path: str) -> bool:
    """Whether it is of Python, of Dask or of an installed package, and not the user's own."""
    return _LIBRARY.search(path.replace("\\", "/")) is not None
