"""
Deaths that several tables report, counted once: by the rule that the recorder's messages are merged by.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any

from attrs import asdict, evolve, frozen

from workerdiag.model.identity import differ, is_ip_address
from workerdiag.triage.rows import DeathRow
from workerdiag.wire.same_death import DeathIdentity, same_death

#: Reports further apart than this are of two deaths, whatever they name; `same_death` allows no more.
_MOST_APART_S = 600.0
#: How far apart two reports of the same place in the same log are.
_SAME_PLACE = -1.0


@frozen(kw_only=True)
class MergedDeaths:
    """
    The deaths of all tables, each once.
    """

    deaths: tuple[DeathRow, ...]
    duplicate_count: int


def merge_tables(tables: Iterable[Sequence[DeathRow]]) -> MergedDeaths:
    """
    The deaths of several tables, in the order of the tables, each once and with all that is known of it.

    Two rows of one table are two deaths, unless they are equal: whoever wrote it has merged them before. So a
    worker that dies again and again under one address and one pid, as in a container, is counted each time.
    """
    known = _KnownDeaths()
    duplicate_count = sum(known.add_table(rows) for rows in tables)
    return MergedDeaths(deaths=tuple(known.deaths), duplicate_count=duplicate_count)


class _KnownDeaths:
    """
    Deaths, and where to find those that another report may be of.
    """

    def __init__(self) -> None:
        self.deaths: list[DeathRow] = []
        #: By worker, process or place in a log: time and position of each, by time.
        self._index: dict[Hashable, list[tuple[float, int]]] = {}

    def add_table(self, rows: Sequence[DeathRow]) -> int:
        """
        Add the rows of one table; returns how many are known already.
        """
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
        """
        The known deaths that *row* may be of, and how many seconds they are apart.
        """
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
    """
    By what another report of the same death is found; undated ones only among undated ones.
    """
    dated = row.died_at is not None
    yield "place", row.url, row.offset
    if row.worker is not None:
        yield "worker", row.worker, dated
    if row.nanny is not None and row.pid is not None:
        yield "process", row.nanny, row.pid, dated


def _report_distance_s(known: DeathRow, row: DeathRow) -> float | None:
    """
    How far apart two reports of one death are; None: they are of two.
    """
    one, other = _identity(known), _identity(row)
    if (known.url, known.offset) == (row.url, row.offset):
        return None if one.conflicts_with(other) or differ(known.worker, row.worker) else _SAME_PLACE
    if differ(_address(known.scheduler), _address(row.scheduler)) or not same_death(one, other):
        return None
    if known.died_at is not None and row.died_at is not None:
        return abs(known.died_at - row.died_at)
    # Without a time an address says little: ports are used again.
    is_sure = known.pid is not None and known.pid == row.pid and known.scheduler == row.scheduler is not None
    return 0.0 if is_sure else None


def _identity(row: DeathRow) -> DeathIdentity:
    return DeathIdentity(
        worker=row.worker,
        name=row.name,
        pid=row.pid,
        nanny=row.nanny,
        # A machine has a name by its own account, and an address by that of others: they cannot be compared.
        host=row.host if row.host is not None and not is_ip_address(row.host) else None,
        noticed_at=row.died_at,
    )


def _address(scheduler: str | None) -> str | None:
    """
    The scheduler, where it is an address: a watcher may know it by the name of its cluster.
    """
    return scheduler if scheduler is not None and "://" in scheduler else None


def _merged(known: DeathRow, row: DeathRow) -> DeathRow:
    """
    Both reports in one: the surer cause counts, and whatever only one of them knows.
    """
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
