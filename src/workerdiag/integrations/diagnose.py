"""The diagnosis of an exception from another program, often after the cluster is gone, as plain values too.

`diagnose_in_passing` is for logging and error reporting: it runs in any thread, even in the event loop of a
client, and for errors of any kind. So it keeps its time limit, never raises, never blocks an event loop, asks
once for each exception, and limits its rate.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from workerdiag.api.annotate import keep, kept, remembered
from workerdiag.api.diagnosis import Diagnosis
from workerdiag.api.explain import explain
from workerdiag.deadline import CALL_FAILURES, Deadline, call_in_time, monotonic_s
from workerdiag.guard import guarded
from workerdiag.model.diagnosis import Findings
from workerdiag.settings import seconds
from workerdiag.sources.tracebacks import linked_exceptions, packages_of

if TYPE_CHECKING:
    from distributed import Client

#: Limits for connecting to a scheduler, as a share of the time, and for disconnecting, in seconds.
CONNECT_SHARE, _CLOSE_S = 0.4, 1.0


def diagnose(
    exc: BaseException,
    scheduler: str | None = None,
    *,
    client: Client | None = None,
    timeout_s: float | None = None,
) -> Diagnosis | None:
    """Return why workers died, if *exc*, or an exception linked to it, came from Dask; else None.

    The diagnosis that `annotate`, `auto` or `explaining` made while the cluster existed comes first.
    Otherwise the scheduler is queried: of a synchronous *client*, at *scheduler*, that of the current client, or
    that of Dask's setting ``scheduler-address``.
    """
    known, is_final = _at_hand(exc)
    if is_final:
        return known
    if timeout_s is None:
        timeout_s = seconds("explain.timeout")
    deadline = Deadline.after(timeout_s)
    with nullcontext(client) if client else open_client(scheduler, timeout_s * CONNECT_SHARE) as asked:
        if known is not None and asked is None:
            return known
        diagnosis: Diagnosis = explain(exc, asked, timeout=max(deadline.left_s, 1.0))
        return diagnosis


def _at_hand(exc: BaseException) -> tuple[Diagnosis | None, bool]:
    """Return the diagnosis that is known of an exception, and whether asking cannot say more."""
    known = next((found for each in linked_exceptions(exc) if (found := remembered(each))), None)
    return known, known.outcome == "explained" if known is not None else not is_from_dask(exc)


def is_from_dask(exc: BaseException) -> bool:
    """Whether Dask's scheduler or client raised the exception or a linked one."""
    return any("distributed" in packages_of(each) for each in linked_exceptions(exc))


@contextmanager
def open_client(scheduler: str | None, timeout_s: float) -> Iterator[Client | None]:
    """Yield a synchronous client, or None. A client opened here is closed again."""
    import dask
    import distributed

    from workerdiag.sources.cluster.queries import connect

    if scheduler is None:
        with suppress(ValueError):  # there is none
            at_hand = distributed.default_client()  # type: ignore[no-untyped-call]
            if at_hand.status == "running" and not at_hand.asynchronous:
                yield at_hand
                return
        scheduler = dask.config.get("scheduler-address", None)
    opened = None
    if scheduler is not None:
        with suppress(Exception):  # the scheduler is gone, or the address is wrong
            opened = connect(scheduler, timeout_s=timeout_s)
    try:
        yield opened
    finally:
        if opened is not None:
            with suppress(Exception):
                opened.close(timeout=_CLOSE_S)  # type: ignore[no-untyped-call]


def facts(findings: Findings) -> dict[str, str | int | float]:
    """Return the conclusion by short names. Unknown values are left out."""
    top, decision = findings.top, findings.decision
    known = {
        "outcome": findings.outcome,
        "summary": findings.summary,
        "cause": top.id if top else None,
        "family": top.family if top else None,
        "probability": round(top.probability, 3) if top else None,
        "blame": findings.blame.verdict,
        "action": decision.policy.action,
        "memory_bytes": decision.policy.memory_bytes,
        "deaths": findings.death_count,
        "fingerprint": findings.fingerprint or None,
        "knowledge": findings.knowledge or None,
    }
    return {name: value for name, value in known.items() if value is not None}


def is_answer(findings: Findings) -> bool:
    """Whether anything died or stands still, or may have."""
    return findings.outcome in ("explained", "unknown")


def is_sure(findings: Findings) -> bool:
    """Whether its cause is likely enough for automatic action."""
    from workerdiag.scoring.blame_and_retry import SURE_ENOUGH_TO_ACT

    top = findings.top
    return findings.outcome == "explained" and top is not None and top.probability >= SURE_ENOUGH_TO_ACT


#: Seconds by which a log record or an error report is delayed, at most.
TIMEOUT_S: Final = 5.0

#: Rate limit: a window in seconds, and exceptions per window. A broken connection makes every call raise.
_WINDOW_S, _MAX_ASKED = 60.0, 10

_ASKED_AT: Final[deque[float]] = deque(maxlen=_MAX_ASKED)
#: Attribute of an exception with its answer, or None if there was none.
_ANSWER: Final = "_workerdiag_in_passing"
#: Whether this thread is asking: errors that the diagnosis itself logs are ignored.
_IS_ASKING: Final = contextvars.ContextVar("workerdiag_is_asking", default=False)


def diagnose_in_passing(
    exc: BaseException, scheduler: str | None = None, *, timeout_s: float = TIMEOUT_S
) -> Diagnosis | None:
    """Return what `diagnose` does, if that takes no longer than *timeout_s*; else None. Never raises.

    Within a running event loop the answer is the one that `annotate`, `auto` or `explaining` found.
    """
    with guarded("answering in passing"):
        return None if _IS_ASKING.get() else _answer(exc, scheduler, timeout_s)
    return None


def _answer(exc: BaseException, scheduler: str | None, timeout_s: float) -> Diagnosis | None:
    known, is_final = _at_hand(exc)
    if is_final or _is_in_event_loop():
        return known
    if (given := kept(exc, _ANSWER)) is not None:
        return given.diagnosis
    if _has_asked_enough():
        return known
    answer = _ask(exc, scheduler, timeout_s) or known
    keep(exc, _ANSWER, answer)
    return answer


def _ask(exc: BaseException, scheduler: str | None, timeout_s: float) -> Diagnosis | None:
    token = _IS_ASKING.set(True)  # the thread too runs in a copy of this context
    try:
        run = partial(diagnose, exc, scheduler, timeout_s=0.9 * timeout_s)  # so that its result is not lost
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
