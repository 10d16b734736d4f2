"""Asks a scheduler whether its flight recorder has anything to tell, and has it tell."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from workerdiag.deadline import Deadline
from workerdiag.guard import guarded
from workerdiag.model.dask import Client
from workerdiag.model.evidence import Evidence
from workerdiag.model.identity import Identity
from workerdiag.sources.cluster import queries, workers
from workerdiag.sources.cluster.queries import answer_in_time, query_gap
from workerdiag.wire import ACT_TOPIC, DEATH_TOPIC, RECORDER

if TYPE_CHECKING:
    from workerdiag.model.replay import KitContent


class RecorderSource:
    """Reads the records of relevant deaths if `workerdiag.install` or a preload installed the recorder.

    Without a recorder it sends two small requests to the scheduler and yields nothing, not even a gap.

    *about* are the workers that an exception names (if empty, those that died recently), *tasks* the keys of those
    that Dask gave up on, of which all deaths are selected.
    """

    name = RECORDER

    def __init__(self, client: Client, *, about: Sequence[Identity] = (), tasks: Sequence[str] = ()) -> None:
        self._client = client
        self._about = tuple(dict.fromkeys(each.worker for each in about if each.worker))
        self._tasks = tuple(dict.fromkeys(tasks))
        #: How to run again what ran as the workers died; None until it was asked, and where there is none.
        self.recipe: tuple[KitContent, bytes] | None = None

    def collect(self, *, budget_s: float) -> Iterator[Evidence]:
        """Yield the recorded deaths, within *budget_s* seconds; nothing on the client's own event loop."""
        is_open = self._client.status == "running" and self._client.scheduler is not None
        if not is_open or self._client.asynchronous:  # the cluster source has the gap
            return
        deadline = Deadline.of_budget(budget_s)
        evidence: list[Evidence] = []
        with guarded("asking for recorded deaths") as asking:
            evidence = self._client.sync(self._ask, deadline, callback_timeout=deadline.left_s)
        yield from evidence
        if asking.problem is not None:
            yield query_gap(self.name, asking.problem)

    async def _ask(self, deadline: Deadline) -> list[Evidence]:
        entries: list[tuple[float, object]] = []
        with guarded("asking for the recorder's topic"):  # if it is silent, the cluster source has the gap
            entries = await answer_in_time(self._entries, deadline.share(0.5))
        if not entries:
            return []
        from workerdiag.sources.recorder.recorded_deaths import RecordedDeaths  # imports all messages

        recorded = RecordedDeaths(self._client, self._about, self._tasks)
        evidence = await recorded.evidence(entries, deadline)
        self.recipe = recorded.recipe
        return evidence

    async def _entries(self) -> list[tuple[float, object]]:
        """Return the events of the recorder's topic, and of `workerdiag.rescue`'s where that creates none.

        ``events`` would create the topic, so it comes last.
        """
        versions = await workers.fetch_versions(self._client)
        if workers.has_same_python(versions):
            with guarded("looking at the recorder's topic"):  # running functions there may be forbidden
                looks = (queries.look_at_topic(self._client, topic) for topic in (DEATH_TOPIC, ACT_TOPIC))
                deaths, acts = await asyncio.gather(*looks)
                return deaths + acts
        return await queries.fetch_events(self._client, DEATH_TOPIC)
