"""The times in logs. They name no time zone, so they are read as UTC; syslog names no year."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator, Sequence
from datetime import UTC, datetime

from attrs import evolve

from workerdiag.matching.regex import pattern
from workerdiag.model.diagnosis import Match

_ISO = pattern(
    r"(?P<y>\d{4})[-/](?P<mo>\d\d)[-/](?P<d>\d\d)(?:[T ]|, )(?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)(?:[.,](?P<f>\d{1,9}))?"
)
_SYSLOG = pattern(r"^(?P<mo>[A-Z][a-z]{2}) +(?P<d>\d{1,2}) (?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)")
_MONTHS = {
    name: number for number, name in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split(), 1)
}


def parse_time(text: str) -> float | None:
    """Return seconds since the epoch, read as UTC; None if the text has no date."""
    if not text:
        return None
    if found := _ISO.search(text):
        part = found.groupdict()
        year, month, day = int(part["y"] or 0), int(part["mo"] or 0), int(part["d"] or 0)
    elif found := _SYSLOG.search(
        text
    ):  # without a year: the current one, or the last if that would be in the future
        part = found.groupdict()
        now = datetime.now(tz=UTC)
        month, day = _MONTHS.get((part["mo"] or "").lower(), 0), int(part["d"] or 0)
        year = now.year - ((month, day) > (now.month, now.day + 1))
    else:
        return None
    try:
        moment = datetime(
            year,
            month,
            day,
            int(part["h"] or 0),
            int(part["mi"] or 0),
            min(59, int(part["s"] or 0)),
            tzinfo=UTC,
        )
    except ValueError:
        return None
    return moment.timestamp() + float(f"0.{part.get('f') or 0}")


def has_no_year(text: str) -> bool:
    """Whether a time has the format of syslog, so that its year is assumed."""
    return _SYSLOG.search(text) is not None


def infer_years(matches: Sequence[Match]) -> list[Match]:
    """Return the *matches*, with assumed years replaced by the year closest to a known time.

    If no time has a year, they keep the assumed one.
    """
    known = sorted(each.when for each in matches if each.when is not None and not each.year_assumed)
    if not known:
        return list(matches)
    years = {year + more for year in set(map(year_of, known)) for more in (-1, 0, 1)}
    return [_in_nearest_year(each, known, years) if each.year_assumed else each for each in matches]


def year_of(when: float) -> int:
    """Return the year, in UTC, of a time in seconds since the epoch."""
    return datetime.fromtimestamp(when, tz=UTC).year


def in_year(when: float | None, year: int) -> float | None:
    """Return the same day and time in another year; None for 29 February if there is none."""
    if when is None:
        return None
    try:
        return datetime.fromtimestamp(when, tz=UTC).replace(year=year).timestamp()
    except ValueError:
        return when


def in_year_of_log(found: Iterable[tuple[int, Match]], assumed: Container[int]) -> Iterator[Match]:
    """Yield the matches of one log, with *assumed* years replaced by the year of the first other match."""
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
