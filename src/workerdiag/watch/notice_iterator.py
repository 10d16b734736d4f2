"""The inbox behind ``for notice in watcher``: a sink that waits until each notice is processed."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping

from attrs import define, field

from workerdiag.watch.sinks.sink import Delivery, DeliveryError
from workerdiag.watch.watched_case import Notice

#: Name of this sink in the outbox, the same after a restart.
INBOX_NAME = "iterator"


@define(eq=False)
class Inbox:
    """Hands one notice at a time from the outbox's thread to the loop of a program.

    A notice counts as delivered when the program asks for the next one, or closes the watcher in order. If
    its loop fails, the notice is delivered again after a restart.
    """

    name: str = INBOX_NAME
    _offered: Notice | None = field(default=None, init=False)
    #: Whether the program is processing the offered notice.
    _is_taken: bool = field(default=False, init=False)
    _is_ended: bool = field(default=False, init=False)
    _is_closed: bool = field(default=False, init=False)
    #: Callbacks for changes, of programs that wait in an event loop.
    _wakers: set[Callable[[], None]] = field(factory=set, init=False)
    _changed: threading.Condition = field(factory=threading.Condition, init=False)

    def deliver(self, delivery: Delivery) -> Mapping[str, str]:
        """Offer the notice, and wait until it is processed.

        Raises:
            DeliveryError: The watcher was closed first.
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
        """Wait for the next notice; None after the last one. The previous one then counts as delivered.

        Raises:
            TimeoutError: No notice came within *timeout_s*.
        """
        with self._changed:
            self._acknowledge()
            if not self._changed.wait_for(self._has_answer, timeout_s):
                raise TimeoutError(f"no notice within {timeout_s} s")
            return self._hand_over()

    async def take_async(self) -> Notice | None:
        """Do the same as `take` without blocking the event loop of the program."""
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
        """End the program's loop after the offered notice, if any: no more will come."""
        with self._changed:
            self._is_ended = True
            self._notify()

    def close(self, *, is_worked_on: bool) -> None:
        """End the program's loop at once.

        Args:
            is_worked_on: Whether the notice that the program holds counts as delivered.
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
