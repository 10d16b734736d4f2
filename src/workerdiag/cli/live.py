"""A scheduler that is known by its address only: connect, query, disconnect, all within the time given."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import distributed  # noqa: F401  here, as a thread that imports it cannot be given up
from attrs import frozen

from workerdiag.deadline import Deadline
from workerdiag.errors import describe_connection_error
from workerdiag.model.event_topics import scheduler_topics
from workerdiag.model.evidence import Evidence, Gap
from workerdiag.model.rules import Rulebook
from workerdiag.model.vocabulary import Place
from workerdiag.sources.cluster.client import connect
from workerdiag.sources.discovery import Discovery

#: Share of the time that connecting may take.
_CONNECT_SHARE = 0.6
#: Seconds for disconnecting.
_CLOSE_S = 1.0


@frozen
class SchedulerSource:
    """All that the scheduler at an address, and the platforms below it, can be asked."""

    address: str
    book: Rulebook
    name: str = "scheduler"
    place: Place = "scheduler"

    def collect(self, *, budget_s: float) -> Iterator[Evidence]:
        """Yield what there is; one gap of source ``scheduler`` if it cannot be reached."""
        deadline = Deadline.after(budget_s)
        try:
            client = connect(self.address, timeout_s=round(budget_s * _CONNECT_SHARE, 1))
        except Exception as problem:  # noqa: BLE001  an address can be wrong in many ways
            yield Gap(
                source=self.name,
                place=self.place,
                reason="unreachable",
                detail=f"cannot connect to {self.address}: {describe_connection_error(problem)}"[:500],
                remedy="an address looks like tcp://10.0.0.1:8786; check it and that the scheduler runs",
            )
            return
        try:
            topics = scheduler_topics(self.book)
            yield from Discovery(client, (), deadline, topics=topics).collect()
        finally:
            with suppress(Exception):
                client.close(timeout=_CLOSE_S)  # type: ignore[no-untyped-call]


@contextmanager
def quiet_dask() -> Iterator[None]:
    """Suppress the log lines of Dask, which would stand between the lines of the report."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
