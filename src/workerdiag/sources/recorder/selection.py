"""
Which of the recorded deaths are of interest. Arithmetic only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from workerdiag.model.evidence import Evidence, ExceptionFacts
from workerdiag.model.identity import Identity
from workerdiag.model.time_windows import RECENT_S, TOGETHER_S
from workerdiag.wire.recorded_death import RecordedDeath

#: Of archived records: what is further back than this, or comes later, belongs to another death.
_SAME_CLUSTER_S, _AFTER_S = 24 * 3600.0, 60.0


def workers_and_tasks_in_question(facts: Iterable[Evidence]) -> tuple[tuple[Identity, ...], tuple[str, ...]]:
    """
    The workers that an exception names, and the tasks that Dask gave up on.
    """
    facts_of_exceptions = [each for each in facts if isinstance(each, ExceptionFacts)]
    workers = tuple(each.identity for each in facts_of_exceptions if each.identity.worker)
    return workers, tuple(each.task for each in facts_of_exceptions if each.task)


def select_archived(
    deaths: Iterable[RecordedDeath], *, about: Collection[str], tasks: Collection[str]
) -> list[RecordedDeath]:
    """
    The deaths in question of those that were kept for long, maybe by many schedulers; oldest first.

    Without workers or tasks that is the last unexpected death, with those of the quarter of an hour before;
    if all were expected, the last of them. A worker's address and a task's key may come again: what is
    further back than a day counts as another's.
    """
    known = sorted(deaths, key=lambda each: each.time)
    in_question = [each for each in known if each.identity.worker in about or each.has_task(tasks)]
    if not known or ((about or tasks) and not in_question):
        return []
    unexpected = [each for each in known if not each.is_expected]
    last = (in_question or unexpected or known)[-1].time
    return [
        each
        for each in known
        if -_AFTER_S <= last - each.time <= (_SAME_CLUSTER_S if each in in_question else RECENT_S)
        and (each in in_question or not each.is_expected or not (in_question or unexpected))
    ]


def lost_together(death: RecordedDeath, deaths: Sequence[RecordedDeath]) -> list[str]:
    """
    Addresses of the other workers of its host that were lost unexpectedly within seconds of it.
    """
    host = death.record.address_host if death.record is not None else None
    return [
        each.identity.worker
        for each in deaths
        if each is not death
        and host
        and each.identity.worker
        and each.record is not None
        and each.record.address_host == host
        and not each.was_announced
        and abs(each.time - death.time) <= TOGETHER_S
    ]
