"""Which workers went without an order, by a scheduler's events of topic ``all``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from attrs import define, field

#: Events of orders, and under which name they list the workers (scheduler.py, 2024.8.1 to 2026.8.0).
_ORDERS: Final[Mapping[str, str]] = {"restart-workers": "workers", "retire-workers": "retired"}


@define(eq=False, kw_only=True)
class Removals:
    """Tells of each removal once."""

    #: Earlier removals are not told, in seconds since the epoch.
    _since: float
    #: Those that were told, by worker and stimulus.
    _known: set[tuple[str, str]] = field(factory=set, init=False)

    def take_new(self, entries: Sequence[tuple[float, object]]) -> list[str]:
        """The workers whose removal is new, was not announced, and is part of no restart or retirement.

        Many suites restart their cluster for each test, so that these are told apart here. Other stops that
        somebody asked for can only be judged by all evidence.

        Args:
            entries: Events with their times, oldest first.
        """
        events = [(when, message) for when, message in entries if isinstance(message, Mapping)]
        ordered = {worker for _, message in events for worker in _ordered(message)}
        workers = []
        for when, message in events:
            removal = str(message.get("worker")), str(message.get("stimulus_id"))
            is_new = when >= self._since and removal not in self._known
            if message.get("action") != "remove-worker" or message.get("expected") or not is_new:
                continue
            self._known.add(removal)
            if removal[0] not in ordered:
                workers.append(removal[0])
        return workers


def _ordered(message: Mapping[str, object]) -> Iterator[str]:
    workers = message.get(_ORDERS.get(str(message.get("action")), ""))
    yield from map(str, workers if isinstance(workers, Iterable) else ())
