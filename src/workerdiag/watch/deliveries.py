"""The deliveries of the outbox, one for each notice and sink, and when to retry them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Literal

from attrs import field, frozen
from attrs.validators import ge, gt

from workerdiag.model.vocabulary import DeliveryState
from workerdiag.watch.sinks.sink import Delivery
from workerdiag.watch.watched_case import Notice

#: How to treat a delivery interrupted by a kill: send it again with its id, or give it up and list it.
OnDoubt = Literal["resend", "give-up"]
#: Exponent beyond which every wait is the longest; 2.0 to a larger one may overflow.
_MAX_DOUBLINGS = 60


@frozen(kw_only=True)
class StoredDelivery:
    """One notice for one sink in the outbox."""

    #: `delivery_id`: the same in every attempt.
    id: str
    sink: str
    state: DeliveryState
    #: Number of attempts, including one that is ``sending``.
    attempts: int = 0
    #: Error of the last failed attempt; empty if none failed.
    problem: str = ""
    #: When to try it again, in seconds since the epoch.
    due_at: float
    #: Since when it is in its state: a sink that hangs stays ``sending``.
    since: float
    #: None if the file has no valid notice.
    notice: Notice | None = field(repr=False)


@frozen(kw_only=True)
class Claim:
    """A delivery that is ``sending``."""

    delivery: Delivery
    #: Attempts since it entered the outbox, or since a person put it back.
    tries: int


def delivery_id(notice_id: str, sink: str) -> str:
    """Return the id of a notice at a sink: equal for all senders, and valid in a header."""
    return hashlib.sha256(f"{notice_id}\n{sink}".encode("utf-8", "backslashreplace")).hexdigest()[:32]


@frozen(kw_only=True)
class SinkStatus:
    """The status of a sink, by its deliveries."""

    name: str
    counts: Mapping[DeliveryState, int] = field(factory=dict, hash=False)
    #: Start of its current delivery, in seconds since the epoch: long ago if it hangs. None: no delivery.
    sending_since: float | None = None
    #: Since when the oldest delivery waits; None: nothing waits.
    waiting_since: float | None = None
    #: Why the latest unsent delivery failed; or why the state file cannot be written.
    problem: str = ""


@frozen(kw_only=True)
class RetrySettings:
    """Exponential back-off with jitter: waits double, and half of each is random."""

    #: Wait before the second attempt, in seconds.
    first_s: float = field(default=1.0, validator=gt(0))
    #: Longest wait after failures, in seconds.
    longest_s: float = field(default=600.0, validator=gt(0))
    #: Longest wait that a receiver can ask for, in seconds.
    longest_retry_after_s: float = field(default=86400.0, validator=gt(0))
    #: Attempts before it becomes a dead letter: with the waits above, 18 to 24 hours.
    max_attempts: int = field(default=150, validator=ge(1))

    def wait_s(self, failures: int, retry_after_s: float | None, random: Callable[[], float]) -> float:
        """Return the seconds until the next attempt, at least those that the receiver asked for.

        Args:
            failures: Number of failed attempts, from 1.
            retry_after_s: Wait that the receiver asked for.
            random: Returns a random number from 0 to 1.
        """
        step = min(self.longest_s, self.first_s * 2.0 ** min(failures - 1, _MAX_DOUBLINGS))
        wait = step * (0.5 + 0.5 * random())
        if retry_after_s is not None and retry_after_s > 0:  # a NaN is not
            asked = min(retry_after_s, self.longest_retry_after_s)
            return max(wait, asked + self.first_s * random())
        return wait
