"""
The exceptions of a client that wait for their notes.
"""

from __future__ import annotations

import asyncio
from typing import Any

from attrs import define, field

from workerdiag.api.annotate import add_note
from workerdiag.api.diagnosis import Diagnosis
from workerdiag.api.explain import explain
from workerdiag.errors import error_text
from workerdiag.model.dask import Method
from workerdiag.rendering.note import LATE_NOTE, failure_note
from workerdiag.settings import seconds

#: Of the time that an exception is held up for, so much is left for what comes behind the answer.
_MARGIN_S = 0.2
#: Exceptions that arrive within so many seconds and name one worker are of the same death.
_SAME_DEATH_S = 5.0


@define(eq=False)
class HeldExceptions:
    """
    Each ``KilledWorker`` of one client waits here for its note, and is then handed on.
    """

    _client: Any
    #: The client's own handler of failed tasks.
    _hand_on: Method
    #: An exception is held up for at most so many seconds.
    _patience_s: float = field(factory=lambda: seconds("note.timeout"), init=False)
    #: The exception that waits for each task, by its key: of one that ran again, the last.
    _waiting: dict[object, BaseException] = field(factory=dict, init=False)
    #: One answer for all tasks that the death of one worker failed, by its address.
    _answers: dict[str, asyncio.Task[Diagnosis]] = field(factory=dict, init=False)
    _deliveries: set[asyncio.Task[None]] = field(factory=set, init=False)
    _turn: asyncio.Lock = field(factory=asyncio.Lock, init=False)

    def hold(self, key: object, state: object, exc: BaseException, trace: object, arrived_s: float) -> None:
        """
        Hold up the exception of a task until it has its note.

        Args:
            key: Of the task.
            state: What the client knows of the task, which gets the exception.
            exc: The exception.
            trace: Its traceback.
            arrived_s: When it arrived, by the clock of the loop: importing this module counts, too.
        """
        self._waiting[key] = exc
        delivery = asyncio.get_running_loop().create_task(
            self._deliver(key, state, exc, trace, arrived_s + self._patience_s)
        )
        self._deliveries.add(delivery)
        delivery.add_done_callback(self._deliveries.discard)

    def forget(self, key: object) -> None:
        """
        Drop the exception of a task that runs again.
        """
        self._waiting.pop(key, None)

    async def _deliver(
        self, key: object, state: object, exc: BaseException, trace: object, until_s: float
    ) -> None:
        """
        Add the note, then hand the exception on, if the task still waits for it.

        Meanwhile it may have been cancelled, lost, retried, or submitted anew under the same key.
        """
        try:
            answer = self._answer(exc, until_s - _MARGIN_S)
            left_s = until_s - asyncio.get_running_loop().time()
            add_note(exc, await asyncio.wait_for(asyncio.shield(answer), left_s))
        except TimeoutError:
            exc.add_note(LATE_NOTE)
        except Exception as problem:  # noqa: BLE001  never a second exception
            exc.add_note(failure_note(error_text(problem)))
        finally:
            is_last = self._waiting.get(key) is exc
            if is_last:
                del self._waiting[key]
            if is_last and self._client.futures.get(key) is state and state.status == "pending":
                self._hand_on(key=key, exception=exc, traceback=trace)

    def _answer(self, exc: Any, until_s: float) -> asyncio.Task[Diagnosis]:
        death = str(getattr(exc.last_worker, "address", exc))
        if death not in self._answers:
            loop = asyncio.get_running_loop()
            self._answers[death] = loop.create_task(self._explain(exc, until_s))
            loop.call_later(_SAME_DEATH_S, self._answers.pop, death, None)
        return self._answers[death]

    async def _explain(self, exc: BaseException, until_s: float) -> Diagnosis:
        async with self._turn:
            left_s = until_s - asyncio.get_running_loop().time()
            if left_s <= 0:
                raise TimeoutError
            diagnosis: Diagnosis = await explain(exc, self._client, timeout=left_s)
            return diagnosis
