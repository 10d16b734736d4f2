"""
Calls that may hang (files on a network, code of users), beside the feed's event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TypeVar

from workerdiag.deadline import Deadline, call_in_time, start_thread

_T = TypeVar("_T")
#: The outer call ends this much later than the inner one, if at all.
_SLACK_S = 1.0


async def in_thread(name: str, call: Callable[[], _T], *, timeout_s: float) -> _T:
    """
    What *call* returns; a thread that does not come back is left behind.

    Raises:
        TimeoutError: It did not come back in time.
        ForeignError: It raised anything.
        RuntimeError: There is no thread for it.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[_T] = loop.create_future()

    def settle(value: _T | None, problem: Exception | None) -> None:
        if result.done():
            return
        if problem is not None:
            result.set_exception(problem)
        else:
            result.set_result(value)  # type: ignore[arg-type]

    def run() -> None:
        value, problem = None, None
        try:
            value = call_in_time(f"{name}-call", call, Deadline.after(timeout_s))
        except Exception as raised:  # noqa: BLE001  it is raised where it is awaited
            problem = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, value, problem)

    start_thread(name, run)
    return await asyncio.wait_for(result, timeout_s + _SLACK_S)
