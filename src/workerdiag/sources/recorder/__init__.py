"""Reads the flight recorder's death records from the scheduler through a client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import evolve

from workerdiag.deadline import Deadline
from workerdiag.model.dask import Client, Reply
from workerdiag.model.evidence import Evidence, Gap
from workerdiag.model.identity import Identity
from workerdiag.sources.recorder.evidence import death_evidence
from workerdiag.wire.constants import DEATH_TOPIC, RECORDER
from workerdiag.wire.messages import DeathReport, Message, RecorderState, decode_message
from workerdiag.wire.plain import from_plain
from workerdiag.wire.recorded_death import DeathsAnswer, merge_messages, select_recent
from workerdiag.wire.removal import RemovalRecord

#: Share of the time for the first request, on which all others depend.
_SHARE = 0.5
#: Share of the remaining time for the second request.
_RING_SHARE = 0.9
#: A nanny that has not reported after this many seconds may have died with its worker.
_WAIT_S = 1.0
_MAX_DEATHS = 32
_MAX_BYTES = 2**20


class RecorderSource:
    """Reads the records of relevant deaths if `workerdiag.install` or a preload installed the recorder.

    Without a recorder it sends two small requests to the scheduler and yields nothing, not even a gap.

    Args:
        client: A ``distributed.Client``, synchronous or not.
        about: The workers that an exception names; if empty, those that died recently.
        tasks: Keys of the tasks that Dask gave up on, of which all deaths are selected.
    """

    name = RECORDER

    def __init__(self, client: Client, *, about: Sequence[Identity] = (), tasks: Sequence[str] = ()) -> None:
        self._client = client
        self._about = tuple(dict.fromkeys(each.worker for each in about if each.worker))
        self._tasks = tuple(dict.fromkeys(tasks))

    def collect(self, *, budget_s: float) -> Iterator[Evidence]:
        """Yield the recorded deaths, within *budget_s* seconds; nothing on the client's own event loop."""
        if not self._is_open() or self._client.asynchronous:
            return
        from workerdiag.sources.cluster.queries import (
            query_gap,
        )  # keeps asyncio out of runs that only read files

        deadline = Deadline.of_budget(budget_s)
        try:
            evidence = self._client.sync(self._ask, deadline, callback_timeout=deadline.left_s)
        except Exception as problem:  # noqa: BLE001  a closing client raises anything
            evidence = [query_gap(self.name, problem)]
        yield from evidence

    async def collect_async(self, *, budget_s: float) -> list[Evidence]:
        """Return the same evidence from within the client's event loop."""
        return await self._ask(Deadline.of_budget(budget_s)) if self._is_open() else []

    def _is_open(self) -> bool:
        """Whether the client is connected; if not, the cluster source has the gap."""
        return self._client.status == "running" and self._client.scheduler is not None

    async def _ask(self, deadline: Deadline) -> list[Evidence]:
        from workerdiag.sources.cluster.queries import answer_in_time, query_gap

        try:
            entries = await answer_in_time(self._entries, deadline.share(_SHARE))
        except Exception:  # noqa: BLE001  the cluster source has the gap of a silent scheduler
            return []
        messages = list(_decoded(entries))
        if not messages:
            return []
        by_topic = _deaths_of_topic(messages, now=max(at for at, _ in entries))
        if not _has_ring(messages):
            return self._evidence_of(by_topic, [])
        try:
            answer, dropped = await self._ask_ring(deadline)
        except Exception as problem:  # noqa: BLE001  it passes on whatever its handlers raise
            return [*self._evidence_of(by_topic, []), query_gap(self.name, problem)]
        return self._evidence_of(answer, dropped)

    async def _entries(self) -> list[tuple[float, object]]:
        """Return the events of the recorder's topic; ``events`` would create the topic, so it comes last."""
        from workerdiag.sources.cluster import queries, snapshot, workers

        versions = await workers.fetch_versions(self._client)
        if workers.has_same_python(versions):
            try:
                return await snapshot.look_at_topic(self._client, DEATH_TOPIC)
            except Exception:  # noqa: BLE001, S110  running functions there may be forbidden
                pass
        return await queries.fetch_events(self._client, DEATH_TOPIC)

    async def _ask_ring(self, deadline: Deadline) -> tuple[DeathsAnswer, list[str]]:
        from workerdiag.sources.cluster.queries import answer_in_time

        left = deadline.share(_RING_SHARE)
        reply: Reply = await answer_in_time(
            lambda: self._client.scheduler.workerdiag_deaths(
                about=list(self._about),
                tasks=list(self._tasks),
                most=_MAX_DEATHS,
                most_bytes=_MAX_BYTES,
                wait_s=min(_WAIT_S, 0.5 * left.left_s),
            ),
            left,
        )
        dropped: list[str] = []
        content = {name: value for name, value in reply.items() if name != "schema"}
        return from_plain(DeathsAnswer, content, dropped), dropped

    def _evidence_of(self, answer: DeathsAnswer, dropped: Sequence[str]) -> list[Evidence]:
        deaths = sorted(answer.deaths, key=lambda each: each.time)
        now = answer.now or max((each.time for each in deaths), default=0.0)
        selected = select_recent(deaths, about=self._about, tasks=self._tasks, now=now)
        found: list[Evidence] = list(death_evidence(sorted(selected, key=lambda each: each.time)))
        if answer.omitted_count:
            detail = f"{answer.omitted_count} more deaths are recorded, too many to tell of at once"
            remedy = "give the exception: explain(exc, client)"
            found.append(Gap(source=self.name, reason="timed-out", detail=detail, remedy=remedy))
        if dropped:
            detail = f"of the recorded deaths not understood: {', '.join(dropped[:5])}"
            remedy = "use one version of workerdiag everywhere"
            found.append(Gap(source=self.name, reason="malformed", detail=detail, remedy=remedy))
        return found


def _decoded(entries: Sequence[tuple[float, object]]) -> Iterator[Message]:
    """Yield the messages in the topic's events; one without a time gets that of its event."""
    for at, plain in entries:
        message = decode_message(plain)
        if isinstance(message, RemovalRecord | DeathReport) and message.identity.noticed_at is None:
            message = evolve(message, noticed_at=at)
        if message is not None:
            yield message


def is_recording(entries: Sequence[tuple[float, object]]) -> bool:
    """Whether a scheduler with these events in the recorder's topic is recording."""
    return _has_ring(list(_decoded(entries)))


def _has_ring(messages: Sequence[Message]) -> bool:
    """Whether the scheduler itself is recording, by the last of its own messages."""
    own = [each for each in messages if isinstance(each, RecorderState | RemovalRecord)]
    return bool(own) and own[-1] != RecorderState(is_recording=False)


def _deaths_of_topic(messages: Sequence[Message], *, now: float) -> DeathsAnswer:
    """Return the deaths in the topic alone, for a scheduler without a ring."""
    deaths = [each for each in messages if isinstance(each, RemovalRecord | DeathReport)]
    return DeathsAnswer(deaths=merge_messages(deaths), now=now)
