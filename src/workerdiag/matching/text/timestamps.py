"""
The times in logs: their own clock is taken for UTC, as they name no zone.
"""

from __future__ import annotations

from datetime import UTC, datetime

from workerdiag.matching.regex import pattern

_ISO = pattern(
    r"(?P<y>\d{4})[-/](?P<mo>\d\d)[-/](?P<d>\d\d)(?:[T ]|, )(?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)(?:[.,](?P<f>\d{1,9}))?"
)
_SYSLOG = pattern(r"^(?P<mo>[A-Z][a-z]{2}) +(?P<d>\d{1,2}) (?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)")
_MONTHS = {
    name: number for number, name in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split(), 1)
}


def parse_time(text: str) -> float | None:
    """
    Seconds since the epoch, the text's own clock taken for UTC; None if it has no date.
    """
    if not text:
        return None
    if found := _ISO.search(text):
        part = found.groupdict()
        year, month, day = int(part["y"] or 0), int(part["mo"] or 0), int(part["d"] or 0)
    elif found := _SYSLOG.search(text):  # has no year: this one, or the last if that lies ahead
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
    """
    Whether a time is as syslog writes it, so that its year is a guess.
    """
    return _SYSLOG.search(text) is not None
