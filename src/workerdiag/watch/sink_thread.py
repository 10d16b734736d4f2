"""The thread of one sink: it delivers one notice after another, and delays no other sink if it hangs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping

from attrs import frozen

from workerdiag.deadline import NO_DEADLINE, Deadline, start_thread
from workerdiag.errors import StateFileError, StateInUseError, describe_error, error_text
from workerdiag.redaction.secrets import redact_text
from workerdiag.watch.deliveries import Claim, RetrySettings
from workerdiag.watch.delivery_table import DeliveryTable
from workerdiag.watch.sinks.sink import Delivery, DeliveryError, Sink

#: Seconds between two looks for deliveries that other processes put back, and for whether a state file can be
#: written again.
_POLL_S = 5.0
#: Maximum length of a receipt as JSON.
_MAX_RECEIPT_CHARS = 2048
_MAX_PROBLEM_CHARS = 500
#: A truncated secret would not be recognized, so more text is read than is kept.
_MAX_READ_CHARS = 8192


@frozen(kw_only=True)
class _Failure:
    problem: str
    is_final: bool = False
    retry_after_s: float | None = None


class SinkThread:
    """Delivers what the outbox has for one sink.

    Args:
        sink: The sink. It is called without a lock or an open transaction, one call at a time.
        table: The outbox.
        retry: When to retry.
        clock: Returns seconds since the epoch.
        random: Returns a random number from 0 to 1.
    """

    def __init__(
        self,
        sink: Sink,
        table: DeliveryTable,
        *,
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
                try:
                    wait_s = self._deliver_next()
                    self.problem = ""
                except StateInUseError as problem:  # the other watcher continues with all of it
                    self.problem = str(problem)
                    return
                except Exception as problem:  # noqa: BLE001  a thread that ends holds back all that is to come
                    self.problem = describe_error(problem, most_chars=_MAX_PROBLEM_CHARS)
                    wait_s = _POLL_S
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
            due_at = self._table.next_due_at(self.name)
            return self._wait_s(None if due_at is None else due_at - self._clock())
        self._deliver(claim)
        return 0.0

    def _wait_s(self, due_in_s: float | None) -> float | None:
        if self._deadline is not None and (due_in_s is None or due_in_s > self._deadline.left_s):
            return None
        return _POLL_S if due_in_s is None else min(_POLL_S, max(0.0, due_in_s))

    def _sleep(self, wait_s: float) -> None:
        if wait_s > 0:
            left_s = (self._deadline or NO_DEADLINE).left_s
            self._wakes.wait(min(wait_s, left_s))
            self._wakes.clear()

    def _deliver(self, claim: Claim) -> None:
        """Deliver, and note the outcome. If it cannot be noted, the attempt counts as failed."""
        outcome = self._attempt(claim.delivery)
        try:
            self._note(claim, outcome)
        except StateInUseError:
            raise
        except Exception as problem:  # noqa: BLE001  a delivery that is left "sending" holds back its case
            text = describe_error(problem, most_chars=_MAX_READ_CHARS)
            self._note(claim, _Failure(problem=_shown(f"the outcome could not be noted: {text}")))

    def _attempt(self, delivery: Delivery) -> Mapping[str, str] | _Failure:
        try:
            returned = self._sink.deliver(delivery)
        except DeliveryError as problem:
            return _Failure(
                problem=_shown(error_text(problem)),
                is_final=problem.is_final,
                retry_after_s=problem.retry_after_s,
            )
        except BaseException as problem:  # noqa: BLE001  a sink may be anybody's code
            return _Failure(problem=_shown(describe_error(problem, most_chars=_MAX_READ_CHARS)))
        return _receipt(returned)

    def _note(self, claim: Claim, outcome: Mapping[str, str] | _Failure) -> None:
        """Note the outcome, and retry until that succeeds: otherwise the notice would be sent again."""
        id_, due_at, is_pause = claim.delivery.id, 0.0, False
        if isinstance(outcome, _Failure):
            due_at = self._clock() + self._retry.wait_s(claim.tries, outcome.retry_after_s, self._random)
            is_pause = outcome.retry_after_s is not None and not outcome.is_final
            self._resumes_at = due_at if is_pause else self._resumes_at
        while True:
            try:
                if not isinstance(outcome, _Failure):
                    self._table.note_sent(id_, outcome)
                elif outcome.is_final or claim.tries >= self._retry.max_attempts:
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
    try:
        receipt = {str(key): str(value) for key, value in returned.items()}  # type: ignore[attr-defined]
    except Exception:  # noqa: BLE001  None, or anything else
        return {}
    return receipt if len(json.dumps(receipt)) <= _MAX_RECEIPT_CHARS else {}


def _shown(problem: str) -> str:
    """Return the error text for the status, without secrets: library errors often quote URLs with tokens."""
    return redact_text(problem[:_MAX_READ_CHARS])[:_MAX_PROBLEM_CHARS]
