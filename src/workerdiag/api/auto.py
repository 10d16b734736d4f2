"""
The answer in each ``KilledWorker`` of a client, by itself.

The scheduler tells a client of a failed task by the message ``task-erred``
(``Client._stream_handlers``, distributed 2024.8.1 to 2026.8.0). All that raises the exception
later, be it ``future.result()``, ``gather``, ``dask.compute`` or ``as_completed``, synchronous or not, takes
the one object that this message brought. So the note is added there, once, before anybody can see it.

Most programs pass, so this module imports next to nothing: what makes a note is imported with the first
``KilledWorker``, or by `WarmUp`, so slowly that the program is not slower for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Client

    from workerdiag.api.held_exceptions import HeldExceptions
    from workerdiag.model.dask import Method

#: Loading takes at most these shares: of the processor's time that the program has taken, and of the time for
#: which its client is in use. All of it takes a processor 0.4 s (1.7 s from a checkout, which reads and
#: checks the TOML files), so a program that only waits has it loaded after three minutes.
_MOST_OF_PROCESSOR, _MOST_OF_TIME = 0.01, 0.0025
#: A program may begin to work: this often, in seconds, it is looked at before the next step is taken.
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
    "api.explain_steps",
)
_ERRED, _RETRIED = "task-erred", "task-retried"


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
        Seconds until the next step may be taken if the program does nothing until then, or less than 0.
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
    from workerdiag.api.explain_steps import DEFAULT_RULEBOOK
    from workerdiag.deadline import Deadline

    DEFAULT_RULEBOOK.within(Deadline.after(_PACKS_S))


def _explain_something() -> None:
    from workerdiag.api.explain import explain
    from workerdiag.model.evidence import LogText

    explain(logs=LogText("distributed.nanny - INFO - Worker process 1 was killed by signal 9"))


#: Each takes a moment; a program that ends waits for one of them at most.
_STEPS: tuple[Callable[[], object], ...] = (
    *(partial(import_module, f"workerdiag.{name}") for name in _MODULES),
    _load_rules,
    _explain_something,
)


def auto(client: Client, *, on: bool = True) -> None:
    """
    Have each ``KilledWorker`` that *client* is told of carry its diagnosis as a note, as `annotate` adds it.

    Such an exception comes at most two seconds later (``workerdiag.note.timeout``); other exceptions and
    results are not touched.
    The same for every client of a program: ``distributed.client.preload: [workerdiag.auto]`` in Dask's
    configuration.

    Args:
        client: The client, synchronous or not.
        on: False to undo it.

    Raises:
        TypeError: *client* is no `distributed.Client`, or one of a release before 2024.8.1.
    """
    from workerdiag.recorder.internals.clients import stream_handlers

    handlers = stream_handlers(client)
    if _ERRED not in handlers:
        raise TypeError(
            f"client must be a distributed.Client (2024.8.1 or newer), got {type(client).__name__}"
        )
    known = getattr(handlers[_ERRED], "__self__", None)
    if isinstance(known, _Handlers):
        if not on:
            handlers |= known.originals
    elif on:
        ours = _Handlers(client, {name: handlers[name] for name in (_ERRED, _RETRIED)})
        handlers |= {_ERRED: ours.on_task_erred, _RETRIED: ours.on_task_retried}
        WarmUp(client).begin()


class _Handlers:
    """
    The handlers of one client: each ``KilledWorker`` waits for its note, everything else passes.
    """

    def __init__(self, client: Any, originals: dict[str, Method]) -> None:
        self._client = client
        #: The client's own handlers.
        self.originals = originals
        self._held: HeldExceptions | None = None

    def on_task_erred(self, key: object = None, exception: object = None, traceback: object = None) -> None:
        """
        Hold up a ``KilledWorker`` until it has its note; hand on everything else at once.
        """
        from workerdiag.model.dask import is_worker_death

        state = self._client.futures.get(key)
        exc, trace = _unpack(exception, traceback)
        if state is None or not is_worker_death(exc):
            self.originals[_ERRED](key=key, exception=exception, traceback=traceback)
            return
        try:
            arrived_s = asyncio.get_running_loop().time()
            self._begin_to_hold().hold(key, state, exc, trace, arrived_s)
        except Exception:  # noqa: BLE001  e.g. our modules are being replaced: never a second exception
            self.originals[_ERRED](key=key, exception=exc, traceback=trace)

    def _begin_to_hold(self) -> HeldExceptions:
        if self._held is None:
            from workerdiag.api.held_exceptions import HeldExceptions

            self._held = HeldExceptions(self._client, self.originals[_ERRED])
        return self._held

    def on_task_retried(self, key: object = None) -> None:
        """
        Forget the exception of a task that runs again.
        """
        if self._held is not None:
            self._held.forget(key)
        self.originals[_RETRIED](key=key)


def _unpack(exception: Any, traceback: Any) -> tuple[Any, object]:
    """
    The exception and its traceback as objects; where that fails, as they came.
    """
    from distributed.core import clean_exception

    try:
        return clean_exception(exception, traceback)[1:]
    except Exception:  # noqa: BLE001  the client's own handler says what is wrong
        return exception, traceback
