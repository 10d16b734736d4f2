"""
Foreign code, in a thread of its own: it may hang, end the thread, or raise errors that cannot be shown.

``str()`` of a user's exception, a property of a client, a generator of logs and the import of a pack are
foreign code. A thread that does not come back is left behind, and so many of them at most.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

from workerdiag.errors import describe_error

#: Threads of one name that may live at once, left behind or not.
MAX_THREADS = 200

_Told = TypeVar("_Told")


class ForeignError(Exception):
    """
    Foreign code raised something, which is only there as text.
    """


#: What `told_by` raises.
CALL_FAILURES = (ForeignError, RuntimeError, TimeoutError)


def start_thread(name: str, run: Callable[[], None]) -> None:
    """
    Start a thread that nothing waits for at the end of the process.

    Raises:
        RuntimeError: The system gives no more threads, or too many of that name wait for an answer.
    """
    if sum(each.name == name for each in threading.enumerate()) >= MAX_THREADS:
        raise RuntimeError(f"{MAX_THREADS} earlier calls have not come back")
    threading.Thread(target=run, name=name, daemon=True).start()


def call_in_time(name: str, call: Callable[[], _Told], *, within_s: float) -> _Told:
    """
    What *call* returns in a thread called *name*.

    Raises:
        TimeoutError: It did not come back in time.
        ForeignError: It raised anything, also `SystemExit` or `KeyboardInterrupt`.
        RuntimeError: There is no thread for it.
    """
    answers: queue.SimpleQueue[tuple[_Told] | str] = queue.SimpleQueue()

    def run() -> None:
        try:
            answers.put((call(),))
        except BaseException as problem:  # noqa: BLE001  foreign code raises anything
            answers.put(describe_error(problem))

    start_thread(name, run)
    try:
        answer = answers.get(timeout=max(0.001, within_s))
    except queue.Empty:
        raise TimeoutError(f"it did not come back within {within_s:.1f} s") from None
    if isinstance(answer, str):
        raise ForeignError(answer)
    return answer[0]
