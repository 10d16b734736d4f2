"""
Loading what an answer needs beside a program that works, so slowly that it is not slower for it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

#: Loading takes at most these shares: of the processor's time that the program has taken, and of the time for
#: which its client is in use. All of it takes a processor 0.4 s (1.7 s from a checkout, which reads and
#: checks the TOML files), so a program that only waits has it loaded after a minute and a half.
_MOST_OF_PROCESSOR, _MOST_OF_TIME = 0.02, 0.005
#: A program may work more than it did: so often, in seconds, it is asked if the next step may be taken.
_MOST_WAIT_S = 5.0
#: Nothing is loaded beside a program that is shorter, in seconds: one step takes up to a tenth of a second.
_FIRST_STEP_S = 5.0
#: Installed packs that take longer are loaded by the call of `explain` that needs them.
_PACKS_S = 1.0
#: What an answer imports, from the bottom up.
_MODULES = (
    "model.diagnosis",
    "api.held_exceptions",
    "redaction.objects",
    "wire.messages",
    "sources.recorder.evidence",
    "sources.cluster",
    "sources.logs",
    "sources.registry",
    "sources.discovery",
    "matching.match",
    "matching.scan.matcher",
    "rulebook.load",
    "correlation.assemble",
    "scoring.conclude",
    "api.answer",
)


class WarmUp:
    """
    The loading for one client: a step at a time, while the client is in use.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._steps = iter(_STEPS)
        self._began_s = time.monotonic()
        #: Of the processor, by all steps until now.
        self._taken_s = 0.0

    def begin(self) -> None:
        """
        Have the first step taken when the program has run for a while.
        """
        self._after(_FIRST_STEP_S)

    def _after(self, delay_s: float) -> None:
        if loop := self._client.loop:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.add_callback(loop.call_later, delay_s, self.next_step)

    def next_step(self) -> None:
        """
        Take a step in a thread; not for a client that is closed, or a program that ends.

        The loop's own executor would hold up the client as it closes (asyncio.run waits for those threads).
        """
        if self._client.status != "running" or not threading.main_thread().is_alive():
            return
        if (wait_s := self._wait_s()) > 0:
            self._after(min(wait_s, _MOST_WAIT_S))
            return
        if (step := next(self._steps, None)) is None:
            return
        from workerdiag.deadline import start_thread

        with contextlib.suppress(RuntimeError):
            start_thread("workerdiag-knowledge", partial(self._take, step), is_awaited=True)

    def _wait_s(self) -> float:
        """
        Seconds until the next step may be taken if the program does nothing until then; not positive: now.
        """
        allowed_s = _MOST_OF_PROCESSOR * (time.process_time() - self._taken_s)
        return (self._taken_s - allowed_s) / _MOST_OF_TIME - (time.monotonic() - self._began_s)

    def _take(self, step: Callable[[], object]) -> None:
        began_s = time.thread_time()
        with contextlib.suppress(Exception):  # who needs an answer is told
            step()
        self._taken_s += time.thread_time() - began_s
        self._after(max(0.0, min(self._wait_s(), _MOST_WAIT_S)))


def _load_rules() -> None:
    from workerdiag.api.default_rulebook import DEFAULT_RULEBOOK
    from workerdiag.deadline import Deadline

    DEFAULT_RULEBOOK.within(Deadline.after(_PACKS_S))


def _judge_something() -> None:
    from workerdiag.api.explain import explain
    from workerdiag.model.evidence import LogText

    explain(logs=LogText("distributed.nanny - INFO - Worker process 1 was killed by signal 9"))


#: Each takes a moment; a program that ends waits for one of them at most.
_STEPS: tuple[Callable[[], object], ...] = (
    *(partial(import_module, f"workerdiag.{name}") for name in _MODULES),
    _load_rules,
    _judge_something,
)
