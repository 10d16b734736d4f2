"""The exceptions of a client that wait for their notes.

This module is imported in the client's loop, so it imports next to nothing. The rest is imported in a thread
(0.4 s of CPU time, some seconds on a busy machine), so that no exception waits beyond its limit.
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING, Any

from workerdiag.model.notes import LATE_NOTE
from workerdiag.settings import seconds

if TYPE_CHECKING:
    from workerdiag.api.diagnosis import Diagnosis
    from workerdiag.model.dask import Method

#: Reserve of the delay for the steps after the answer, in seconds.
_MARGIN_S = 0.2
#: Seconds within which exceptions that name one worker are of the same death.
_SAME_DEATH_S = 5.0
#: The modules that make a note.
_MODULES = ("errors", "api.annotate", "api.explain_steps", "sources.discovery", "rendering.note")


class HeldExceptions:
    """The ``KilledWorker`` exceptions of one client that wait for their notes.

    Each is passed on to *hand_on*, the client's handler of failed tasks.
    """

    def __init__(self, client: Any, hand_on: Method) -> None:
        self._client = client
        self._hand_on = hand_on
        #: Maximum delay of an exception, in seconds.
        self._patience_s = seconds("note.timeout")
        #: The waiting exception of each task, by key; the last one of a task that ran again.
        self._waiting: dict[object, BaseException] = {}
        #: One answer for all tasks that failed with one worker, by its address.
        self._answers: dict[str, asyncio.Task[Diagnosis]] = {}
        self._deliveries: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()

    def hold(self, key: object, state: object, exc: BaseException, trace: object, arrived_s: float) -> None:
        """Delay the exception of a task, and its traceback, until it has its note.

        *arrived_s* is its arrival by the clock of the loop: importing this module counts too.
        """
        self._waiting[key] = exc
        delivery = asyncio.get_running_loop().create_task(
            self._deliver(key, state, exc, trace, arrived_s + self._patience_s)
        )
        self._deliveries.add(delivery)
        delivery.add_done_callback(self._deliveries.discard)

    def forget(self, key: object) -> None:
        """Drop the exception of a task that runs again."""
        self._waiting.pop(key, None)

    async def _deliver(
        self, key: object, state: object, exc: BaseException, trace: object, until_s: float
    ) -> None:
        """Add the note, then pass the exception on, if the task still waits for it.

        Meanwhile it may have been cancelled, lost, retried, or submitted anew under the same key.
        """
        try:
            answer = self._answer(exc, until_s - _MARGIN_S)
            left_s = until_s - asyncio.get_running_loop().time()
            diagnosis = await asyncio.wait_for(asyncio.shield(answer), left_s)
            from workerdiag.api.annotate import add_note

            add_note(exc, diagnosis)
        except TimeoutError:
            exc.add_note(LATE_NOTE)
        except Exception as problem:  # noqa: BLE001  never a second exception
            exc.add_note(_failure_note(problem))
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
            self._answers[death] = answer = loop.create_task(self._explain(exc, until_s))
            answer.add_done_callback(_retrieve_exception)
            loop.call_later(_SAME_DEATH_S, self._answers.pop, death, None)
        return self._answers[death]

    async def _explain(self, exc: BaseException, until_s: float) -> Diagnosis:
        async with self._turn:
            await asyncio.to_thread(_import_all)
            from workerdiag.api.explain import explain

            left_s = until_s - asyncio.get_running_loop().time()
            if left_s <= 0:
                raise TimeoutError
            diagnosis: Diagnosis = await explain(exc, self._client, timeout=left_s)
            if _is_cut_short(diagnosis):
                raise TimeoutError
            return diagnosis


def _retrieve_exception(answer: asyncio.Task[Diagnosis]) -> None:
    """Retrieve the exception of an abandoned answer, so that asyncio does not log a complaint."""
    if not answer.cancelled():
        answer.exception()


def _import_all() -> None:
    for name in _MODULES:
        import_module(f"workerdiag.{name}")


def _is_cut_short(diagnosis: Diagnosis) -> bool:
    """Whether more time might have helped: the cause is unknown and the cluster was not read to the end."""
    return diagnosis.outcome == "unknown" and any(
        gap.reason == "timed-out" and gap.place != "other" for gap in diagnosis.gaps
    )


def _failure_note(problem: Exception) -> str:
    """Return the note about a failure; a fixed one if even that cannot be worded."""
    try:
        from workerdiag.errors import error_text
        from workerdiag.rendering.note import failure_note

        return failure_note(error_text(problem))
    except Exception:  # noqa: BLE001  e.g. our modules are being replaced
        return LATE_NOTE
