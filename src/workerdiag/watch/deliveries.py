"""
What the outbox holds: each notice once for each sink, ``pending``, ``sending``, ``sent`` or ``dead``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Literal

from attrs import field, frozen

from workerdiag.model.vocabulary import DeliveryState
from workerdiag.watch.alerts import Notice
from workerdiag.watch.sinks.sink import Delivery

#: What becomes of a delivery that a kill cut off: sent again with its id, or given up and listed.
OnDoubt = Literal["resend", "give-up"]


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
