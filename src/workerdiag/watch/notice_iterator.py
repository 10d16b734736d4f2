"""
The notices for ``for notice in watcher``: a sink that hands each one over and waits until it was worked on.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping

from attrs import define, field

from workerdiag.watch.sinks.sink import Delivery, DeliveryError
from workerdiag.watch.watched_case import Notice

#: The outbox knows the loop over a watcher by this name, also after a restart.
INBOX_NAME = "iterator"


@define(eq=False)
class Inbox:
    """
    One notice at a time, handed from the outbox's thread to the loop of a program.

    A notice counts as delivered when the program asks for the next one, or closes the watcher in order: what
    its loop fails on is delivered again after a restart.
    """

    name: str = INBOX_NAME
    _offered: Notice | None = field(default=None, init=False)
    #: Whether the program has the offered one, and is working on it.
    _is_taken: bool = field(default=False, init=False)
    _is_ended: bool = field(default=False, init=False)
    _is_closed: bool = field(default=False, init=False)
    #: What to call when something changes; of programs that wait in an event loop.
    _wakers: set[Callable[[], None]] = field(factory=set, init=False)
    _changed: threading.Condition = field(factory=threading.Condition, init=False)

    def deliver(self, delivery: Delivery) -> Mapping[str, str]:
        """
        Offer the notice, and wait until it was worked on.

        Raises:
            DeliveryError: The watcher was closed before.
        """
        with self._changed:
            if not self._is_closed:
                self._offered, self._is_taken = delivery.notice, False
                self._notify()
                self._changed.wait_for(lambda: self._is_free or self._is_closed)
                if self._is_free:
                    return {}
                self._offered = None
            raise DeliveryError(problem="the watcher was closed before the program asked for the next")

    def take(self, timeout_s: float | None = None) -> Notice | None:
        """
        The next notice, however long that takes; None after the last one. The one before counts as delivered.

        Raises:
            TimeoutError: There is none within *timeout_s*.
        """
        with self._changed:
            self._acknowledge()
            if not self._changed.wait_for(self._has_answer, timeout_s):
                raise TimeoutError(f"no notice within {timeout_s} s")
            return self._hand_over()

    async def take_async(self) -> Notice | None:
        """
        As `take`, without holding up the event loop of the program.
        """
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the program's loop is closed
                loop.call_soon_threadsafe(changed.set)

        with self._changed:
            self._acknowledge()
            self._wakers.add(wake)
        try:
            while True:
                with self._changed:
                    changed.clear()
                    if self._has_answer():
                        return self._hand_over()
                await changed.wait()
        finally:
            with self._changed:
                self._wakers.discard(wake)

    def end(self) -> None:
        """
        Let the program's loop end after the notice that is offered, if any: no more will come.
        """
        with self._changed:
            self._is_ended = True
            self._notify()

    def close(self, *, is_worked_on: bool) -> None:
        """
        End the program's loop at once.

        Args:
            is_worked_on: Whether the notice that the program has counts as delivered.
        """
        with self._changed:
            if is_worked_on:
                self._acknowledge()
            self._is_closed = True
            self._notify()

    @property
    def _is_free(self) -> bool:
        return self._offered is None

    def _acknowledge(self) -> None:
        if self._is_taken:
            self._offered, self._is_taken = None, False
            self._notify()

    def _has_answer(self) -> bool:
        return self._is_closed or self._is_ended or (self._offered is not None and not self._is_taken)

    def _hand_over(self) -> Notice | None:
        if self._is_closed or self._offered is None or self._is_taken:
            return None
        self._is_taken = True
        return self._offered

    def _notify(self) -> None:
        self._changed.notify_all()
        for wake in self._wakers:
            wake()
