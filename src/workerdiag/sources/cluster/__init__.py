"""Evidence from a live cluster, queried through a Dask client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from attrs import evolve

from workerdiag.deadline import Deadline
from workerdiag.guard import guarded
from workerdiag.model.dask import Client, Reply
from workerdiag.model.evidence import Evidence
from workerdiag.model.identity import Identity
from workerdiag.model.vocabulary import Place
from workerdiag.sources.cluster.queries import Asker, ClusterQuestion, answer_in_time
from workerdiag.sources.cluster.session import ClusterSession


class ClusterSource:
    """Reads what a scheduler and its nannies remember, with bounded calls that change nothing.

    It requests the event topics of the dead workers and those that report causes, the logs of the scheduler and of
    at most four nannies, the workers' states, and counts of tasks; never the logs of all workers or a cluster dump.
    After one time-out it sends the scheduler nothing more, and reads the logs of a LocalCluster in this process.
    Answers are kept, those in *known* too: a later round requests only what is missing.
    """

    name = "cluster"
    place: Place = "scheduler"

    def __init__(
        self, client: Client, question: ClusterQuestion | None = None, *, known: Reply | None = None
    ) -> None:
        self._client = client
        self._question = question or ClusterQuestion()
        self._answers = dict(known or {})

    def next_round(self, *, about: tuple[Identity, ...] | None = None) -> ClusterSource:
        """Return a source that keeps this one's answers and requests only what is missing, or *about* others."""
        question = self._question if about is None else evolve(self._question, about=about)
        return ClusterSource(self._client, question, known=self._answers)

    def collect(self, *, budget_s: float) -> Iterator[Evidence]:
        """Yield what the cluster remembers, in *budget_s* seconds; on the client's own event loop only a gap."""
        deadline = Deadline.of_budget(budget_s)
        asker = Asker(self._client, self._answers, deadline)
        session = ClusterSession(self._client, self._question, asker)
        with guarded("asking the cluster", asker.abort):
            if session.can_begin() and session.can_wait():
                self._client.sync(session.ask_all, callback_timeout=deadline.left_s)
        if not getattr(self._client, "asynchronous", False):
            session.look_at_client()
        yield from session.evidence()

    async def collect_async(self, *, budget_s: float) -> list[Evidence]:
        """Return the same evidence from within the client's event loop."""
        deadline = Deadline.of_budget(budget_s)
        asker = Asker(self._client, self._answers, deadline)
        session = ClusterSession(self._client, self._question, asker)
        with guarded("asking the cluster", asker.abort):
            if session.can_begin():
                await answer_in_time(session.ask_all, deadline)
        await asyncio.to_thread(session.look_at_client)
        return session.evidence()
