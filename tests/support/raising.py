"""An exception that has a traceback."""

from __future__ import annotations

from typing import NoReturn


def raised(exc: BaseException) -> NoReturn:
    """Raise *exc*."""
    raise exc
