"""
One sink at work: its deliveries one after the other, in a thread that holds nobody if it hangs.
"""

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

#: What other processes put back into the outbox is seen after at most this long, in seconds; this often, too,
#: it is tried whether a state file can be written again.
_POLL_S = 5.0
#: What a sink returns for its next delivery has at most this many characters as JSON.
_MAX_RECEIPT_CHARS = 2048
_MAX_PROBLEM_CHARS = 500
#: A secret that is cut off is not known as one, so more is read than is kept.
_MAX_READ_CHARS = 8192


@frozen(kw_only=True)
class _Failure:
    problem: str
    is_final: bool = False
    retry_after_s: float | None = None


class SinkThread:
    """
    Delivers what the outbox has for one sink.

    Args:
        sink: Called once at a time, with no lock held and no transaction open.
        table: The outbox.
        retry: When to try again.
        clock: Seconds since the epoch.
        random: A number from 0 to 1, another one at each call.
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
        #: The sink asked for a pause until then.
        self._resumes_at = 0.0
        #: Once it is to end: until when it may go on.
        self._deadline: Deadline | None = None

    def start(self) -> None:
        """
        Begin to deliver, but not before the end of a pause that was asked for before a restart.

        Raises:
            StateFileError: The state cannot be read.
            RuntimeError: The system cannot start another thread.
        """
        self._resumes_at = self._table.paused_until(self.name) or 0.0
        start_thread(f"workerdiag-sink-{self.name}", self._run)

    def wake(self) -> None:
        """
        Look at the outbox now.
        """
        self._wakes.set()

    def finish(self, deadline: Deadline) -> None:
        """
        End as soon as nothing is due before *deadline*, and by then at the latest.
        """
        self._deadline = deadline
        self._wakes.set()

    def join(self, deadline: Deadline) -> bool:
        """
        Wait for the end that `finish` asked for; False if the sink is still at a delivery by then.
        """
        return self._has_ended.wait(deadline.left_s)

    def _run(self) -> None:
        try:
            while self._deadline is None or not self._deadline.is_over:
                try:
                    wait_s = self._deliver_next()
                    self.problem = ""
                except StateInUseError as problem:  # the other watcher goes on with all of it
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
        """
        Deliver what is due; then how long to wait, in seconds, None if this is to end.
        """
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
        """
        Deliver, and write down what came of it; an outcome that cannot be noted is a failed attempt.
        """
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
        """
        Write down what came of it, and try that until it is possible: else it would go out again.
        """
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
    """
    What a sink returned, if the next delivery can have it; else nothing: it was sent all the same.
    """
    try:
        receipt = {str(key): str(value) for key, value in returned.items()}  # type: ignore[attr-defined]
    except Exception:  # noqa: BLE001  None, or anything else
        return {}
    return receipt if len(json.dumps(receipt)) <= _MAX_RECEIPT_CHARS else {}


def _shown(problem: str) -> str:
    """
    What went wrong, for the status: errors of libraries like to quote URLs with tokens.
    """
    return redact_text(problem[:_MAX_READ_CHARS])[:_MAX_PROBLEM_CHARS]
