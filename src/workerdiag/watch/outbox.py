"""The outbox: delivers notices at least once to every sink, in order for each case, across kills.

A notice is in the outbox from the transaction that decided on it until its sink has taken it, so none is
lost. It is sent twice only if the watcher was killed, or the answer was lost, between sending and noting.
Then it has the same `Delivery.id`, and a receiver can drop the repeat. Each sink has a thread, so that one that
hangs delays no other.
"""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from attrs import Factory, define, evolve, field

from workerdiag.deadline import NO_DEADLINE, Deadline, in_thread, start_thread
from workerdiag.errors import StateFileError, describe_error, error_text
from workerdiag.guard import guarded
from workerdiag.redaction.secrets import redact_text
from workerdiag.watch.case import WatchedCase
from workerdiag.watch.sinks.base import Delivery, DeliveryError, Sink, SinkSetupError
from workerdiag.watch.state_file import BUSY_S
from workerdiag.watch.store import DeliveryTable, RetrySettings, SinkStatus, Store


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
    ) -> None:
        names = [each.name for each in sinks]
        if doubles := sorted({name for name in names if names.count(name) > 1}):
            raise SinkSetupError(doubles[0], "several sinks have this name", "give each its own name")
        self._table = store.outbox
        self._retry = retry or RetrySettings()
        self._threads = [
            SinkThread(sink=each, table=self._table, cluster=cluster, retry=self._retry, clock=clock)
            for each in sinks
        ]

    def start(self) -> None:
        """Begin to deliver, including earlier notices and interrupted deliveries; raises StateFileError."""
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

    def close(self, timeout_s: float) -> None:
        """Deliver what is possible in time, then stop; the state keeps the rest for the next watcher."""
        deadline = Deadline.after(timeout_s)
        for each in self._threads:
            each.finish(deadline)
        for each in self._threads:
            each.join(deadline)


#: Seconds between two looks for deliveries that others put back, and for whether the file can be written again.
_POLL_S = 5.0
_MAX_PROBLEM_CHARS = 500
#: A truncated secret would not be recognized, so more text is read than is kept.
_MAX_READ_CHARS = 8192


@define(eq=False, kw_only=True)
class SinkThread:
    """Delivers what the outbox has for one sink: one call at a time, without a lock or an open transaction."""

    _sink: Sink
    _table: DeliveryTable
    _cluster: str | None
    _retry: RetrySettings
    _clock: Callable[[], float]
    name: str = field(init=False, default=Factory(lambda self: self._sink.name, takes_self=True))
    #: Why the state file cannot be written; empty if it can.
    problem: str = field(default="", init=False)
    _wakes: threading.Event = field(factory=threading.Event, init=False)
    _has_ended: threading.Event = field(factory=threading.Event, init=False)
    #: When a sink that forgets was last told what is open.
    _repeated_at: float = field(default=0.0, init=False)
    #: End of the pause that the sink asked for.
    _resumes_at: float = field(default=0.0, init=False)
    #: Deadline for its end, once it is to end.
    _deadline: Deadline | None = field(default=None, init=False)

    def start(self) -> None:
        """Begin to deliver, after the end of a pause that was requested before a restart."""
        self._resumes_at = self._table.paused_until(self.name) or 0.0
        start_thread(f"workerdiag-sink-{self.name}", self._run)

    def wake(self) -> None:
        """Check the outbox now."""
        self._wakes.set()

    def finish(self, deadline: Deadline) -> None:
        """End when nothing is due before *deadline*, or at *deadline*."""
        self._deadline = deadline
        self._wakes.set()

    def join(self, deadline: Deadline) -> None:
        """Wait for the end requested by `finish`, as the sink may still be delivering."""
        self._has_ended.wait(deadline.left_s)

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
        repeat_s: float | None = getattr(self._sink, "repeat_s", None)
        if repeat_s is None or self._deadline is not None or 0 <= now - self._repeated_at < repeat_s:
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
            due_at = self._clock() + self._retry.wait_s(tries, outcome.retry_after_s, random.random)
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
        if len(json.dumps(receipt)) <= 2048:
            return receipt
    return {}


