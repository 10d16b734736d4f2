"""Deadlines, and the helper threads that keep them.

A network, a file system, an SDK or the import of a pack may hang. It runs in a daemon thread, which is left
behind when time is up. No lock is held here, so that none outlives a fork.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import Generic, TypeVar

from workerdiag.errors import describe_error
from workerdiag.values import define, field, frozen

#: Threads of one name that may live at once, left behind or not.
MAX_THREADS = 200
#: Further deaths delay the judgement by at most this multiple of the settling time.
MOST_TIMES = 3
#: Minimum wait for a queue, in seconds: items that are there already are taken.
_MIN_WAIT_S = 0.001

#: The remedy for a time-out.
MORE_TIME = 'give it more time: explain(..., timeout="60s")'

_T = TypeVar("_T")
#: Each piece in a tuple; at the end an error or None.
_Piece = tuple[_T] | RuntimeError | None


def monotonic_s() -> float:
    """Return the seconds of the deadlines' clock, for measuring durations."""
    return time.monotonic()


@frozen
class Deadline:
    """A moment until which something must be done: made once, handed down, and split up by `share`."""

    #: By ``time.monotonic``.
    _at: float = inf

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """Return the deadline this many *seconds* from now."""
        return cls(time.monotonic() + seconds)

    @classmethod
    def of_budget(cls, budget_s: float) -> Deadline:
        """The deadline of a source that is given *budget_s*; a tenth of that is left for ending in time."""
        return cls.after(0.9 * budget_s)

    @property
    def left_s(self) -> float:
        """Seconds until then, 0 if it has passed."""
        return max(0.0, self._at - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether it has passed."""
        return time.monotonic() >= self._at

    def share(self, part: float = 1.0, *, at_least_s: float = 0.0, at_most_s: float = inf) -> Deadline:
        """The deadline of one step: a *part* of what is left, within these bounds in seconds."""
        return Deadline.after(max(at_least_s, min(part * self.left_s, at_most_s)))


@define
class SettleWindow:
    """The waiting time of deaths that have arrived and are not judged yet."""

    #: Seconds from the first death until its judgement, if no other follows.
    settle_s: float
    #: Arrival of the first and the last one, by the clock of the collector; None: none waits.
    _first_at: float | None = None
    _last_at: float | None = None

    def arrived(self, now: float) -> None:
        """Note that deaths arrived."""
        if self._first_at is None:
            self._first_at = now
        self._last_at = now

    @property
    def due_at(self) -> float | None:
        """Return when to judge: half the settling time after the last death, within bounds; None if none waits."""
        if self._first_at is None or self._last_at is None:
            return None
        wanted = max(self._first_at + self.settle_s, self._last_at + self.settle_s / 2)
        return min(wanted, self._first_at + MOST_TIMES * self.settle_s)

    def is_due(self, now: float) -> bool:
        """Whether it is time to judge, or the clock was set back."""
        due_at, first_at = self.due_at, self._first_at
        return due_at is not None and first_at is not None and not first_at <= now < due_at

    def judged(self) -> None:
        """Note that all deaths are judged."""
        self._first_at = self._last_at = None


#: Never passes.
NO_DEADLINE = Deadline()


@define
class GraceDeadline:
    """A deadline that counts as open the first few times, so that some work is done however late it is."""

    deadline: Deadline = NO_DEADLINE
    #: How many times `is_over` returns False in any case.
    _grace: int = 0
    #: How many times it has returned True.
    refusals: int = field(default=0, init=False)

    def is_over(self) -> bool:
        """Whether the grace is used up and the deadline has passed."""
        self._grace -= 1
        is_over = self._grace < 0 and self.deadline.is_over
        self.refusals += is_over
        return is_over


#: What `call_in_time` and `in_thread` raise.
CALL_FAILURES = (RuntimeError, TimeoutError)


def start_thread(name: str, run: Callable[[], object], *, is_awaited: bool = False) -> threading.Thread:
    """Start a thread. The process waits for it at its end only if it *is_awaited*.

    Another thread that is in a C++ library then can abort the process (``std::terminate``, seen with Python
    3.11). Raises RuntimeError if the system cannot start another thread, or there are too many of that name.
    """
    if sum(each.name == name for each in threading.enumerate()) >= MAX_THREADS:
        raise RuntimeError(f"{MAX_THREADS} earlier calls have not returned")
    thread = threading.Thread(target=run, name=name, daemon=not is_awaited)
    thread.start()
    return thread


def call_in_time(name: str, call: Callable[[], _T], deadline: Deadline) -> _T:
    """Run *call* in a thread called *name*, and return its result.

    Raises TimeoutError if it is late, RuntimeError with the text of anything that it raised (also `SystemExit`
    and `KeyboardInterrupt`), or if there is no thread for it.
    """
    given_s = deadline.left_s
    pieces = HelperThread(name, lambda: [call()])
    try:
        return next(pieces.take(deadline))
    except TimeoutError:
        raise _late(given_s) from None


async def in_thread(name: str, call: Callable[[], _T], *, timeout_s: float) -> _T:
    """What *call* returns, awaited; raises as `call_in_time` does."""
    import asyncio  # slow to import
    from concurrent.futures import Future

    result: Future[_T] = Future()
    result.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result.set_result(call())
        except BaseException as problem:  # noqa: BLE001  it is raised where it is awaited
            result.set_exception(RuntimeError(describe_error(problem)))

    start_thread(name, run)
    try:
        return await asyncio.wait_for(asyncio.wrap_future(result), timeout_s)
    except TimeoutError:
        raise _late(timeout_s) from None


def _late(given_s: float) -> TimeoutError:
    return TimeoutError(f"it did not return within {given_s:.1f} s")


class HelperThread(Generic[_T]):
    """A thread that iterates; of its pieces at most *read_ahead* wait to be taken, 0: any number."""

    def __init__(self, name: str, iterate: Callable[[], Iterable[_T]], *, read_ahead: int = 0) -> None:
        self._iterate = iterate
        self._is_stopped = threading.Event()
        self._queue: queue.Queue[_Piece[_T]] = queue.Queue(read_ahead)
        try:
            start_thread(name, self._run)
        except RuntimeError as problem:
            self._queue.put(problem)
            self._queue.put(None)

    def take(self, deadline: Deadline) -> Iterator[_T]:
        """Yield the pieces as they come; a late thread is left behind. Raises as `call_in_time` does."""
        try:
            while (piece := self.next_piece(deadline)) is not None:
                yield piece[0]
        finally:
            self.stop()

    def next_piece(self, deadline: Deadline) -> tuple[_T] | None:
        """The next piece in a tuple, None after the last one; raises as `take` does."""
        try:
            piece = self._queue.get(timeout=max(_MIN_WAIT_S, min(deadline.left_s, threading.TIMEOUT_MAX)))
        except queue.Empty:
            raise TimeoutError("no answer in time") from None
        if isinstance(piece, RuntimeError):
            raise piece
        return piece

    def stop(self) -> None:
        """Let the thread end at its next piece."""
        self._is_stopped.set()

    def _run(self) -> None:
        end: RuntimeError | None = None
        try:
            for piece in self._iterate():
                if not self._put((piece,)):
                    return
        except BaseException as problem:  # noqa: BLE001  it is raised where the pieces are taken
            end = RuntimeError(describe_error(problem))
        self._put(end)

    def _put(self, piece: _Piece[_T]) -> bool:
        while not self._is_stopped.is_set():
            try:
                self._queue.put(piece, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False
