"""Find deaths that may be counted twice, because two logs of one cluster run are in different time zones.

The scheduler's log and a worker's log then report the same death hours apart, and count as two runs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import Final

from workerdiag.rendering.wording import pluralize
from workerdiag.triage.rows import DeathRow

#: Time zones differ by a multiple of 15 minutes, by at most 26 hours (-12:00 to +14:00).
_ZONE_S: Final = 900.0
_MAX_ZONES_S = 26 * 3600.0
#: Two observers log the same death at most this many seconds apart.
_SAME_S = 5.0
#: An address used in more runs than this is a fixed address, so its repeats say nothing.
_MAX_RUNS = 50


def double_count_note(deaths: Iterable[DeathRow]) -> str | None:
    """Return a sentence if some deaths may be counted twice, else None.

    Two runs of one scheduler seem to be the same run if every worker that died in both died at times that
    differ by the same multiple of 15 minutes.
    """
    apart: defaultdict[tuple[str, str], list[tuple[float | None, DeathRow, DeathRow]]] = defaultdict(list)
    for one, two, zones in _common_deaths(deaths):
        apart[one.run, two.run].append((zones, one, two))
    doubles = [
        (one, two)
        for found in apart.values()
        if len({zones for zones, _, _ in found}) == 1 and found[0][0]
        for _, one, two in found
    ]
    if not doubles:
        return None
    one, two = min(doubles, key=lambda pair: (pair[0].order, pair[1].order))
    return (
        f"{pluralize(len(doubles), 'death')} may be counted twice: {one.url} and {two.url} report the same "
        "worker hours apart; if they are of one cluster run, in different time zones, say so with --runs"
    )


def _common_deaths(deaths: Iterable[DeathRow]) -> Iterator[tuple[DeathRow, DeathRow, float | None]]:
    """Yield pairs of deaths of one address in two runs, with the quarter hours between them (None if not whole)."""
    by_worker: defaultdict[tuple[str, str], list[DeathRow]] = defaultdict(list)
    for each in deaths:
        if each.scheduler and each.worker and each.died_at is not None:
            by_worker[each.scheduler, each.worker].append(each)
    for rows in by_worker.values():
        often = Counter(each.run for each in rows)
        once = sorted((each for each in rows if often[each.run] == 1), key=lambda row: (row.run, row.order))
        if len(once) > _MAX_RUNS:
            continue
        for one, two in combinations(once, 2):
            yield one, two, _zones_between(one.died_at or 0.0, two.died_at or 0.0)


def _zones_between(one_s: float, two_s: float) -> float | None:
    apart_s = two_s - one_s
    zones = round(apart_s / _ZONE_S)
    is_whole = abs(apart_s - zones * _ZONE_S) <= _SAME_S and abs(apart_s) <= _MAX_ZONES_S + _SAME_S
    return zones if is_whole else None
