"""
What a fault is, and the list of all faults.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import field, frozen
from distributed import Client

import workerdiag

from .cluster import Lab


@frozen(kw_only=True)
class Aftermath:
    """
    What is in a user's hands when a fault has done its work.
    """

    #: The exception that the user caught; None where work just stops.
    exc: BaseException | None = None
    client: Client | None = None
    #: Logs that a user would hand in as well, because there is no one left to ask.
    logs: tuple[Any, ...] = ()
    #: The worker process that died (first or last), where the lab knows.
    pid: int | None = None
    #: Whether `workerdiag.auto` was on when the exception came.
    is_noted: bool = True
    #: More of what happened, for the asserts.
    facts: dict[str, Any] = field(factory=dict)

    def explain(self, *, timeout: str = "30s") -> workerdiag.Diagnosis:
        """
        What we say to that user, given time enough for a machine that is busy with other tests.
        """
        return workerdiag.explain(self.exc, self.client, logs=self.logs, timeout=timeout)


Fault = Callable[[Lab], Aftermath]

#: Every fault by the name that ``python -m tests.lab`` takes.
FAULTS: dict[str, Fault] = {}


def fault(provoke: Fault) -> Fault:
    """
    Put *provoke* on the list, under its own name with dashes.
    """
    FAULTS[provoke.__name__.replace("_", "-")] = provoke
    return provoke
