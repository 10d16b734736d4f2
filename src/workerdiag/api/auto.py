"""
The answer in each ``KilledWorker`` of a client, by itself.

The scheduler tells a client of a failed task by the message ``task-erred``
(``Client._stream_handlers``, distributed 2024.8.1 to 2026.8.0). All that raises the exception
later, be it ``future.result()``, ``gather``, ``dask.compute`` or ``as_completed``, synchronous or not, takes
the one object that this message brought. So the note is added there, once, before anybody can see it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from attrs import define, field

from workerdiag.api.annotate import add_note, is_worker_death
from workerdiag.api.diagnosis import Diagnosis
from workerdiag.api.explain import explain
from workerdiag.deadline import Deadline, start_thread
from workerdiag.errors import error_text
from workerdiag.model.dask import Method
from workerdiag.model.evidence import LogText
from workerdiag.rendering.note import LATE_NOTE, NOTE_START
from workerdiag.settings import seconds

if TYPE_CHECKING:
    from distributed import Client

#: Of the time that an exception is held up for, so much is left for what comes behind the answer.
_MARGIN_S = 0.2
#: Exceptions that arrive within so many seconds and name one worker are of the same death.
_SAME_DEATH_S = 5.0
#: A program that computes for so many seconds gets the knowledge loaded beside it, so that an answer comes at
#: once. Loading takes up to a second of one processor: shorter programs would be slower for it.
_WARM_UP_AFTER_S = 10.0
#: What an answer imports, from the bottom up.
_MODULES = (
    "redaction.objects",
    "wire.messages",
    "sources.recorder.evidence",
    "sources.cluster",
    "sources.registry",
    "sources.discovery",
    "matching.match",
    "correlation.incident",
    "scoring.conclude",
    "api.answer",
)
#: Installed packs that take longer are loaded by the call of `explain` that needs them.
_PACKS_S = 1.0
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
    if isinstance(known, _Annotator):
        if not on:
            handlers |= known.originals
    elif on:
        annotator = _Annotator(client, {name: handlers[name] for name in (_ERRED, _RETRIED)})
        handlers |= {_ERRED: annotator.on_task_erred, _RETRIED: annotator.on_task_retried}
        if loop := client.loop:
            loop.add_callback(loop.call_later, _WARM_UP_AFTER_S, annotator.warm_up)


@define(eq=False)
class _Annotator:
    """
    The handlers of one client: each ``KilledWorker`` waits here for its note.
    """

    _client: Any
    #: The client's own handlers.
    originals: dict[str, Method]
    #: An exception is held up for at most so many seconds.
    _patience_s: float = field(factory=lambda: seconds("note.timeout"), init=False)
    #: The exception that waits for each task, by its key: of one that ran again, the last.
    _waiting: dict[object, BaseException] = field(factory=dict, init=False)
    #: One answer for all tasks that the death of one worker failed, by its address.
    _answers: dict[str, asyncio.Task[Diagnosis]] = field(factory=dict, init=False)
    _deliveries: set[asyncio.Task[None]] = field(factory=set, init=False)
    _turn: asyncio.Lock = field(factory=asyncio.Lock, init=False)

    def warm_up(self) -> None:
        """
        Load what an answer needs, in a thread; not for a client that is closed, or a program that ends.

        The loop's own executor would hold up the client as it closes (asyncio.run waits for those threads).
        """
        if self._is_in_use():
            with contextlib.suppress(RuntimeError):
                start_thread("workerdiag-knowledge", self._load_knowledge, is_awaited=True)

    def _load_knowledge(self) -> None:
        for step in _LOADING_STEPS:
            if self._is_in_use():
                step()

    def _is_in_use(self) -> bool:
        return self._client.status == "running" and threading.main_thread().is_alive()

    def on_task_erred(self, key: object = None, exception: Any = None, traceback: object = None) -> None:
        """
        Hold up a ``KilledWorker`` until it has its note; pass on everything else at once.
        """
        state = self._client.futures.get(key)
        exc, trace = _unpack(exception, traceback)
        if state is None or not is_worker_death(exc):
            self.originals[_ERRED](key=key, exception=exception, traceback=traceback)
            return
        self._waiting[key] = exc
        delivery = asyncio.get_running_loop().create_task(self._deliver(key, state, exc, trace))
        self._deliveries.add(delivery)
        delivery.add_done_callback(self._deliveries.discard)

    def on_task_retried(self, key: object = None) -> None:
        """
        Forget the exception of a task that runs again.
        """
        self._waiting.pop(key, None)
        self.originals[_RETRIED](key=key)

    async def _deliver(self, key: object, state: Any, exc: BaseException, trace: object) -> None:
        """
        Add the note, then hand the exception on, if the task still waits for it.

        Meanwhile it may have been cancelled, lost, retried, or submitted anew under the same key.
        """
        try:
            answer = self._answer(exc)
            add_note(exc, await asyncio.wait_for(asyncio.shield(answer), self._patience_s))
        except TimeoutError:
            exc.add_note(LATE_NOTE)
        except Exception as problem:  # noqa: BLE001  never a second exception
            exc.add_note(f"{NOTE_START}no answer: {error_text(problem)}")
        finally:
            is_last = self._waiting.get(key) is exc
            if is_last:
                del self._waiting[key]
            if is_last and self._client.futures.get(key) is state and state.status == "pending":
                self.originals[_ERRED](key=key, exception=exc, traceback=trace)

    def _answer(self, exc: Any) -> asyncio.Task[Diagnosis]:
        death = str(getattr(exc.last_worker, "address", exc))
        if death not in self._answers:
            loop = asyncio.get_running_loop()
            until = loop.time() + self._patience_s - _MARGIN_S
            self._answers[death] = loop.create_task(self._explain(exc, until))
            loop.call_later(_SAME_DEATH_S, self._answers.pop, death, None)
        return self._answers[death]

    async def _explain(self, exc: BaseException, until: float) -> Diagnosis:
        async with self._turn:
            left_s = until - asyncio.get_running_loop().time()
            if left_s <= 0:
                raise TimeoutError
            diagnosis: Diagnosis = await explain(exc, self._client, timeout=left_s)
            return diagnosis


def _load_rules() -> None:
    from workerdiag.api.default_rulebook import DEFAULT_RULEBOOK

    DEFAULT_RULEBOOK.within(Deadline.after(_PACKS_S))


def _judge_something() -> None:
    explain(logs=LogText("distributed.nanny - INFO - Worker process 1 was killed by signal 9"))


#: Each takes a moment; a program that ends waits for one of them at most.
_LOADING_STEPS: tuple[Callable[[], object], ...] = (
    *(partial(import_module, f"workerdiag.{name}") for name in _MODULES),
    _load_rules,
    _judge_something,
)


def _unpack(exception: Any, traceback: Any) -> tuple[Any, Any]:
    """
    The exception and its traceback as objects; where that fails, as they came.
    """
    from distributed.core import clean_exception

    try:
        return clean_exception(exception, traceback)[1:]
    except Exception:  # noqa: BLE001  the client's own handler says what is wrong
        return exception, traceback
