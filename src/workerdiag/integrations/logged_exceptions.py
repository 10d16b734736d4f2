"""The diagnosis of an exception in a program's logging or error reporting.

This runs in any thread, even in the event loop of a client, and for errors of any kind. So it keeps its time
limit, never raises, never blocks an event loop, asks once for each exception, and limits its rate.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from functools import partial
from typing import Final

from workerdiag.api.annotate import keep, kept, remembered
from workerdiag.api.diagnosis import Diagnosis
from workerdiag.deadline import CALL_FAILURES, Deadline, call_in_time, monotonic_s
from workerdiag.integrations.diagnose import diagnose, is_from_dask, linked_exceptions
from workerdiag.settings import seconds

#: Share of the time by which the diagnosis ends earlier, so that its result is not lost.
_ENDING_SHARE: Final = 0.1

#: Rate limit: a window in seconds, and exceptions per window. A broken connection makes every call raise.
_WINDOW_S, _MAX_ASKED = 60.0, 10

_ASKED_AT: Final[deque[float]] = deque(maxlen=_MAX_ASKED)
#: Attribute of an exception with its answer, or None if there was none.
_ANSWER: Final = "_workerdiag_in_passing"
#: Whether this thread is asking: errors that the diagnosis itself logs are ignored.
_IS_ASKING: Final = contextvars.ContextVar("workerdiag_is_asking", default=False)


def diagnose_in_passing(
    exc: BaseException, scheduler: str | None = None, *, timeout_s: float | None = None
) -> Diagnosis | None:
    """Return why workers died, if *exc* came from Dask and there is an answer in time; else None. Never raises.

    Within a running event loop the answer is the one that `annotate`, `auto` or `explaining` found.

    Args:
        exc: The exception; its causes, contexts and members count too.
        scheduler: Address of the scheduler, as for `diagnose`.
        timeout_s: Seconds in total; None: the setting ``workerdiag.telemetry.timeout``.
    """
    try:
        return None if _IS_ASKING.get() else _answer(exc, scheduler, timeout_s)
    except Exception:  # noqa: BLE001  what is reported is the error of the program, not ours
        return None


def _answer(exc: BaseException, scheduler: str | None, timeout_s: float | None) -> Diagnosis | None:
    known = next((found for each in linked_exceptions(exc) if (found := remembered(each))), None)
    if known is None and not is_from_dask(exc):
        return None
    if (known is not None and known.outcome == "explained") or _is_in_event_loop():
        return known
    if (given := kept(exc, _ANSWER)) is not None:
        return given.diagnosis
    if _has_asked_enough():
        return known
    answer = _ask(exc, scheduler, seconds("telemetry.timeout") if timeout_s is None else timeout_s) or known
    keep(exc, _ANSWER, answer)
    return answer


def _ask(exc: BaseException, scheduler: str | None, timeout_s: float) -> Diagnosis | None:
    token = _IS_ASKING.set(True)  # the thread too runs in a copy of this context
    try:
        run = partial(diagnose, exc, scheduler, timeout_s=timeout_s * (1 - _ENDING_SHARE))
        call = partial(contextvars.copy_context().run, run)
        return call_in_time("workerdiag-in-passing", call, Deadline.after(timeout_s))
    except CALL_FAILURES:
        return None
    finally:
        _IS_ASKING.reset(token)


def _has_asked_enough() -> bool:
    """Whether the rate limit is reached; if not, count this exception."""
    now = monotonic_s()
    if len(_ASKED_AT) == _MAX_ASKED and now - _ASKED_AT[0] < _WINDOW_S:
        return True
    _ASKED_AT.append(now)
    return False


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
