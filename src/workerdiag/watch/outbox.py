"""The outbox: delivers notices at least once to every sink, in order for each case, across kills.

A notice is in the outbox from the transaction that decided on it until its sink has taken it, so none is
lost. It is sent twice only if the watcher was killed, or the answer was lost, between sending and noting.
Then it has the same `Delivery.id`, and a receiver can drop the repeat. Each sink has a thread, so that one that
hangs delays no other.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random as random_module
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from attrs import define, evolve, field

from workerdiag.deadline import NO_DEADLINE, Deadline, start_thread
from workerdiag.errors import StateFileError, describe_error, error_text
from workerdiag.guard import guarded
from workerdiag.redaction.secrets import redact_text
from workerdiag.watch.case import WatchedCase
from workerdiag.watch.deliveries import (
    DeliveryTable,
    RetrySettings,
    SinkStatus,
    StoredDelivery,
)
from workerdiag.watch.sinks.base import Delivery, DeliveryError, RepeatingSink, Sink, SinkSetupError
from workerdiag.watch.store import Store


class Outbox:
    """Delivers the notices in the outbox of *store*. Take the state first: only one may run at a time.

    The sinks have distinct names. Sinks that repeat do so for the cases of *cluster*; None: of all.
    """

    def __init__(
        self,
        store: Store,
        sinks: Sequence[Sink],
        *,
        cluster: str | None = None,
        retry: RetrySettings | None = None,
        clock: Callable[[], float] = time.time,
        random: Callable[[], float] = random_module.random,
    ) -> None:
        names = [each.name for each in sinks]
        if doubles := sorted({name for name in names if names.count(name) > 1}):
            raise SinkSetupError(doubles[0], "several sinks have this name", "give each its own name")
        self._table = store.outbox
        self._retry = retry or RetrySettings()
        self._threads = [
            SinkThread(each, self._table, cluster=cluster, retry=self._retry, clock=clock, random=random)
            for each in sinks
        ]

    def start(self) -> None:
        """Begin to deliver, including earlier notices and interrupted deliveries.

        Raises:
            StateFileError: The state cannot be read or written.
            RuntimeError: The system cannot start another thread.
        """
        for each in self._threads:
            self._table.recover(each.name, longest_wait_s=self._retry.longest_retry_after_s)
        for each in self._threads:
            each.start()

    def wake(self) -> None:
        """Deliver new notices now; otherwise they wait for some seconds."""
        for each in self._threads:
            each.wake()

    def status(self) -> tuple[SinkStatus, ...]:
        """Return the status of each sink, including earlier ones that still have deliveries."""
        found = {each.name: each for each in self._table.sinks()}
        for each in self._threads:
            known = found.get(each.name) or SinkStatus(name=each.name)
            found[each.name] = evolve(known, problem=each.problem or known.problem)
        return tuple(found.values())

    def is_waiting(self, sink: str) -> bool:
        """Whether that sink has unsent notices."""
        known = (each.counts for each in self._table.sinks() if each.name == sink)
        return any(counts["pending"] + counts["sending"] for counts in known)

    def close(self, timeout_s: float, *, noting_s: float = 0.0) -> tuple[StoredDelivery, ...]:
        """Deliver what is possible within *timeout_s* seconds, then stop, and return what is unsent.

        Noting what a sink has taken may last *noting_s* seconds. If the state is in a file, the unsent
        deliveries are sent after the next start.
        """
        deadline, noted_by = Deadline.after(timeout_s), Deadline.after(max(timeout_s, noting_s))
        for each in self._threads:
            each.finish(deadline)
        for each in self._threads:
            each.join(noted_by)
        unsent = (*self._table.stored("sending"), *self._table.stored("pending"))
        names = {each.name for each in self._threads}
        return tuple(each for each in unsent if each.sink in names)


#: Seconds between two looks for deliveries that others put back, and for whether the file can be written again.
_POLL_S = 5.0
#: Maximum length of a receipt as JSON.
_MAX_RECEIPT_CHARS = 2048
_MAX_PROBLEM_CHARS = 500
#: A truncated secret would not be recognized, so more text is read than is kept.
_MAX_READ_CHARS = 8192


class SinkThread:
    """Delivers what the outbox has for one sink: one call at a time, without a lock or an open transaction."""

    def __init__(
        self,
        sink: Sink,
        table: DeliveryTable,
        *,
        cluster: str | None,
        retry: RetrySettings,
        clock: Callable[[], float],
        random: Callable[[], float],
    ) -> None:
        self.name = sink.name
        #: Why the state file cannot be written; empty if it can.
        self.problem = ""
        self._sink = sink
        self._table = table
        self._retry = retry
        self._clock = clock
        self._random = random
        self._wakes = threading.Event()
        self._has_ended = threading.Event()
        self._cluster = cluster
        self._repeat_s = sink.repeat_s if isinstance(sink, RepeatingSink) else None
        #: When a sink that forgets was last told what is open.
        self._repeated_at = 0.0
        #: End of the pause that the sink asked for.
        self._resumes_at = 0.0
        #: Deadline for its end, once it is to end.
        self._deadline: Deadline | None = None

    def start(self) -> None:
        """Begin to deliver, after the end of a pause that was requested before a restart.

        Raises:
            StateFileError: The state cannot be read.
            RuntimeError: The system cannot start another thread.
        """
        self._resumes_at = self._table.paused_until(self.name) or 0.0
        start_thread(f"workerdiag-sink-{self.name}", self._run)

    def wake(self) -> None:
        """Check the outbox now."""
        self._wakes.set()

    def finish(self, deadline: Deadline) -> None:
        """End when nothing is due before *deadline*, or at *deadline*."""
        self._deadline = deadline
        self._wakes.set()

    def join(self, deadline: Deadline) -> bool:
        """Wait for the end requested by `finish`; False if the sink is still delivering."""
        return self._has_ended.wait(deadline.left_s)

    def _run(self) -> None:
        try:
            while self._deadline is None or not self._deadline.is_over:
                wait_s: float | None = _POLL_S
                with guarded("delivering notices") as delivering:
                    wait_s = self._deliver_next()
                problem = delivering.problem
                self.problem = "" if problem is None else describe_error(problem, most_chars=_MAX_PROBLEM_CHARS)
                if wait_s is None:
                    return
                self._sleep(wait_s)
        finally:
            self._has_ended.set()

    def _deliver_next(self) -> float | None:
        """Deliver what is due. Returns the seconds to wait; None if the thread is to end."""
        resumes_in_s = self._resumes_at - self._clock()
        if resumes_in_s > 0:
            return self._wait_s(resumes_in_s)
        claim = self._table.claim(self.name)
        if claim is None:
            self._repeat()
            due_at = self._table.next_due_at(self.name)
            return self._wait_s(None if due_at is None else due_at - self._clock())
        self._deliver(*claim)
        return 0.0

    def _repeat(self) -> None:
        """Deliver again what is open, to a receiver that forgets; if that fails, at the next look."""
        now = self._clock()
        if self._repeat_s is None or self._deadline is not None or 0 <= now - self._repeated_at < self._repeat_s:
            return
        for delivery in self._table.current(self.name, self._cluster):
            if isinstance(outcome := self._attempt(delivery), DeliveryError):
                raise outcome
        self._repeated_at = now

    def _wait_s(self, due_in_s: float | None) -> float | None:
        if self._deadline is not None and (due_in_s is None or due_in_s > self._deadline.left_s):
            return None
        return _POLL_S if due_in_s is None else min(_POLL_S, max(0.0, due_in_s))

    def _sleep(self, wait_s: float) -> None:
        if wait_s > 0:
            left_s = (self._deadline or NO_DEADLINE).left_s
            self._wakes.wait(min(wait_s, left_s))
            self._wakes.clear()

    def _deliver(self, delivery: Delivery, tries: int) -> None:
        """Deliver, and note the outcome. If it cannot be noted, the attempt counts as failed."""
        outcome = self._attempt(delivery)
        with guarded("noting the outcome of a delivery") as noting:
            self._note(delivery.id, tries, outcome)
        if noting.problem is not None:  # a delivery that is left "sending" holds back its case
            text = describe_error(noting.problem, most_chars=_MAX_READ_CHARS)
            self._note(delivery.id, tries, DeliveryError(_shown(f"the outcome could not be noted: {text}")))

    def _attempt(self, delivery: Delivery) -> Mapping[str, str] | DeliveryError:
        try:
            returned = self._sink.deliver(delivery)
        except DeliveryError as problem:
            return DeliveryError(_shown(error_text(problem)), problem.is_final, problem.retry_after_s)
        except BaseException as problem:  # noqa: BLE001  a sink may be anybody's code
            return DeliveryError(_shown(describe_error(problem, most_chars=_MAX_READ_CHARS)))
        return _receipt(returned)

    def _note(self, id_: str, tries: int, outcome: Mapping[str, str] | DeliveryError) -> None:
        """Note the outcome, and retry until that succeeds: otherwise the notice would be sent again."""
        due_at, is_pause = 0.0, False
        if isinstance(outcome, DeliveryError):
            due_at = self._clock() + self._retry.wait_s(tries, outcome.retry_after_s, self._random)
            is_pause = outcome.retry_after_s is not None and not outcome.is_final
            self._resumes_at = due_at if is_pause else self._resumes_at
        while True:
            try:
                if not isinstance(outcome, DeliveryError):
                    self._table.note_sent(id_, outcome)
                elif outcome.is_final or tries >= self._retry.max_attempts:
                    self._table.note_dead(id_, outcome.problem)
                else:
                    self._table.note_failed(id_, outcome.problem, due_at, is_pause=is_pause)
            except StateFileError as problem:
                self.problem = str(problem)
                if self._deadline is not None and self._deadline.is_over:
                    return
                self._sleep(_POLL_S)
            else:
                return


def _receipt(returned: object) -> Mapping[str, str]:
    """Return the receipt of a sink, or an empty one if it cannot be stored: the notice was sent anyway."""
    with guarded("reading the receipt of a sink"):
        receipt = {str(key): str(value) for key, value in (returned or {}).items()}  # type: ignore[attr-defined]
        if len(json.dumps(receipt)) <= _MAX_RECEIPT_CHARS:
            return receipt
    return {}


def _shown(problem: str) -> str:
    """Return the error text for the status, without secrets: library errors often quote URLs with tokens."""
    return redact_text(problem[:_MAX_READ_CHARS])[:_MAX_PROBLEM_CHARS]


#: Name of this sink in the outbox, the same after a restart.
INBOX_NAME = "iterator"


@define(eq=False)
class Inbox:
    """Hands one notice at a time from the outbox's thread to the loop of a program.

    A notice counts as delivered when the program asks for the next one, or closes the watcher in order. If
    its loop fails, the notice is delivered again after a restart.
    """

    name: str = INBOX_NAME
    _offered: WatchedCase | None = field(default=None, init=False)
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
            raise DeliveryError(problem="the watcher was closed before the program asked for the next notice")

    def take(self, timeout_s: float | None = None) -> WatchedCase | None:
        """Wait for the next notice; None after the last one. The previous one then counts as delivered.

        Raises:
            TimeoutError: No notice came within *timeout_s*.
        """
        with self._changed:
            self._acknowledge()
            if not self._changed.wait_for(self._has_answer, timeout_s):
                raise TimeoutError(f"no notice within {timeout_s} s")
            return self._hand_over()

    async def take_async(self) -> WatchedCase | None:
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
        """End the program's loop at once. If *is_worked_on*, the notice that it holds counts as delivered."""
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

    def _hand_over(self) -> WatchedCase | None:
        if self._is_closed or self._offered is None or self._is_taken:
            return None
        self._is_taken = True
        return self._offered

    def _notify(self) -> None:
        self._changed.notify_all()
        for wake in self._wakers:
            wake()
