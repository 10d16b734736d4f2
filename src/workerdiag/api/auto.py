"""
The answer in each ``KilledWorker`` of a client, by itself.

The scheduler tells a client of a failed task by the message ``task-erred``
(``Client._stream_handlers``, distributed 2024.8.1 to 2026.8.0). All that raises the exception
later, be it ``future.result()``, ``gather``, ``dask.compute`` or ``as_completed``, synchronous or not, takes
the one object that this message brought. So the note is added there, once, before anybody can see it.

Most programs pass, so this module imports next to nothing: what makes a note is imported with the first
``KilledWorker``, or by `WarmUp`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from workerdiag.api.warm_up import WarmUp
from workerdiag.model.dask import is_worker_death

if TYPE_CHECKING:
    from distributed import Client

    from workerdiag.api.held_exceptions import HeldExceptions
    from workerdiag.model.dask import Method

_ERRED, _RETRIED = "task-erred", "task-retried"


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
    handlers = getattr(client, "_stream_handlers", None)
    if not isinstance(handlers, dict) or _ERRED not in handlers:
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
    The handlers of one client: each ``KilledWorker`` is held up for its note, all else is handed on.
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
