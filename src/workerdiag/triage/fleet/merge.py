"""Count deaths that several tables report once, by the same rule that merges the recorder's messages."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any

from attrs import asdict, evolve, frozen

from workerdiag.model.identity import differ, is_ip_address
from workerdiag.triage.tables import DeathRow
from workerdiag.wire.same_death import DeathIdentity, same_death

#: Reports further apart than this are two deaths, whatever they name; `same_death` allows no more.
_MOST_APART_S = 600.0
#: Distance of two reports of the same place in the same log.
_SAME_PLACE = -1.0


@frozen(kw_only=True)
class MergedDeaths:
    """The deaths of all tables, without duplicates."""

    deaths: tuple[DeathRow, ...]
    duplicate_count: int


def merge_tables(tables: Iterable[Sequence[DeathRow]]) -> MergedDeaths:
    """Merge the deaths of several tables, in the order of the tables. Each is there once, with all known data.

    Two different rows of one table are two deaths, because its writer has already merged them. So a worker
    that dies repeatedly under one address and one pid, as in a container, counts each time.
    """
    known = _KnownDeaths()
    duplicate_count = sum(known.add_table(rows) for rows in tables)
    return MergedDeaths(deaths=tuple(known.deaths), duplicate_count=duplicate_count)


class _KnownDeaths:
    """Deaths, with an index to find those that another report may describe."""

    def __init__(self) -> None:
        self.deaths: list[DeathRow] = []
        #: Time and position of each death, sorted by time, by worker, process or place in a log.
        self._index: dict[Hashable, list[tuple[float, int]]] = {}

    def add_table(self, rows: Sequence[DeathRow]) -> int:
        """Add the rows of one table. Return how many of them were already known."""
        unique = list(dict.fromkeys(rows))
        pairs = sorted(
            (apart_s, number, place)
            for number, row in enumerate(unique)
            for apart_s, place in self._candidates(row)
        )
        place_of: dict[int, int] = {}
        taken: set[int] = set()
        for _, number, place in pairs:
            if number not in place_of and place not in taken:
                place_of[number] = place
                taken.add(place)
        for number, row in enumerate(unique):
            if (known := place_of.get(number)) is not None:
                self.deaths[known] = _merged(self.deaths[known], row)
            else:
                self.deaths.append(row)
            self._note(row, known if known is not None else len(self.deaths) - 1)
        for entries in self._index.values():
            entries.sort()
        return len(rows) - len(unique) + len(place_of)

    def _candidates(self, row: DeathRow) -> Iterator[tuple[float, int]]:
        """Yield the known deaths that *row* may describe, with their distance from it in seconds."""
        at = row.died_at if row.died_at is not None else 0.0
        for key in _keys(row):
            entries = self._index.get(key, ())
            begin = bisect_left(entries, (at - _MOST_APART_S, -1))
            end = bisect_right(entries, (at + _MOST_APART_S, len(self.deaths)))
            for _, place in entries[begin:end]:
                if (apart_s := _report_distance_s(self.deaths[place], row)) is not None:
                    yield apart_s, place

    def _note(self, row: DeathRow, place: int) -> None:
        at = row.died_at if row.died_at is not None else 0.0
        for key in _keys(row):
            self._index.setdefault(key, []).append((at, place))


def _keys(row: DeathRow) -> Iterator[Hashable]:
    """Yield the keys that find other reports of the same death. Undated reports match only undated reports."""
    dated = row.died_at is not None
    yield "place", row.url, row.offset
    if row.worker is not None:
        yield "worker", row.worker, dated
    if row.nanny is not None and row.pid is not None:
        yield "process", row.nanny, row.pid, dated


def _report_distance_s(known: DeathRow, row: DeathRow) -> float | None:
    one, other = _identity(known), _identity(row)
    if (known.url, known.offset) == (row.url, row.offset):
        return None if one.conflicts_with(other) or differ(known.worker, row.worker) else _SAME_PLACE
    if differ(_address(known.scheduler), _address(row.scheduler)) or not same_death(one, other):
        return None
    if known.died_at is not None and row.died_at is not None:
        return abs(known.died_at - row.died_at)
    # Without a time an address says little: ports are reused.
    is_sure = known.pid is not None and known.pid == row.pid and known.scheduler == row.scheduler is not None
    return 0.0 if is_sure else None


def _identity(row: DeathRow) -> DeathIdentity:
    return DeathIdentity(
        worker=row.worker,
        name=row.name,
        pid=row.pid,
        nanny=row.nanny,
        # A machine reports its name, others report its address: these cannot be compared.
        host=row.host if row.host is not None and not is_ip_address(row.host) else None,
        noticed_at=row.died_at,
    )


def _address(scheduler: str | None) -> str | None:
    """Return the scheduler if it is an address: a watcher may know it only by its cluster's name."""
    return scheduler if scheduler is not None and "://" in scheduler else None


def _merged(known: DeathRow, row: DeathRow) -> DeathRow:
    """Merge both reports. The surer cause counts, and so does whatever only one of them knows."""
    first, second = (row, known) if _sureness(row) > _sureness(known) else (known, row)
    changes: dict[str, Any] = {
        name: value
        for name, value in asdict(second).items()
        if value is not None and getattr(first, name) is None
    }
    changes["stop_requested"] = first.stop_requested or second.stop_requested
    if first.lost_compute_s is not None and second.lost_compute_s is not None:
        changes["lost_compute_s"] = max(first.lost_compute_s, second.lost_compute_s)
    return evolve(first, **changes)


def _sureness(row: DeathRow) -> float:
    return row.probability if row.cause is not None else 0.0
