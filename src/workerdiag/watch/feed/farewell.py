"""
Whether a scheduler closes while it is asked about deaths: many a program ends soon after a worker has died.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from workerdiag.model.dask import Reply

#: A scheduler that closes answers all questions, and then closes all connections; the answer may come second.
_GRACE_S = 0.05
#: The longest wait for a farewell: a question lasts so long also where its asker has gone.
LISTEN_S = 10.0

_T = TypeVar("_T")


async def with_farewell(asking: Awaitable[_T], listening: Awaitable[Reply]) -> tuple[_T, str | None]:
    """
    What *asking* brings, and why the scheduler began to close meanwhile; None: it did not, or did not say.

    Args:
        asking: The questions.
        listening: One more, to which the scheduler answers with its ``closing_reason`` as soon as it closes.
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
