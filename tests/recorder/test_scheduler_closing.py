"""What is known of why a scheduler closes."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace

import pytest

from workerdiag.recorder.internals import closing_reason


class Scheduler:
    """As far as the reader sees it: it keeps its log, and closes for a reason."""

    def __init__(self, *, is_silent):
        self.status = SimpleNamespace(name="running")
        self.is_silent = is_silent
        self._deque_handler = SimpleNamespace(deque=[])
        self.told = None

    async def close(self, reason):
        """Close, and say why unless the log is silenced."""
        self.status.name = "closing"
        if not self.is_silent:
            text = "Closing scheduler. Reason: %s"
            record = logging.LogRecord("distributed.scheduler", 20, "", 0, text, (reason,), None)
            self._deque_handler.deque.append(record)
        await asyncio.gather(self.run_plugins())

    async def run_plugins(self):
        """Where the recorder is told."""
        await asyncio.sleep(0)
        self.told = closing_reason(self)


@pytest.mark.parametrize("is_silent", [False, True])
def test_the_reason_is_known_while_the_scheduler_closes(is_silent):
    """Also where its log is silenced: after a signal it may start again, and a watcher waits for it."""

    async def command(scheduler):
        await scheduler.close(reason="signal-15")

    scheduler = Scheduler(is_silent=is_silent)
    assert closing_reason(scheduler) is None
    asyncio.run(command(scheduler))
    assert scheduler.told == "signal-15"
    assert closing_reason(scheduler) == ("unknown" if is_silent else "signal-15"), "nobody closes it now"
