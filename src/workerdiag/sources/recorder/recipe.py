"""Makes the content of a kit from the scheduler's recipe and what is recorded of the deaths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import frozen

from workerdiag.model.evidence import TasksAtLoss
from workerdiag.model.replay import KitContent, KitDeath
from workerdiag.wire.messages import RemovalRecord
from workerdiag.wire.plain import from_plain
from workerdiag.wire.recorded_death import RecipeAnswer, RecordedDeath

_MAX_MODULES = 200


@frozen(kw_only=True)
class FoundRecipe:
    """What a kit is made of."""

    content: KitContent
    data: bytes


def read_recipe(
    reply: Mapping[str, object], recorded: Sequence[tuple[RecordedDeath, TasksAtLoss | None]], tasks: Sequence[str]
) -> FoundRecipe | None:
    """The recipe in the scheduler's *reply*, a `RecipeAnswer` as plain data and the pickle; None without one.

    *recorded* is what is recorded of the deaths and their tasks; *tasks* are those that Dask gave up on.
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
    return FoundRecipe(content=_content(killed, found, last, answer), data=data)


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
