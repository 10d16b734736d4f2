"""
Times that were written without a year (syslog): the other times of an incident tell which it was.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator, Sequence
from datetime import UTC, datetime

from attrs import evolve

from workerdiag.model.diagnosis import Match


def infer_years(matches: Sequence[Match]) -> list[Match]:
    """
    The *matches*, those of an assumed year in the one that brings them closest to a time that is known.

    Where no time has a year they stay in the one that was assumed.
    """
    known = sorted(each.when for each in matches if each.when is not None and not each.year_assumed)
    if not known:
        return list(matches)
    years = {year + more for year in set(map(year_of, known)) for more in (-1, 0, 1)}
    return [_in_nearest_year(each, known, years) if each.year_assumed else each for each in matches]


def year_of(when: float) -> int:
    """
    The year, in UTC, of a time in seconds since the epoch.
    """
    return datetime.fromtimestamp(when, tz=UTC).year


def in_year(when: float | None, year: int) -> float | None:
    """
    The same day and time in another year; 29 February may have none.
    """
    if when is None:
        return None
    try:
        return datetime.fromtimestamp(when, tz=UTC).replace(year=year).timestamp()
    except ValueError:
        return when


def in_year_of_log(found: Iterable[tuple[int, Match]], assumed: Container[int]) -> Iterator[Match]:
    """
    The matches of one log, given with their places; those of an *assumed* year in that of the first other.
    """
    found = list(found)
    known = (match.when for at, match in found if match.when and at not in assumed)
    first = next(known, None)
    for at, match in found:
        if at not in assumed:
            yield match
        elif first is None:
            yield evolve(match, year_assumed=True)
        else:
            yield evolve(match, when=in_year(match.when, year_of(first)))


def _in_nearest_year(match: Match, known: Sequence[float], years: set[int]) -> Match:
    times = [when for year in sorted(years) if (when := in_year(match.when, year)) is not None]
    nearest = min(times, key=lambda when: _nearest_time_s(when, known), default=match.when)
    return evolve(match, when=nearest, year_assumed=False)


def _nearest_time_s(when: float, known: Sequence[float]) -> float:
    place = bisect_left(known, when)
    return min(abs(when - each) for each in known[max(0, place - 1) : place + 1])
