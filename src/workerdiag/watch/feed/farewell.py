"""Notices that a scheduler closes while it is asked about deaths: programs often end soon after one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from workerdiag.model.dask import Reply

#: A closing scheduler answers all questions, and then closes all connections; the answer may arrive later.
_GRACE_S = 0.05
#: Longest wait for a farewell, in seconds: the question lasts this long even if its asker is gone.
LISTEN_S = 10.0

_T = TypeVar("_T")


async def with_farewell(asking: Awaitable[_T], listening: Awaitable[Reply]) -> tuple[_T, str | None]:
    """Return the result of *asking*, and why the scheduler began to close meanwhile; None if unknown.

    Args:
        asking: The questions.
        listening: A question that the scheduler answers with its ``closing_reason`` as soon as it closes.
    """
    heard = asyncio.ensure_future(listening)
    try:
        found = await asking
        done, _ = await asyncio.wait({heard}, timeout=_GRACE_S)
    finally:
        heard.cancel()
    if not done or heard.cancelled() or heard.exception() is not None:
        return found, None
    reason = heard.result().get("closing_reason")
    return found, None if reason is None else str(reason)
