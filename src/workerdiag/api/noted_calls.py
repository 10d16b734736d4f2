"""Adds the answer to what the calls of a client raise themselves, rather than a task.

The scheduler reports no such error to the client: a connection that is lost, futures that are cancelled with it, a
time-out, or Ctrl-C while work stands still. All calls that wait go through ``Client.sync`` (client.py, distributed
2024.8.1 to 2026.8.0), synchronous or not.

Time-outs are often polls. So a time-out says something only if nothing finished meanwhile, the cluster is queried
at most once in half a minute, and a short one never waits for the answer.

A cluster that only churns raises nothing. So while calls wait, the scheduler is asked twice a minute how many
workers it lost, and only if there are some, for the rest.
"""

from __future__ import annotations

import asyncio
import threading
import time
import warnings
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import nullcontext
from functools import partial
from inspect import isawaitable
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from workerdiag.api.dask_errors import (
    cancel_reasons,
    cancelled_keys,
    is_cancelled,
    is_of_cluster,
    is_surely_of_cluster,
)
from workerdiag.guard import guarded

if TYPE_CHECKING:
    from workerdiag.api.auto_notes import Answers
    from workerdiag.api.diagnosis import Diagnosis

#: What a call raised, if it may be about workers or the scheduler; ``polled`` is the time-out of a short call.
_Kind = Literal["failed", "late", "polled", "interrupted"]
#: The cause where nothing stands still: no answer for those who poll, or press Ctrl-C.
_STILL_RUNNING = "standstill.still-running"
#: Coroutines of distributed that wait for work or workers: those that ``Client.sync`` is called with.
_WAITING = frozenset(
    """
    _exception _gather _rebalance _replicate _restart _restart_workers _result _run _scatter _traceback _wait
    _wait_for_workers
    """.split()
)
#: Seconds for which Ctrl-C is held up at most; then the program ends without an answer.
_INTERRUPT_S = 0.45
#: Least seconds between two looks at work that stands still.
_BETWEEN_LOOKS_S = 30.0
#: A call that waited less long than this is a poll: it never waits for an answer. In seconds.
_POLL_S = 0.5
#: Seconds without a finished future after which polls count as a standstill.
_STANDSTILL_S = 5.0
#: Seconds after which a call that waits is looked after, and deaths below which there is nothing to look at.
_WAITS_S, _MIN_DEATHS = 10.0, 3
#: Seconds for the answer about a churn, and between two calls that are one wait.
_CHURN_S, _ONE_WAIT_S = 10.0, 5.0
#: Dask hides frames of files that match, between those of the user and of the task (``dask.utils``). Ours are of
#: no more use to him than Dask's own.
_SHORTEN, _OUR_FRAMES = "admin.traceback.shorten", r"workerdiag[\\/]api[\\/](auto_notes|noted_calls)\.py"
#: Keys of futures that the user cancelled; the oldest are forgotten beyond that.
_MAX_KEYS = 100_000


class _Asked(NamedTuple):
    """A question: about an exception, or about the standstill that was interrupted."""

    exc: BaseException | None
    #: The longest wait for the answer.
    wait_s: float
    kind: _Kind
    #: Whether the cluster is behind it, even if no cause is found.
    is_sure: bool


def hide_our_frames() -> None:
    """Have Dask leave the functions of this module out of the tracebacks that it shortens."""
    import dask.config

    shorten = dask.config.get(_SHORTEN, None)
    if shorten and _OUR_FRAMES not in shorten:
        dask.config.set({_SHORTEN: [*shorten, _OUR_FRAMES]})


