"""
Which of the recorded deaths are of interest. Arithmetic only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from attrs import frozen

from workerdiag.model.evidence import Evidence, ExceptionFacts
from workerdiag.model.identity import Identity
from workerdiag.model.stop_reasons import is_stop_request
from workerdiag.wire.same_death import DeathIdentity, is_better_report, is_known_death

#: Deaths so long before the one in question belong to it.
RECENT_S = 900.0
#: Of records that were kept for long: so much before the death in question, and after it, is of another one.
_SAME_CLUSTER_S, _AFTER_S = 24 * 3600.0, 60.0
#: Workers of one host that go within so many seconds go together.
TOGETHER_S = 5.0

#: The scheduler has the nanny stop a worker that it removes for want of heartbeats (scheduler.py).
_UNRESPONSIVE = "check-worker-ttl"


@frozen(kw_only=True)
class RecordedDeath:
    """
    What scheduler and nanny recorded of one death; either may have nothing.
    """

    record: Mapping[str, Any]
    report: Mapping[str, Any]

    def get(self, name: str) -> Any:
        """
        What the scheduler recorded, else what the nanny told.
        """
        value = self.record.get(name)
        return self.report.get(name) if value is None else value

    @property
    def worker(self) -> str | None:
        """
        The worker's address.
        """
        box = _mapping_or_empty(self.report.get("box"))
        by_itself = _mapping_or_empty(box.get("identity")).get("worker")  # a nanny learns of it late
        worker = self.record.get("worker") or by_itself or self.report.get("worker")
        return worker if isinstance(worker, str) else None

    @property
    def when(self) -> float:
        """
        When it was noticed, by the clock of who noticed; 0 if that is not said.
        """
        when = self.get("when")
        return float(when) if isinstance(when, int | float) and not isinstance(when, bool) else 0.0

    @property
    def is_expected(self) -> bool:
        """
        Whether somebody had announced it, to the scheduler or the nanny, or the worker took leave as told to.
        """
        reason = str(self.record.get("reason") or "")
        return self.record.get("expected") is True or self.was_asked_to_stop or is_stop_request(reason)

    @property
    def was_asked_to_stop(self) -> bool:
        """
        Whether somebody had told the nanny to end it; that it takes too much or does not answer is no order.
        """
        unresponsive = str(self.record.get("stimulus_id")).startswith(_UNRESPONSIVE)
        return (
            self.report.get("asked") is True and not self.report.get("memory_terminated") and not unresponsive
        )

    @property
    def keys(self) -> set[str]:
        """
        Keys of the tasks that were there, as far as they were noted.
        """
        listed = [
            *_list_at(self.record, "executing"),
            *_list_at(self.record, "gave_up"),
            *_list_at(self.report, "executing"),
        ]
        named = {str(each.get("key")) for each in listed if isinstance(each, Mapping)}
        return named | {str(each) for each in _list_at(self.record, "assigned")}


@frozen(kw_only=True)
class RecordedDeaths:
    """
    An answer: deaths as plain values, each with ``record`` and ``told``.
    """

    deaths: tuple[Any, ...]
    #: The scheduler's clock; None: that of the last event.
    now: float | None = None
    left_out: int = 0


def workers_and_tasks_in_question(facts: Iterable[Evidence]) -> tuple[tuple[Identity, ...], tuple[str, ...]]:
    """
    The workers that an exception names, and the tasks that Dask gave up on.
    """
    facts_of_exceptions = [each for each in facts if isinstance(each, ExceptionFacts)]
    workers = tuple(each.identity for each in facts_of_exceptions if each.identity.worker)
    return workers, tuple(each.task for each in facts_of_exceptions if each.task)


def has_ring(entries: Sequence[tuple[float, Any]]) -> bool:
    """
    Whether the scheduler itself records, as the last that it said in the topic shows.
    """
    scheduler_messages = [
        each for _, each in entries if isinstance(each, Mapping) and each.get("source") == "scheduler"
    ]
    return bool(scheduler_messages) and scheduler_messages[-1].get("recorder") != "closed"


def deaths_from_messages(entries: Sequence[tuple[float, Any]]) -> RecordedDeaths:
    """
    The deaths that the events of the topic tell of, where there is no ring to ask, or no longer.
    """
    deaths: list[dict[str, Any]] = []
    for when, message in entries:
        if not isinstance(message, Mapping) or message.get("recorder"):
            continue
        part = "record" if message.get("source") == "scheduler" else "report"
        same = next((each for each in reversed(deaths) if _is_known_death(each, part, message)), None)
        if same is None:
            same = {"record": None, "report": None}
            deaths.append(same)
        if same[part] is None or is_better_report(message, same[part]):
            same[part] = {"when": when, **message}
    return RecordedDeaths(deaths=tuple(deaths), now=max((when for when, _ in entries), default=None))


def _is_known_death(death: Mapping[str, Any], part: str, message: Mapping[str, Any]) -> bool:
    """
    Whether a message tells of a death that is known: from the other side, or told by somebody else as well.
    """
    if part == "record" and death["record"] is not None:
        return False
    parts = [each for each in (death["record"], death["report"]) if each is not None]
    return is_known_death([*map(DeathIdentity.from_message, parts)], DeathIdentity.from_message(message))


def select_recent(
    deaths: RecordedDeaths, *, about: Collection[str], tasks: Collection[str]
) -> list[RecordedDeath]:
    """
    Those in question, those of the same tasks, and unexpected ones shortly before; oldest first.
    """
    all_ = _sorted_deaths(deaths)
    now = deaths.now if deaths.now is not None else max((each.when for each in all_), default=0.0)
    moment = max((each.when for each in all_ if each.worker in about), default=now)
    wanted = set(tasks)
    return [
        each
        for each in all_
        if each.worker in about
        or (not each.record.get("expected") and (each.keys & wanted or each.when >= moment - RECENT_S))
    ]


def select_archived(
    deaths: RecordedDeaths, *, about: Collection[str], tasks: Collection[str]
) -> list[RecordedDeath]:
    """
    Those in question among deaths that were kept for long, maybe of many schedulers; oldest first.

    Without workers or tasks that is the last unexpected death, with those of the quarter of an hour before;
    if all were expected, the last of them. A worker's address and a task's key may come again: what is
    further back than a day counts as another's.
    """
    known = _sorted_deaths(deaths)
    wanted = set(tasks)
    in_question = [each for each in known if each.worker in about or each.keys & wanted]
    if not known or ((about or tasks) and not in_question):
        return []
    unexpected = [each for each in known if not each.is_expected]
    now = (in_question or unexpected or known)[-1].when
    return [
        each
        for each in known
        if -_AFTER_S <= now - each.when <= (_SAME_CLUSTER_S if each in in_question else RECENT_S)
        and (each in in_question or not each.is_expected or not (in_question or unexpected))
    ]


def lost_together(death: RecordedDeath, deaths: Sequence[RecordedDeath]) -> list[str]:
    """
    Addresses of the other workers of its host that went unexpectedly within seconds of it.
    """
    host = death.record.get("host")
    return [
        each.worker
        for each in deaths
        if each is not death
        and host
        and each.worker
        and each.record.get("host") == host
        and not each.record.get("expected")
        and abs(each.when - death.when) <= TOGETHER_S
    ]


def _sorted_deaths(deaths: RecordedDeaths) -> list[RecordedDeath]:
    """
    The deaths, oldest first.
    """
    all_ = [
        RecordedDeath(
            record=_mapping_or_empty(each.get("record")), report=_mapping_or_empty(each.get("report"))
        )
        for each in deaths.deaths
        if isinstance(each, Mapping)
    ]
    return sorted(all_, key=lambda each: each.when)


def _mapping_or_empty(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list_at(fields: Mapping[str, Any], name: str) -> list[Any]:
    found = fields.get(name)
    return list(found) if isinstance(found, list | tuple) else []