def _shown(problem: str) -> str:
    """Return the error text for the status, without secrets: library errors often quote URLs with tokens."""
    return redact_text(problem[:_MAX_READ_CHARS])[:_MAX_PROBLEM_CHARS]


#: Name of this sink in the outbox, the same after a restart.
INBOX_NAME = "iterator"


@define(eq=False)
class Inbox:
    """Hands the notices of the outbox that are for the loop of a program to it, one at a time.

    A notice counts as delivered when the program asks for the next one, or closes the watcher in order. If
    its loop fails, the notice is delivered again after a restart.
    """

    _table: DeliveryTable
    #: The notice that the program has, or gets next.
    _held: Delivery | None = field(default=None, init=False)
    #: Whether the program has it, and whether it has worked on it.
    _is_taken: bool = field(default=False, init=False)
    _is_worked_on: bool = field(default=False, init=False)
    _is_ended: bool = field(default=False, init=False)
    _is_closed: bool = field(default=False, init=False)
    _changed: threading.Condition = field(factory=threading.Condition, init=False)

    def start(self) -> None:
        """Put back what an earlier program did not work on. Raises StateFileError."""
        self._table.recover(INBOX_NAME, longest_wait_s=0.0)

    def take(self, timeout_s: float | None = None) -> WatchedCase | None:
        """Wait for the next notice, after which the previous one counts as delivered; None after the last."""
        deadline = NO_DEADLINE if timeout_s is None else Deadline.after(timeout_s)
        with self._changed:
            self._is_worked_on = self._is_taken
            while not self._has_answer():
                if deadline.is_over:
                    raise TimeoutError(f"no notice within {timeout_s} s")
                self._changed.wait(min(_POLL_S, deadline.left_s))
            return self._hand_over()

    async def take_async(self) -> WatchedCase | None:
        """Do the same as `take` without blocking the event loop of the program."""
        with self._changed:
            self._is_worked_on = self._is_taken
        while not await in_thread("workerdiag-notices", self._wait, timeout_s=BUSY_S + 2 * _POLL_S):
            pass
        with self._changed:
            return self._hand_over()

    def _wait(self) -> bool:
        """Whether there is an answer, after a wait for a change if there is none."""
        with self._changed:
            return self._has_answer() or (self._changed.wait(_POLL_S) and self._has_answer())

    def wake(self) -> None:
        """Look for new notices now."""
        with self._changed:
            self._changed.notify_all()

    def end(self) -> None:
        """End the program's loop after the last notice: no more will come."""
        self._is_ended = True
        self.wake()

    def close(self, *, is_worked_on: bool) -> None:
        """End the program's loop at once. If *is_worked_on*, the notice that it has counts as delivered."""
        with self._changed:
            self._is_worked_on = self._is_worked_on or (self._is_taken and is_worked_on)
            self._is_closed = True
            with contextlib.suppress(StateFileError):
                self._acknowledge()
                self._table.recover(INBOX_NAME, longest_wait_s=0.0)
        self.wake()

    def _has_answer(self) -> bool:
        """Whether there is a notice, or none will come; False while the state cannot be read or written."""
        with self._changed, contextlib.suppress(StateFileError):
            if self._is_closed:
                return True
            self._acknowledge()
            if self._held is None:
                is_last = self._is_ended
                claim = self._table.claim(INBOX_NAME)
                if claim is None:
                    return is_last
                self._held = claim[0]
            return not self._is_taken
        return False

    def _acknowledge(self) -> None:
        if self._is_worked_on and self._held is not None:
            self._table.note_sent(self._held.id, {})
            self._held, self._is_taken, self._is_worked_on = None, False, False

    def _hand_over(self) -> WatchedCase | None:
        if self._is_closed or self._held is None or self._is_taken:
            return None
        self._is_taken = True
        return self._held.notice
