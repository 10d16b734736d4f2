"""Deadlines, and the helper threads that keep them.

Foreign code may hang, end its thread, or raise errors that cannot be shown: ``str()`` of a user's
exception, a property of a client, an SDK, the import of a pack. It runs in a daemon thread, which is left
behind when time is up. No lock is held here, so that none outlives a fork.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import Generic, TypeVar

from attrs import define, frozen

from workerdiag.errors import describe_error
from workerdiag.guard import guarded

#: Threads of one name that may live at once, left behind or not.
MAX_THREADS = 200
#: Share of a budget that is kept for ending in time.
_ENDING_SHARE = 0.1
#: Minimum wait for a queue, in seconds: items that are there already are taken.
_MIN_WAIT_S = 0.001
#: A thread whose pieces are not taken checks this often whether it was stopped, in seconds.
_STOP_POLL_S = 0.1

#: A call that is awaited ends at most this much later than its thread, in seconds.
_OUTER_SLACK_S = 1.0

#: The remedy for a time-out.
MORE_TIME = 'give it more time: explain(..., timeout="60s")'

_T = TypeVar("_T")
#: Each piece in a tuple; at the end an error, its text, or None.
_Piece = tuple[_T] | RuntimeError | str | None
_Pieces = queue.Queue[_Piece[_T]] | queue.SimpleQueue[_Piece[_T]]


def monotonic_s() -> float:
    """Return the seconds of the deadlines' clock, for measuring durations."""
    return time.monotonic()


@frozen
class Deadline:
    """A moment until which something must be done.

    It is made once, handed down, and split up: a step gets a `share` of what is left.
    """

    #: By ``time.monotonic``.
    _at: float = inf

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """Return the deadline this many *seconds* from now."""
        return cls(time.monotonic() + seconds)

    @classmethod
    def of_budget(cls, budget_s: float) -> Deadline:
        """The deadline of a source that is given *budget_s*; a tenth of that is left for ending in time."""
        return cls.after((1 - _ENDING_SHARE) * budget_s)

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


#: Never passes.
NO_DEADLINE = Deadline()


@define
class GraceDeadline:
    """A deadline that counts as open the first few times, so that some work is done however late it is."""

    deadline: Deadline = NO_DEADLINE
    #: How many times `is_over` returns False in any case.
    _grace: int = 0

    def is_over(self) -> bool:
        """Whether the grace is used up and the deadline has passed."""
        self._grace -= 1
        return self._grace < 0 and self.deadline.is_over


class ForeignError(Exception):
    """Foreign code raised something, which is kept as text only."""


#: What `call_in_time` raises.
CALL_FAILURES = (ForeignError, RuntimeError, TimeoutError)


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

    Raises TimeoutError if it is late, ForeignError if it raised anything (also `SystemExit` and
    `KeyboardInterrupt`), RuntimeError if there is no thread for it.
    """
    given_s = deadline.left_s
    pieces = HelperThread(name, lambda: [call()])
    try:
        return next(pieces.take(deadline))
    except TimeoutError:
        raise TimeoutError(f"it did not return within {given_s:.1f} s") from None


async def in_thread(name: str, call: Callable[[], _T], *, timeout_s: float) -> _T:
    """What *call* returns, awaited; a thread that does not return is left behind.

    Raises as `call_in_time` does.
    """
    import asyncio  # slow to import

    loop = asyncio.get_running_loop()
    result: asyncio.Future[_T] = loop.create_future()

    def settle(value: _T | None, problem: Exception | None) -> None:
        if result.done():
            return
        if problem is not None:
            result.set_exception(problem)
        else:
            result.set_result(value)  # type: ignore[arg-type]

    def run() -> None:
        value: _T | None = None
        with guarded(f"calling {name}") as calling:  # a problem is raised where it is awaited
            value = call_in_time(f"{name}-call", call, Deadline.after(timeout_s))
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, value, calling.problem)

    start_thread(name, run)
    return await asyncio.wait_for(result, timeout_s + _OUTER_SLACK_S)


class HelperThread(Generic[_T]):
    """A thread that iterates, and hands over each piece as it comes.

    *iterate* runs in the thread. At most *read_ahead* pieces wait to be taken; 0: any number.
    """

    def __init__(self, name: str, iterate: Callable[[], Iterable[_T]], *, read_ahead: int = 0) -> None:
        self._iterate = iterate
        self._is_stopped = threading.Event()
        pieces: _Pieces[_T] = queue.Queue(read_ahead) if read_ahead else queue.SimpleQueue()
        self._queue = pieces
        try:
            start_thread(name, self._run)
        except RuntimeError as problem:
            self._queue.put(problem)
            self._queue.put(None)

    def take(self, deadline: Deadline) -> Iterator[_T]:
        """Yield the pieces, as long as they come in time.

        Raises as `call_in_time` does; a thread whose next piece is late is left behind.
        """
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
        if isinstance(piece, str):
            raise ForeignError(piece)
        if isinstance(piece, RuntimeError):
            raise piece
        return piece

    def stop(self) -> None:
        """Let the thread end at its next piece."""
        self._is_stopped.set()

    def _run(self) -> None:
        end: str | None = None
        try:
            for piece in self._iterate():
                if not self._put((piece,)):
                    return
        except BaseException as problem:  # noqa: BLE001  foreign code raises anything
            end = describe_error(problem)
        self._put(end)

    def _put(self, piece: tuple[_T] | str | None) -> bool:
        while not self._is_stopped.is_set():
            try:
                self._queue.put(piece, timeout=_STOP_POLL_S)
            except queue.Full:
                continue
            return True
        return False
