"""
Which of the recorded deaths are of interest. Arithmetic only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from attrs import frozen

from workerdiag.model.evidence import Evidence, ExceptionFacts, Identity
from workerdiag.model.stop_reasons import was_asked

#: Deaths so long before the one in question belong to it.
RECENT_S = 900.0
#: Of records that were kept for long: so much before the death in question, and after it, is of another one.
_SAME_RUN_S, _AFTER_S = 24 * 3600.0, 60.0
#: Workers of one host that go within so many seconds go together.
TOGETHER_S = 5.0
#: A nanny's event and the scheduler's are of one death if they are no further apart.
_SAME_S = 60.0

#: The scheduler has the nanny stop a worker that it removes for want of heartbeats (scheduler.py).
_UNRESPONSIVE = "check-worker-ttl"


@frozen(kw_only=True)
class Death:
    """
    What scheduler and nanny recorded of one death; either may have nothing.
    """

    record: Mapping[str, Any]
    told: Mapping[str, Any]

    def get(self, name: str) -> Any:
        """
        What the scheduler recorded, else what the nanny told.
        """
        said = self.record.get(name)
        return self.told.get(name) if said is None else said

    @property
    def worker(self) -> str | None:
        """
        The worker's address.
        """
        box = _mapping(self.told.get("box"))
        by_itself = _mapping(box.get("identity")).get("worker")  # a nanny learns of it late
        worker = self.record.get("worker") or by_itself or self.told.get("worker")
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
        return self.record.get("expected") is True or self.was_ordered or was_asked(reason)

    @property
    def was_ordered(self) -> bool:
        """
        Whether somebody had told the nanny to end it; that it takes too much or does not answer is no order.
        """
        unresponsive = str(self.record.get("stimulus_id")).startswith(_UNRESPONSIVE)
        return self.told.get("asked") is True and not self.told.get("memory_terminated") and not unresponsive

    @property
    def keys(self) -> set[str]:
        """
        Keys of the tasks that were there, as far as they were noted.
        """
        listed = [
            *_each(self.record, "executing"),
            *_each(self.record, "gave_up"),
            *_each(self.told, "executing"),
        ]
        named = {str(each.get("key")) for each in listed if isinstance(each, Mapping)}
        return named | {str(each) for each in _each(self.record, "assigned")}


@frozen(kw_only=True)
class Deaths:
    """
    An answer: deaths as plain values, each with ``record`` and ``told``.
    """

    deaths: tuple[Any, ...]
    #: The scheduler's clock; None: that of the last event.
    now: float | None = None
    left_out: int = 0


def in_question(facts: Iterable[Evidence]) -> tuple[tuple[Identity, ...], tuple[str, ...]]:
    """
    The workers that an exception names, and the tasks that Dask gave up on.
    """
    said = [each for each in facts if isinstance(each, ExceptionFacts)]
    workers = tuple(each.whose for each in said if each.whose.worker)
    return workers, tuple(each.task for each in said if each.task)


def has_ring(entries: Sequence[tuple[float, Any]]) -> bool:
    """
    Whether the scheduler itself records, as the last that it said in the topic shows.
    """
    said = [each for _, each in entries if isinstance(each, Mapping) and each.get("source") == "scheduler"]
    return bool(said) and said[-1].get("recorder") != "closed"


def deaths_of_events(entries: Sequence[tuple[float, Any]]) -> Deaths:
    """
    The deaths that the events of the topic tell of, where there is no ring to ask, or no longer.
    """
    deaths: list[dict[str, Any]] = []
    for when, message in entries:
        if not isinstance(message, Mapping) or message.get("recorder"):
            continue
        part = "record" if message.get("source") == "scheduler" else "told"
        same = next((each for each in reversed(deaths) if _is_one(each, part, message)), None)
        if same is None:
            same = {"record": None, "told": None}
            deaths.append(same)
        if same[part] is None or message.get("source") == "nanny":  # who knows the exit status
            same[part] = {"when": when, **message}
    return Deaths(deaths=tuple(deaths), now=max((when for when, _ in entries), default=None))


def _is_one(death: Mapping[str, Any], part: str, message: Mapping[str, Any]) -> bool:
    """
    Whether a message tells of a death that is known: from the other side, or told by somebody else as well.
    """
    if part == "record" and death["record"] is not None:
        return False
    said = [each for each in (death["record"], death["told"]) if each is not None]
    return any(_are_one(each, message) for each in said)


def _are_one(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """
    Whether two of the worker, its nanny and its pid are the same, at about the same time.
    """
    pids = {each["pid"] for each in (one, other) if isinstance(each.get("pid"), int)}
    names = [name for name in ("worker", "nanny", "pid") if one.get(name) and one[name] == other.get(name)]
    apart_s = abs(_seconds(one.get("when")) - _seconds(other.get("when")))
    # The nanny may have another worker's address yet.
    return len(pids) < 2 and len(names) > 1 and apart_s <= _SAME_S


def chosen(deaths: Deaths, *, about: Collection[str], tasks: Collection[str]) -> list[Death]:
    """
    Those in question, those of the same tasks, and unexpected ones shortly before; oldest first.
    """
    all_ = _in_order(deaths)
    now = deaths.now if deaths.now is not None else max((each.when for each in all_), default=0.0)
    moment = max((each.when for each in all_ if each.worker in about), default=now)
    wanted = set(tasks)
    return [
        each
        for each in all_
        if each.worker in about
        or (not each.record.get("expected") and (each.keys & wanted or each.when >= moment - RECENT_S))
    ]


def recorded(deaths: Deaths, *, about: Collection[str], tasks: Collection[str]) -> list[Death]:
    """
    Those in question among deaths that were kept for long, maybe of many schedulers; oldest first.

    Without workers or tasks that is the last unexpected death, with those of the quarter of an hour before;
    if all were expected, the last of them. A worker's address and a task's key may come again: what is
    further back than a day counts as another's.
    """
    known = _in_order(deaths)
    wanted = set(tasks)
    asked = [each for each in known if each.worker in about or each.keys & wanted]
    if not known or ((about or tasks) and not asked):
        return []
    unexpected = [each for each in known if not each.is_expected]
    now = (asked or unexpected or known)[-1].when
    return [
        each
        for each in known
        if -_AFTER_S <= now - each.when <= (_SAME_RUN_S if each in asked else RECENT_S)
        and (each in asked or not each.is_expected or not (asked or unexpected))
    ]


def together(death: Death, deaths: Sequence[Death]) -> list[str]:
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


def _in_order(deaths: Deaths) -> list[Death]:
    """
    The deaths, oldest first.
    """
    all_ = [
        Death(record=_mapping(each.get("record")), told=_mapping(each.get("told")))
        for each in deaths.deaths
        if isinstance(each, Mapping)
    ]
    return sorted(all_, key=lambda each: each.when)


def _seconds(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _each(said: Mapping[str, Any], name: str) -> list[Any]:
    found = said.get(name)
    return list(found) if isinstance(found, list | tuple) else []
