"""
A live cluster, asked through its client what it remembers of the workers that died.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from workerdiag.model.evidence import Evidence, Identity
from workerdiag.sources.cluster.interview import Interview
from workerdiag.sources.cluster.queries import answered


class ClusterSource:
    """
    What a scheduler and its nannies remember, asked with bounded calls that change nothing.

    Asked for are: the topics of the dead workers and those that carry causes, the logs of the
    scheduler and of at most four nannies, the state of the workers, and how many tasks are in which
    state. Never all workers' logs, never a dump. A scheduler that is silent once is left alone; of a
    LocalCluster the logs are then read in this process.

    Args:
        client: A ``distributed.Client`` (2024.8.1 or newer), synchronous or not.
        about: The workers in question, where an exception names them; else those removed lately.
    """

    name = "cluster"

    def __init__(self, client: Any, *, about: tuple[Identity, ...] = ()) -> None:
        self._client = client
        self._about = about

    def collect(self, *, budget_s: float) -> Iterator[Evidence]:
        """
        What the cluster remembers, within *budget_s* seconds; a gap from within the client's own event loop.
        """
        interview = Interview(self._client, self._about, budget_s)
        try:
            if interview.can_begin() and not interview.would_block():
                self._client.sync(interview.ask_all, callback_timeout=budget_s)
        except Exception as problem:  # noqa: BLE001  a closing client raises anything
            interview.break_off(problem)
        yield from interview.told()

    async def collect_async(self, *, budget_s: float) -> list[Evidence]:
        """
        The same, from within the client's event loop.
        """
        interview = Interview(self._client, self._about, budget_s)
        try:
            if interview.can_begin():
                await answered(interview.ask_all, within_s=budget_s)
        except Exception as problem:  # noqa: BLE001  as above
            interview.break_off(problem)
        return interview.told()
