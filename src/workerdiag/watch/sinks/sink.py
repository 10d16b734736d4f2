"""What a sink owes the watcher."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from attrs import define, field, frozen

from workerdiag.errors import WorkerdiagError
from workerdiag.watch.case import Notice


@frozen(kw_only=True)
class Delivery:
    """One notice on its way to one sink."""

    #: The same in every attempt: a receiver that sees it twice may drop the second.
    id: str
    notice: Notice
    #: Counted from 1.
    attempt: int = 1
    #: What this sink returned for the last notice of the case: the id of a message to edit, its thread.
    receipt: Mapping[str, str] = field(factory=dict, hash=False)


@runtime_checkable
class Sink(Protocol):
    """A place that notices go to. Each has a thread of its own, so it may wait; it is called once at a time."""

    @property
    def name(self) -> str:
        """Short and the same after a restart: outbox and messages name the sink by it."""

    def deliver(self, delivery: Delivery) -> Mapping[str, str]:
        """Send it; return what the next delivery of this case needs to know, at most 2 kB.

        Raises:
            DeliveryError: It could not be sent. Any other exception counts as one that may be tried again.
        """


@define
class SinkSetupError(WorkerdiagError):
    """A sink cannot work as it was set up: a token is empty, an address is none."""

    #: What kind of sink: ``webhook``, ``slack``.
    sink: str
    #: What is wrong, without secrets.
    problem: str
    #: What to do about it.
    remedy: str

    def __str__(self) -> str:
        return f"cannot use the {self.sink} sink: {self.problem} ({self.remedy})"


def _delay_s(given: object) -> float | None:
    """A number of seconds, also as text; None for anything else."""
    try:
        seconds = float(given)  # type: ignore[arg-type]
    except Exception:  # noqa: BLE001  a sink may hand over anything
        return None
    return seconds if math.isfinite(seconds) else None


@define
class DeliveryError(WorkerdiagError):
    """A notice could not be sent."""

    #: What was wrong, for a person, without secrets.
    problem: str
    #: Whether another attempt is of no use: a wrong token, a message that is refused.
    is_final: bool = False
    #: Seconds after which the receiver wants to be tried again (``Retry-After``). Text that is no number
    #: counts as not given.
    retry_after_s: float | None = field(default=None, converter=_delay_s)

    def __str__(self) -> str:
        return self.problem
