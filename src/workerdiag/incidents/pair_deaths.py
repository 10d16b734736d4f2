"""Pairs watched deaths with those of a diagnosis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

from workerdiag.incidents.watched_incident import WatchedDeath
from workerdiag.model.diagnosis import Death
from workerdiag.model.identity import Identity


def pair_deaths(watched: Sequence[WatchedDeath], found: Sequence[Death]) -> list[Death | None]:
    """Return for each watched death that of the diagnosis, or None. Each is used once, the nearest in time."""
    free: dict[str, list[Death]] = {}
    for death in found:
        for name in _names(death.identity):
            free.setdefault(name, []).append(death)
    taken: set[int] = set()
    pairs = []
    for each in watched:
        same = [
            death
            for name in _names(each.identity)
            for death in free.get(name, ())
            if id(death) not in taken and each.identity.same_process(death.identity)
        ]
        nearest = min(same, key=lambda death: _seconds_to_death(each, death), default=None)
        if nearest is not None:
            taken.add(id(nearest))
        pairs.append(nearest)
    return pairs


def _names(identity: Identity) -> Iterator[str]:
    """Yield the names of a death for lookup: its address, or its process id without one."""
    if identity.worker is not None:
        yield identity.worker
    if identity.pid is not None:
        yield f"pid {identity.pid}"


def _seconds_to_death(watched: WatchedDeath, death: Death) -> float:
    return abs(watched.when - death.when) if death.when is not None else inf
