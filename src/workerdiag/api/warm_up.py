"""Loads what an answer needs beside a program, before there is anything to explain.

An answer takes tens of milliseconds of processor time, what it needs a third of a second: seconds on a busy
machine, when somebody waits. A program that waits leaves its processor idle, and workers that die let it wait, so
the steps are taken then, in a thread; else they are taken so slowly that the program is not slowed down.
Most programs pass, and their client's loop imports this module, so it imports next to nothing itself.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from workerdiag.lazy import collector_paused

#: The imports of an answer, from the bottom up, each of them short.
MODULES = """
    errors model.evidence model.diagnosis model.rules model.scene redaction.objects
    sources.exception sources.recorder.source sources.cluster sources.host.respondents sources.host.source
    sources.host.probes.location sources.host.probes.kernel sources.host.probes.nannies sources.host.probes.machine
    sources.stores.loki sources.stores.journald sources.logs.source sources.registry sources.discovery
    matching.log_lines matching.other_lines matching.patterns matching.match rulebook.load correlation.assemble
    correlation.clock_sync scoring.advice scoring.conclude pipeline sources.workload.source rendering.text
    api.explain api.annotate
    """.split()
#: Below this share of a processor, and without a finished future for these seconds, a program just waits.
_IDLE_SHARE, _QUIET_S = 0.1, 1.0
#: Seconds between two looks at that, until everything is loaded.
_LOOK_S = 0.25
#: Seconds of rest after a step, for each second that the step took.
_REST = 3.0
#: Limits beside a program that works, as shares of its processor time, and of the time for which its client is
#: in use; and the seconds before the first step, as most programs are short.
_MOST_OF_PROCESSOR, _MOST_OF_TIME = 0.01, 0.0025
_FIRST_STEP_S = 5.0


class WarmUp:
    """Loads what an answer needs, a step at a time; *quiet_s* is for how many seconds no future has finished."""

    def __init__(self, client: Any, quiet_s: Callable[[], float]) -> None:
        self._client = client
        self._quiet_s = quiet_s
        self._steps = iter(STEPS)
        self._began_s = self._looked_s = time.monotonic()
        #: Processor time of all steps so far, and of the program without them at the last look, in seconds.
        self._taken_s, self._used_s = 0.0, time.process_time()

    def begin(self) -> None:
        """Schedule the first look."""
        self._after(_LOOK_S)

    def _after(self, delay_s: float) -> None:
        if loop := self._client.loop:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.add_callback(loop.call_later, delay_s, self.look)

    def look(self) -> None:
        """Take a step in a thread if there is time, unless the client is closed or the program ends.

        The loop's executor would delay closing the client (asyncio.run waits for its threads).
        """
        if self._client.status != "running" or not threading.main_thread().is_alive():
            return
        if not self._has_time():
            self._after(_LOOK_S)
            return
        if (step := next(self._steps, None)) is None:
            return
        from workerdiag.deadline import start_thread

        with contextlib.suppress(RuntimeError):
            start_thread("workerdiag-knowledge", partial(self._take, step), is_awaited=True)

    def _has_time(self) -> bool:
        """Whether the program just waits since the last look, or the steps have taken little beside its work."""
        now_s, used_s = time.monotonic(), time.process_time() - self._taken_s
        is_idle = used_s - self._used_s < _IDLE_SHARE * (now_s - self._looked_s)
        self._looked_s, self._used_s = now_s, used_s
        run_s = now_s - self._began_s
        allowed_s = _MOST_OF_PROCESSOR * used_s + _MOST_OF_TIME * run_s
        return (is_idle and self._quiet_s() >= _QUIET_S) or (run_s >= _FIRST_STEP_S and self._taken_s <= allowed_s)

    def _take(self, step: Callable[[], object]) -> None:
        began_s = time.thread_time()
        with contextlib.suppress(Exception), yielding():  # an answer reports the failure
            step()
        took_s = time.thread_time() - began_s
        self._taken_s += took_s
        self._after(_REST * took_s)


class yielding:  # noqa: N801  it reads as a statement: ``with yielding():``
    """Let other threads of the program run after half a millisecond, not five, while the block needs the processor.

    A call that polls needs the interpreter several times: once for each thread that it wakes.
    """

    _lock, _blocks, _usual_s = threading.Lock(), 0, 0.0

    def __enter__(self) -> None:
        with yielding._lock:
            if not yielding._blocks:
                yielding._usual_s = sys.getswitchinterval()
                sys.setswitchinterval(min(0.0005, yielding._usual_s))
            yielding._blocks += 1

    def __exit__(self, *_: object) -> None:
        with yielding._lock:
            yielding._blocks -= 1
            if not yielding._blocks:
                sys.setswitchinterval(yielding._usual_s)


def import_all() -> None:
    """Import at once what is not imported yet."""
    with collector_paused():
        for name in MODULES:
            import_module(f"workerdiag.{name}")


def _load_rules() -> None:
    from workerdiag.api.explain import DEFAULT_RULEBOOK
    from workerdiag.deadline import Deadline

    DEFAULT_RULEBOOK.within(Deadline.after(1.0))  # packs that are slower are loaded by `explain`


#: Short steps: a program that ends waits for at most one of them.
STEPS: tuple[Callable[[], object], ...] = (
    *(partial(import_module, f"workerdiag.{name}") for name in MODULES),
    _load_rules,
)
