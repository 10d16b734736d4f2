"""
What the flight recorder kept of the dead, asked of the scheduler through a client.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from workerdiag.deadline import Deadline
from workerdiag.model.evidence import Evidence, Gap
from workerdiag.model.identity import Identity
from workerdiag.sources.recorder.evidence import death_evidence
from workerdiag.sources.recorder.selection import (
    RecordedDeaths,
    deaths_from_messages,
    has_ring,
    select_recent,
)
from workerdiag.wire.constants import DEATH_TOPIC, RECORDER

#: Of the time there is, the first question may take so much, as all that come after depend on it.
_SHARE = 0.5
#: Of what is then left, the second one.
_RING_SHARE = 0.9
#: A nanny that has not told after so long may have died with its worker.
_WAIT_S = 1.0
_MAX_DEATHS = 32
_MAX_BYTES = 2**20


class RecorderSource:
    """
    Records of the deaths in question, where `workerdiag.install` or a preload put the recorder in place.

    Without a recorder this costs two small questions to the scheduler and yields nothing, no gap either.

    Args:
        client: A ``distributed.Client``, synchronous or not.
        about: The workers in question, where an exception names them; else those that died lately.
        tasks: Keys of the tasks that Dask gave up on: all deaths of theirs are told of.
    """

    name = RECORDER

    def __init__(self, client: Any, *, about: Sequence[Identity] = (), tasks: Sequence[str] = ()) -> None:
        self._client = client
        self._about = tuple(dict.fromkeys(each.worker for each in about if each.worker))
        self._tasks = tuple(dict.fromkeys(tasks))

    def collect(self, *, budget_s: float) -> Iterator[Evidence]:
        """
        What was recorded, within *budget_s* seconds; nothing from within the client's own event loop.
        """
        if not self._is_open() or self._client.asynchronous:
            return
        from workerdiag.sources.cluster.queries import query_gap  # asyncio is not for those who read files

        deadline = Deadline.of_budget(budget_s)
        try:
            evidence = self._client.sync(self._ask, deadline, callback_timeout=deadline.left_s)
        except Exception as problem:  # noqa: BLE001  a closing client raises anything
            evidence = [query_gap(self.name, problem)]
        yield from evidence

    async def collect_async(self, *, budget_s: float) -> list[Evidence]:
        """
        The same, from within the client's event loop.
        """
        return await self._ask(Deadline.of_budget(budget_s)) if self._is_open() else []

    def _is_open(self) -> bool:
        """
        Whether there is anybody to ask; that there is not, the cluster source says.
        """
        return self._client.status == "running" and self._client.scheduler is not None

    async def _ask(self, deadline: Deadline) -> list[Evidence]:
        from workerdiag.sources.cluster.queries import answer_in_time, query_gap

        try:
            entries = await answer_in_time(self._entries, deadline.share(_SHARE))
        except Exception:  # noqa: BLE001  a scheduler that is silent is the cluster source's gap
            return []
        if not entries:
            return []
        try:
            deaths = await self._ask_ring(deadline) if has_ring(entries) else None
        except Exception as problem:  # noqa: BLE001  it passes on whatever its handlers raise
            return [*self._evidence_of(deaths_from_messages(entries)), query_gap(self.name, problem)]
        return self._evidence_of(deaths_from_messages(entries) if deaths is None else deaths)

    async def _entries(self) -> list[tuple[float, Any]]:
        """
        The events of the recorder's topic; asking for them by name would make the topic.
        """
        from workerdiag.sources.cluster import queries, snapshot, tasks

        if tasks.has_same_python(await tasks.fetch_versions(self._client)):
            try:
                return await snapshot.look_at_topic(self._client, DEATH_TOPIC)
            except Exception:  # noqa: BLE001, S110  it may be forbidden to run anything there
                pass
        return await queries.fetch_events(self._client, DEATH_TOPIC)

    async def _ask_ring(self, deadline: Deadline) -> RecordedDeaths:
        from workerdiag.sources.cluster.queries import answer_in_time

        left = deadline.share(_RING_SHARE)
        reply: Mapping[str, Any] = await answer_in_time(
            lambda: self._client.scheduler.workerdiag_deaths(
                about=list(self._about),
                tasks=list(self._tasks),
                most=_MAX_DEATHS,
                most_bytes=_MAX_BYTES,
                wait_s=min(_WAIT_S, 0.5 * left.left_s),
            ),
            left,
        )
        return RecordedDeaths(
            deaths=tuple(reply["deaths"]), now=float(reply["now"]), left_out=int(reply["left_out"])
        )

    def _evidence_of(self, deaths: RecordedDeaths) -> list[Evidence]:
        selected = select_recent(deaths, about=self._about, tasks=self._tasks)
        found: list[Evidence] = list(death_evidence(selected))
        if deaths.left_out:
            detail = f"{deaths.left_out} more deaths are recorded, too many to tell of at once"
            remedy = "give the exception: explain(exc, client)"
            found.append(Gap(source=self.name, reason="timed-out", detail=detail, remedy=remedy))
        return found