class NotedCalls:
    """The calls of one client. What *answers* knows of their errors is added to these."""

    def __init__(self, client: Any, answers: Answers) -> None:
        self._client = client
        self._sync: Any = getattr(client, "sync", None)
        self._answers = answers
        #: What the user did himself.
        self._cancelled: dict[object, None] = {}
        self._is_closed, self._is_restarted = False, False
        #: When a future of this client was finished last, by the monotonic clock, and since when calls time out.
        self._finished_s, self._late_since_s = time.monotonic(), 0.0
        self._looked_s = -_BETWEEN_LOOKS_S
        #: What the last look at a standstill found, until a future finishes or there is another look.
        self._found: Diagnosis | None = None
        self._churn = ChurnWatch(client, answers)

    def finish(self) -> None:
        """Take note that work goes on."""
        self._finished_s = time.monotonic()
        self._found = None

    def quiet_s(self) -> float:
        """Return for how many seconds no future has finished."""
        return time.monotonic() - self._finished_s

    def close(self) -> None:
        """Take note that the user closes the client."""
        self._is_closed = True

    def sync(self, func: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call ``Client.sync``, and add the answer to what it raises."""
        name = getattr(func, "__name__", "")
        with guarded("noting what the user does"):
            self._note_doing(name, args)
        if name not in _WAITING:
            return self._sync(func, *args, **options)
        asynchronous = options.get("asynchronous")
        if asynchronous is None:
            asynchronous = self._client.asynchronous
        run = partial(self._sync, func, *args, **options)
        is_wait = name != "_run"  # which calls a function of the user, whose own time-outs are no standstill
        return self.call(run, is_asynchronous=bool(asynchronous), is_wait=is_wait)

    def call(self, run: Callable[[], Any], *, is_asynchronous: bool, is_wait: bool = True) -> Any:
        """Return what *run* returns, and add the answer to what it raises, time-outs only if it *is_wait*."""
        began_s = time.monotonic() if is_wait else None
        if is_asynchronous:
            result = run()
            return self._awaited(result, began_s) if isawaitable(result) else result
        try:
            with self._churn if is_wait else nullcontext():
                return run()
        except (Exception, KeyboardInterrupt) as exc:
            self._add_note(exc, began_s)
            raise

    async def _awaited(self, result: Awaitable[Any], began_s: float | None) -> Any:
        try:
            with nullcontext() if began_s is None else self._churn:
                return await result
        except Exception as exc:
            with guarded("adding a note"):
                if (asked := self._begin(exc, began_s)) is not None:
                    try:
                        _annotate(exc, await asyncio.wait_for(self._look(asked), asked.wait_s))
                    except TimeoutError:
                        _note_lateness(exc, asked)
            raise

    def _note_doing(self, name: str, args: tuple[Any, ...]) -> None:
        """Remember what the user does himself: nothing is explained to him that he asked for."""
        if name == "_cancel" and args:
            from distributed import client

            self._cancelled |= dict.fromkeys(each.key for each in client.futures_of(args[0]))  # type: ignore[no-untyped-call]
            for key in list(self._cancelled)[: max(0, len(self._cancelled) - _MAX_KEYS)]:
                del self._cancelled[key]
        elif name in ("_restart", "_restart_workers"):
            self._is_restarted = True
        elif name == "_shutdown":
            self._is_closed = True

    def _add_note(self, exc: BaseException, began_s: float | None) -> None:
        """Add the answer to *exc*, in the thread of the user; a second Ctrl-C leaves at once."""
        with guarded("adding a note"):
            if (asked := self._begin(exc, began_s)) is None:
                return
            answer = self._in_loop(asked)
            try:
                _annotate(exc, answer.result(asked.wait_s))
            except TimeoutError:
                _note_lateness(exc, asked)
            finally:
                answer.cancel()  # if it is late: nobody waits for it any more

    def _begin(self, exc: BaseException, began_s: float | None) -> _Asked | None:
        """Return what to ask for; None if nothing is to be asked, or is answered."""
        kind = self._kind(exc)
        if kind is None:
            return None
        is_sure = is_surely_of_cluster(exc) or self._client.status == "connecting"
        if kind == "interrupted":
            return _Asked(None, _INTERRUPT_S, kind, is_sure)
        asked = _Asked(exc, _patience_s(), kind, is_sure)
        if kind == "late":
            return None if began_s is None else self._begin_late(asked, exc, began_s)
        if self._is_own_doing(exc) or self._is_of_task(exc):
            return None
        return asked

    def _kind(self, exc: BaseException) -> _Kind | None:
        if _is_noted(exc) or self._is_closed:
            return None
        if isinstance(exc, KeyboardInterrupt):
            return "interrupted"
        if isinstance(exc, TimeoutError):
            return "late"
        return "failed" if is_of_cluster(exc) or is_cancelled(exc) else None

    def _begin_late(self, asked: _Asked, exc: BaseException, began_s: float) -> _Asked | None:
        now_s = time.monotonic()
        if self._finished_s >= began_s:  # work goes on
            self._late_since_s = 0.0
            return None
        if self._late_since_s <= self._finished_s:
            self._late_since_s = began_s
        if now_s - self._looked_s < _BETWEEN_LOOKS_S:
            _annotate(exc, self._found)
            return None
        is_poll = now_s - began_s < _POLL_S
        if is_poll and now_s - self._late_since_s < _STANDSTILL_S:
            return None
        if self._is_own_doing(exc) or self._is_of_task(exc):
            return None
        self._looked_s, self._found = now_s, None
        if is_poll:
            self._in_loop(asked._replace(kind="polled"))
            return None
        return asked

    def _is_own_doing(self, exc: BaseException) -> bool:
        """Whether the user asked for it: he cancelled the future, restarted the workers, or closed the cluster."""
        status = getattr(getattr(self._client, "cluster", None), "status", None)
        if self._is_closed or getattr(status, "name", "") in ("closing", "closed"):
            return True
        if not is_cancelled(exc):
            return False
        if self._is_restarted and cancel_reasons(exc) <= {"scheduler-restart", None}:
            return True
        return cancelled_keys(exc) <= self._cancelled.keys() and not is_surely_of_cluster(exc)

    def _is_of_task(self, exc: BaseException) -> bool:
        """Whether a task raised it: then the scheduler reported it, and it was looked at before."""
        states = tuple(self._client.futures.values())
        return any(each.status == "error" and each.exception is exc for each in states)

    def _in_loop(self, asked: _Asked) -> Future[Diagnosis | None]:
        loop = self._client.loop.asyncio_loop
        if not loop.is_running():
            raise RuntimeError("the client's event loop does not run")
        return asyncio.run_coroutine_threadsafe(self._look(asked), loop)

    async def _look(self, asked: _Asked) -> Diagnosis | None:
        """Return the diagnosis if it says something; that of a standstill is kept for calls that follow."""
        began_s = time.monotonic()
        diagnosis = await self._answers.ask(asked.exc, asyncio.get_running_loop().time() + asked.wait_s)
        is_known = diagnosis.outcome == "explained"
        if asked.kind in ("polled", "interrupted") and diagnosis.top and diagnosis.top.id == _STILL_RUNNING:
            is_known = False
        if not is_known and not asked.is_sure:
            return None
        if asked.kind in ("late", "polled") and self._finished_s < began_s:
            self._found = diagnosis
        return diagnosis


class ChurnWatch:
    """Warns, once for each computation, of a cluster that only churns while calls of a client wait.

    A ``with`` block is such a call. It costs some microseconds, and starts a timer in the client's loop that ends
    when nothing waits any more.
    """

    def __init__(self, client: Any, answers: Answers) -> None:
        self._client = client
        self._answers = answers
        self._lock = threading.Lock()
        #: Calls that wait now, since when there has been one, and when the last one ended.
        self._inside, self._since_s, self._left_s = 0, 0.0, -_BETWEEN_LOOKS_S
        self._is_timed = False
        self._looked_s, self._deaths = -_BETWEEN_LOOKS_S, 0
        #: Some keys that were pending at the last warning: while one still is, it is the same computation.
        self._warned: tuple[object, ...] = ()
        #: Whether the scheduler can run our function; None if that is not known yet.
        self._can_look: bool | None = None
        self._look: asyncio.Task[None] | None = None

    def __enter__(self) -> None:
        now_s = time.monotonic()
        with self._lock:
            if not self._inside and now_s - self._left_s > _ONE_WAIT_S:
                self._since_s = now_s
            self._inside += 1
            is_timed, self._is_timed = self._is_timed, True
        if not is_timed:
            self._after(_WAITS_S)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            self._left_s = time.monotonic()

    def _after(self, delay_s: float) -> None:
        with guarded("watching over a wait"):
            self._client.loop.asyncio_loop.call_soon_threadsafe(
                self._client.loop.asyncio_loop.call_later, delay_s, self._tick
            )

    def _tick(self) -> None:
        """Begin a look if a call waits for long, and go on while there is one."""
        now_s = time.monotonic()
        with self._lock:
            self._is_timed = bool(self._inside) or now_s - self._left_s <= _ONE_WAIT_S
        if not self._is_timed or self._client.status != "running":
            self._is_timed = False
            return
        is_due = now_s - self._since_s >= _WAITS_S and now_s - self._looked_s >= _BETWEEN_LOOKS_S
        is_looking = self._look is not None and not self._look.done()
        if is_due and not is_looking and not any(map(self._is_pending, self._warned)):
            self._looked_s = now_s
            self._look = asyncio.get_running_loop().create_task(self._look_after())
        self._after(_WAITS_S)

    def _is_pending(self, key: object) -> bool:
        return getattr(self._client.futures.get(key), "status", "") == "pending"

    async def _look_after(self) -> None:
        with guarded("looking for a churn"):
            from workerdiag.sources.cluster.queries import count_recent_losses
            from workerdiag.sources.cluster.workers import fetch_versions, has_same_python

            if self._can_look is None:
                self._can_look = has_same_python(await asyncio.wait_for(fetch_versions(self._client), _CHURN_S))
            if not self._can_look:
                return
            deaths = await asyncio.wait_for(count_recent_losses(self._client), _CHURN_S)
            if deaths < _MIN_DEATHS or deaths == self._deaths:
                return
            until_s = asyncio.get_running_loop().time() + _CHURN_S
            diagnosis = await self._answers.ask(None, until_s)
            self._deaths = deaths
            if diagnosis.churn is not None:
                from workerdiag.rendering.text import churn_warning

                newest = islice(reversed(tuple(self._client.futures)), _MAX_KEYS)
                self._warned = tuple(islice(filter(self._is_pending, newest), 1000))
                warnings.warn(churn_warning(diagnosis), RuntimeWarning, stacklevel=1)


async def note_failed_start(exc: OSError) -> None:
    """Add the answer to what a new client raises that reaches no scheduler, if the cause is known."""
    with guarded("adding a note"):
        _annotate(exc, await asyncio.wait_for(asyncio.to_thread(_explain_alone, exc), _patience_s()))


def _explain_alone(exc: OSError) -> Diagnosis | None:
    from workerdiag.api.explain import explain

    diagnosis = explain(exc, timeout=_patience_s())
    return diagnosis if diagnosis.outcome == "explained" else None


def _patience_s() -> float:
    from workerdiag.settings import seconds

    return seconds("note.timeout")


def _is_noted(exc: BaseException) -> bool:
    """Whether it came with a note from the scheduler's report, or has been asked about before."""
    from workerdiag.model.vocabulary import NOTE_START

    notes = getattr(exc, "__notes__", ())
    return any(isinstance(each, str) and each.startswith(NOTE_START) for each in notes)


def _annotate(exc: BaseException, diagnosis: Diagnosis | None) -> None:
    if diagnosis is not None:
        from workerdiag.api.annotate import add_note

        add_note(exc, diagnosis)


def _note_lateness(exc: BaseException, asked: _Asked) -> None:
    """Say that there was no answer in time, if the cluster is surely behind *exc*."""
    if asked.is_sure and asked.kind != "interrupted":
        from workerdiag.model.vocabulary import LATE_NOTE

        exc.add_note(LATE_NOTE)
