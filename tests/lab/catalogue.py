"""The type of a fault, and the catalogue of all faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import field, frozen
from distributed import Client

import workerdiag

from .cluster import Lab


@frozen(kw_only=True)
class Aftermath:
    """What a user has after a fault."""

    #: The exception that the user caught; None if work just stops.
    exc: BaseException | None = None
    client: Client | None = None
    #: Logs that a user would also pass, because no process is left to ask.
    logs: tuple[Any, ...] = ()
    #: Pid of the worker process that died (first or last), if known.
    pid: int | None = None
    #: Whether `workerdiag.auto` was on when the exception was raised.
    is_noted: bool = True
    #: Further facts for assertions.
    facts: dict[str, Any] = field(factory=dict)

    def explain(self, *, timeout: str = "30s") -> workerdiag.Diagnosis:
        """Return the diagnosis for that user; the time-out suits a machine busy with other tests."""
        return workerdiag.explain(self.exc, self.client, logs=self.logs, timeout=timeout)


Fault = Callable[[Lab], Aftermath]

#: Every fault by the name that ``python -m tests.lab`` takes.
FAULTS: dict[str, Fault] = {}


def fault(provoke: Fault) -> Fault:
    """Register *provoke* under its name with dashes."""
    FAULTS[provoke.__name__.replace("_", "-")] = provoke
    return provoke
