"""
A scheduler that is known by its address only: connect, ask, let go, all within the time given.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from attrs import frozen

from workerdiag.errors import describe_error
from workerdiag.model.evidence import Evidence, Gap

#: Connecting may take this share of the time.
_CONNECT_SHARE = 0.6
#: Saying goodbye changes nothing any more.
_CLOSE_S = 1.0


def query_scheduler(address: str, *, budget_s: float) -> list[Evidence]:
    """
    What the scheduler at *address* says; one gap of source ``scheduler`` if it is out of reach.

    Importing distributed is not counted; a client that hangs is left behind when time is up.
    """
    import distributed  # noqa: F401  here, as a thread that imports it cannot be given up

    from workerdiag.sources.runner import collect_all

    with _silence_dask():
        return collect_all([_SchedulerSource(address)], budget_s=budget_s)


@frozen
class _SchedulerSource:
    address: str
    name: str = "scheduler"

    def collect(self, *, budget_s: float) -> Iterator[Evidence]:
        from distributed import Client

        from workerdiag.sources.discovery import Discovery

        started = time.monotonic()
        try:
            client = Client(  # type: ignore[no-untyped-call]
                self.address,
                timeout=round(budget_s * _CONNECT_SHARE, 1),
                set_as_default=False,
                name="workerdiag",
            )
        except Exception as problem:  # noqa: BLE001  an address can be wrong in many ways
            yield Gap(
                source=self.name,
                reason="unreachable",
                detail=f"cannot connect to {self.address}: {describe_error(problem)}"[:500],
                remedy="check the address and that the scheduler runs; give logs to look at those alone",
            )
            return
        try:
            left_s = budget_s - (time.monotonic() - started)
            yield from Discovery(client, (), budget_s=left_s).collect()
        finally:
            with suppress(Exception):
                client.close(timeout=_CLOSE_S)  # type: ignore[no-untyped-call]


@contextmanager
def _silence_dask() -> Iterator[None]:
    """
    Without the log lines of Dask, which would stand between the lines of the report.
    """
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
