"""
What the outbox holds, each notice once for each sink, and when one that failed is tried again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Literal

from attrs import field, frozen
from attrs.validators import ge, gt

from workerdiag.model.vocabulary import DeliveryState
from workerdiag.watch.sinks.sink import Delivery
from workerdiag.watch.watched_case import Notice

#: What becomes of a delivery that a kill cut off: sent again with its id, or given up and listed.
OnDoubt = Literal["resend", "give-up"]
#: An exponent beyond which every wait is the longest; 2.0 to a larger one overflows some day.
_MAX_DOUBLINGS = 60


@frozen(kw_only=True)
class StoredDelivery:
    """
    One notice for one sink, as the outbox has it.
    """

    #: `delivery_id`: the same in every attempt.
    id: str
    sink: str
    state: DeliveryState
    #: How often it was tried; one that is ``sending`` counts.
    attempts: int = 0
    #: Of the last attempt that failed; empty if none did.
    problem: str = ""
    #: When it may be tried again, in seconds since the epoch.
    due_at: float
    #: Since when it is in its state: a sink that hangs is ``sending`` for long.
    since: float
    #: None if the file does not have it as it was.
    notice: Notice | None = field(repr=False)


@frozen(kw_only=True)
class Claim:
    """
    A delivery that is ``sending`` now.
    """

    delivery: Delivery
    #: Attempts since it was put into the outbox, or back into it by a person.
    tries: int


def delivery_id(notice_id: str, sink: str) -> str:
    """
    The id of a notice at a sink: equal for equal names, whoever sends it, and fit for a header.
    """
    return hashlib.sha256(f"{notice_id}\n{sink}".encode("utf-8", "backslashreplace")).hexdigest()[:32]


@frozen(kw_only=True)
class SinkStatus:
    """
    How a sink is doing, as far as its deliveries say.
    """

    name: str
    counts: Mapping[DeliveryState, int] = field(factory=dict, hash=False)
    #: Since when it is at one delivery, in seconds since the epoch: long ago if it hangs. None: at none.
    sending_since: float | None = None
    #: Since when the oldest delivery waits; None: none does.
    waiting_since: float | None = None
    #: Why the last delivery that is not sent failed; or why the state file cannot be written.
    problem: str = ""


@frozen(kw_only=True)
class RetrySettings:
    """
    Waits that double, with half of each at random, so that many senders do not come back at once.
    """

    #: Before the second attempt, in seconds.
    first_s: float = field(default=1.0, validator=gt(0))
    #: However often it failed, in seconds.
    longest_s: float = field(default=600.0, validator=gt(0))
    #: However late the receiver asks to be tried again, in seconds.
    longest_retry_after_s: float = field(default=86400.0, validator=gt(0))
    #: Attempts until it is a dead letter: with the waits above, 18 to 24 hours.
    max_attempts: int = field(default=150, validator=ge(1))

    def wait_s(self, failures: int, retry_after_s: float | None, random: Callable[[], float]) -> float:
        """
        Seconds until the next attempt, never fewer than the receiver asked for.

        Args:
            failures: Attempts that failed, from 1.
            retry_after_s: What the receiver asked for.
            random: A number from 0 to 1, another one at each call.
        """
        step = min(self.longest_s, self.first_s * 2.0 ** min(failures - 1, _MAX_DOUBLINGS))
        wait = step * (0.5 + 0.5 * random())
        if retry_after_s is not None and retry_after_s > 0:  # a NaN is not
            asked = min(retry_after_s, self.longest_retry_after_s)
            return max(wait, asked + self.first_s * random())
        return wait
