"""
Which of the recorded deaths are of interest. Arithmetic only.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from attrs import frozen

#: Deaths so long before the one in question belong to it.
RECENT_S = 900.0
#: Workers of one host that go within so many seconds go together.
TOGETHER_S = 5.0
#: A nanny's event and the scheduler's are of one death if they are no further apart.
_SAME_S = 60.0


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
        worker = self.get("worker")
        return worker if isinstance(worker, str) else None

    @property
    def when(self) -> float:
        """
        When it was noticed, by the clock of who noticed; 0 if that is not said.
        """
        when = self.get("when")
        return float(when) if isinstance(when, int | float) and not isinstance(when, bool) else 0.0

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
        same[part] = {"when": when, **message}
    return Deaths(deaths=tuple(deaths), now=max((when for when, _ in entries), default=None))


def _is_one(death: Mapping[str, Any], part: str, message: Mapping[str, Any]) -> bool:
    other = death["told" if part == "record" else "record"]
    if death[part] is not None or other is None:
        return False
    names = [
        name for name in ("worker", "nanny", "pid") if message.get(name) and message[name] == other.get(name)
    ]
    apart_s = abs(_seconds(other.get("when")) - _seconds(message.get("when")))
    return len(names) > 1 and apart_s <= _SAME_S  # the nanny may have another worker's address yet


def chosen(deaths: Deaths, *, about: Collection[str], tasks: Collection[str]) -> list[Death]:
    """
    Those in question, those of the same tasks, and unexpected ones shortly before; oldest first.
    """
    all_ = [
        Death(record=_mapping(each.get("record")), told=_mapping(each.get("told")))
        for each in deaths.deaths
        if isinstance(each, Mapping)
    ]
    now = deaths.now if deaths.now is not None else max((each.when for each in all_), default=0.0)
    moment = max((each.when for each in all_ if each.worker in about), default=now)
    wanted = set(tasks)
    kept = [
        each
        for each in all_
        if each.worker in about
        or (not each.record.get("expected") and (each.keys & wanted or each.when >= moment - RECENT_S))
    ]
    return sorted(kept, key=lambda each: each.when)


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


def _seconds(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _each(said: Mapping[str, Any], name: str) -> list[Any]:
    found = said.get(name)
    return list(found) if isinstance(found, list | tuple) else []
