"""What functions that run inside a scheduler need: to let others on, to send a large reply, to leave no trace.

Each function here returns one that runs there: nested, so that it is pickled by value.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from workerdiag.model.dask import Method, Scheduler
from workerdiag.sources.internals import topics_reader


def pauses() -> Method:
    """Return a function that begins a round of work and returns a coroutine function to await after each item.

    The coroutine yields to the event loop after 1 ms of work.
    """

    def begin() -> Method:
        from asyncio import sleep
        from time import perf_counter

        begun = perf_counter()

        async def pause() -> None:
            nonlocal begun
            if perf_counter() - begun > 0.001:
                await sleep(0)
                begun = perf_counter()

        return pause

    return begin


def packer() -> Method:
    """Return a function that pickles items one by one: pickling a large answer at once would block the loop."""
    begin = pauses()

    async def packed(things: Iterable[object]) -> bytes:
        from pickle import dumps

        pause, found = begin(), []
        for each in things:
            found.append(dumps(each))
            await pause()
        return b"".join(found)

    return packed


def forgetter() -> Method:
    """Return a function that removes our own calls from the scheduler's events.

    A scheduler logs each function that it runs, with its code, among the last thousand events of ``all``.
    Without removal, frequent requests would push out the events that matter.
    """
    topics_of = topics_reader()

    def is_ours(message: object, *, most_bytes: int) -> bool:
        """Whether an event logs a snapshot of ours, or a probe (``sources/host/remote_call.py``, short code)."""
        if not isinstance(message, dict) or message.get("action") != "run-function":
            return False
        function = message.get("function")
        if not isinstance(function, bytes) or len(function) > most_bytes:
            return False
        return b"workerdiag_looks" in function or b"asyncio.threads" in function

    def forget(scheduler: Scheduler) -> None:
        """Remove the event of this call, and those of earlier probes."""
        topics = topics_of(scheduler) or {}
        noted: Any = getattr(topics.get("all"), "events", ())
        last = len(noted) - 1
        ours = [
            number
            for number, (_, message) in enumerate(noted)
            if is_ours(message, most_bytes=100_000 if number == last else 200)
        ]
        for number in reversed(ours):
            del noted[number]
        if last in ours and hasattr(topics["all"], "count"):
            topics["all"].count -= 1  # no reader of the count has seen this event yet

    return forget
