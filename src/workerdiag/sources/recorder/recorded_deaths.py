"""Asks the scheduler's flight recorder for the relevant deaths, and for how to run their tasks again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from attrs import evolve

from workerdiag.deadline import Deadline
from workerdiag.guard import guarded
from workerdiag.model.dask import Client, Reply
from workerdiag.model.evidence import Evidence, Gap, TasksAtLoss
from workerdiag.model.replay import KitContent, KitDeath
from workerdiag.sources.cluster.queries import answer_in_time, query_gap
from workerdiag.sources.recorder.death_evidence import act_event, death_evidence, tasks_at_loss
from workerdiag.wire import RECORDER
from workerdiag.wire.messages import (
    DeathIdentity,
    DeathReport,
    Message,
    RecorderState,
    RemovalRecord,
    RescueAct,
    decode_message,
)
from workerdiag.wire.plain import from_plain
from workerdiag.wire.recorded_death import (
    DeathsAnswer,
    RecipeAnswer,
    RecordedDeath,
    identity_of_death,
    merge_messages,
    select_recent,
)

_RING_SHARE = 0.9
_MAX_MODULES = 200


class RecordedDeaths:
    """What a scheduler's recorder knows of the workers *about* and of the *tasks*; else of the recent deaths."""

    def __init__(self, client: Client, about: Sequence[str], tasks: Sequence[str]) -> None:
        self._client = client
        self._about = about
        self._tasks = tasks
        #: How to run again what ran as the workers died, where that is known.
        self.recipe: tuple[KitContent, bytes] | None = None

    async def evidence(self, entries: Sequence[tuple[float, object]], deadline: Deadline) -> list[Evidence]:
        """Return what is recorded of the deaths; *entries* are the events of the recorder's topic."""
        messages = list(_decoded(entries))
        if not messages:
            return []
        deaths = [each for each in messages if isinstance(each, RemovalRecord | DeathReport)]
        by_topic = DeathsAnswer(deaths=merge_messages(deaths), now=max(at for at, _ in entries))
        if not _has_ring(messages):
            acts = [act_event(each) for each in messages if isinstance(each, RescueAct)]
            return [*self._evidence_of(by_topic, []), *acts]
        with guarded("asking for recorded deaths") as asking:
            (answer, dropped), recipe = await asyncio.gather(self._ask_ring(deadline), self._ask_recipe(deadline))
        if asking.problem is not None:
            return [*self._evidence_of(by_topic, []), query_gap(RECORDER, asking.problem)]
        with guarded("reading a recipe"):
            tasks = [tasks_at_loss(each, identity_of_death(each)) for each in answer.deaths]
            self.recipe = read_recipe(recipe, list(zip(answer.deaths, tasks, strict=True)), self._tasks)
        return self._evidence_of(answer, dropped)

    async def _ask_ring(self, deadline: Deadline) -> tuple[DeathsAnswer, list[str]]:
        left = deadline.share(_RING_SHARE)
        reply: Reply = await answer_in_time(
            lambda: self._client.scheduler.workerdiag_deaths(
                about=list(self._about),
                tasks=list(self._tasks),
                most=32,
                most_bytes=2**20,
                wait_s=min(1.0, 0.5 * left.left_s),  # a nanny may have died with its worker
            ),
            left,
        )
        dropped: list[str] = []
        content = {name: value for name, value in reply.items() if name != "schema"}
        return from_plain(DeathsAnswer, content, dropped), dropped

    async def _ask_recipe(self, deadline: Deadline) -> Reply:
        """Return the scheduler's recipe, or nothing: one that is late, or of an older release, is not missed."""
        with guarded("asking for the recipe"):
            ask = partial(
                self._client.scheduler.workerdiag_recipe, about=list(self._about), tasks=list(self._tasks)
            )
            reply: Reply = await answer_in_time(ask, deadline.share(_RING_SHARE))
            return reply
        return {}

    def _evidence_of(self, answer: DeathsAnswer, dropped: Sequence[str]) -> list[Evidence]:
        deaths = sorted(answer.deaths, key=lambda each: each.time)
        now = answer.now or max((each.time for each in deaths), default=0.0)
        selected = select_recent(deaths, about=self._about, tasks=self._tasks, now=now)
        found: list[Evidence] = list(death_evidence(sorted(selected, key=lambda each: each.time)))
        if answer.omitted_count:
            detail = f"{answer.omitted_count} more deaths are recorded, too many to report at once"
            remedy = "give the exception: explain(exc, client)"
            found.append(Gap(source=RECORDER, reason="timed-out", detail=detail, remedy=remedy))
        if dropped:
            detail = f"unknown fields of recorded deaths: {', '.join(dropped[:5])}"
            remedy = "use one version of workerdiag everywhere"
            found.append(Gap(source=RECORDER, reason="malformed", detail=detail, remedy=remedy))
        return found


