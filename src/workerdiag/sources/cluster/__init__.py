"""
A live cluster, asked through its client what it remembers of the workers that died.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve

from workerdiag.deadline import Deadline
from workerdiag.model.dask import Client
from workerdiag.model.evidence import Evidence
from workerdiag.model.identity import Identity
from workerdiag.model.vocabulary import Place
from workerdiag.sources.cluster.asker import Asker, ClusterQuestion
from workerdiag.sources.cluster.queries import answer_in_time
from workerdiag.sources.cluster.session import ClusterSession


class ClusterSource:
    """
    What a scheduler and its nannies remember, asked with bounded calls that change nothing.

    Asked for are: the topics of the dead workers and those that carry causes, the logs of the
    scheduler and of at most four nannies, the state of the workers (of more than 500 those that matter,
    with counts of all), how many workers were lost, and how many tasks are in which state. Never all
    workers' logs, never a dump. A scheduler that is silent once is left alone; of a LocalCluster the logs
    are then read in this process. Asked again, it asks only for what it was not told.

    Args:
        client: A ``distributed.Client`` (2024.8.1 or newer), synchronous or not.
        question: What is asked; None: what is always asked.
        asker: Knows what an earlier round was told; None: this is the first.
    """

    name = "cluster"
    place: Place = "scheduler"

    def __init__(
        self, client: Client, question: ClusterQuestion | None = None, *, asker: Asker | None = None
    ) -> None:
        self._client = client
        self._question = question or ClusterQuestion()
        self._asker = asker or Asker(client)

    def next_round(self, *, about: tuple[Identity, ...] | None = None) -> ClusterSource:
        """
        The same source, that knows what this one was told so far and asks only for the rest.

        Args:
            about: Other workers in question; None: the same.
        """
        question = self._question if about is None else evolve(self._question, about=about)
        return ClusterSource(self._client, question, asker=self._asker.next_round())

    def collect(self, *, budget_s: float) -> Iterator[Evidence]:
        """
        What the cluster remembers, within *budget_s* seconds; a gap from within the client's own event loop.
        """
        deadline = Deadline.of_budget(budget_s)
        session = self._new_session(deadline)
        try:
            if session.can_begin() and not session.would_block():
                self._client.sync(session.ask_all, callback_timeout=deadline.left_s)
        except Exception as problem:  # noqa: BLE001  a closing client raises anything
            self._asker.abort(problem)
        yield from session.evidence()

    async def collect_async(self, *, budget_s: float) -> list[Evidence]:
        """
        The same, from within the client's event loop.
        """
        deadline = Deadline.of_budget(budget_s)
        session = self._new_session(deadline)
        try:
            if session.can_begin():
                await answer_in_time(session.ask_all, deadline)
        except Exception as problem:  # noqa: BLE001  as above
            self._asker.abort(problem)
        return session.evidence()

    def _new_session(self, deadline: Deadline) -> ClusterSession:
        self._asker.begin_round(deadline)
        return ClusterSession(self._client, self._question, self._asker)