def _decoded(entries: Sequence[tuple[float, object]]) -> Iterator[Message]:
    """Yield the messages in the topic's events; one without a time gets that of its event."""
    for at, plain in entries:
        message = decode_message(plain)
        if isinstance(message, RemovalRecord | DeathReport) and DeathIdentity.of(message).noticed_at is None:
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


def read_recipe(
    reply: Mapping[str, object], recorded: Sequence[tuple[RecordedDeath, TasksAtLoss | None]], tasks: Sequence[str]
) -> tuple[KitContent, bytes] | None:
    """The content of a kit and its data, by the scheduler's *reply*: a `RecipeAnswer` as plain data and the pickle.

    *recorded* is what is recorded of the deaths and their tasks; *tasks* are those that Dask gave up on. None: the
    reply has no recipe.
    """
    data = reply.get("recipe")
    answer = from_plain(
        RecipeAnswer, {key: each for key, each in reply.items() if key not in ("schema", "recipe")}, []
    )
    if not answer.deaths or not isinstance(data, bytes):
        return None
    known = {death.record.worker_address: (death, tasks) for death, tasks in recorded if death.record is not None}
    found: list[KitDeath] = []
    for each in answer.deaths:
        death, at_loss = known.get(each.worker, (RecordedDeath(), None))
        ran = at_loss.tasks if at_loss is not None else ()
        likely = tuple(dict.fromkeys((*ran, *each.tasks)))[: _threads(death)]
        is_known = at_loss is not None and at_loss.exact
        found.append(KitDeath(worker=each.worker, at=each.at, tasks=ran if is_known else likely, is_known=is_known))
    assigned = {key for each in answer.deaths for key in each.tasks}
    blamed = next((key for key in tasks if key in assigned), None)
    ran_last = next((key for each in reversed(found) for key in each.tasks), None)
    killed = blamed or ran_last or answer.deaths[-1].tasks[0]
    last = next(
        (known[each.worker][0] for each in reversed(answer.deaths) if each.worker in known), RecordedDeath()
    )
    return _content(killed, found, last, answer), data


def _threads(death: RecordedDeath) -> int:
    return (death.record.nthreads if death.record is not None else None) or 1


def _content(killed: str, deaths: Sequence[KitDeath], last: RecordedDeath, answer: RecipeAnswer) -> KitContent:
    record, report = last.record or RemovalRecord(), last.report
    box = report.box.identity if report is not None and report.box is not None else {}
    return KitContent(
        killed=killed,
        deaths=tuple(deaths),
        limit_bytes=record.memory_limit_bytes,
        nthreads=record.nthreads,
        terminate_fraction=report.terminate_fraction if report is not None else None,
        modules=tuple(box.get("modules", "").split()[:_MAX_MODULES]),
        versions={name: box[name] for name in ("python", "dask", "distributed") if name in box},
        gaps=answer.gaps,
        problem=answer.problem,
    )
