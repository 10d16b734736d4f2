"""Sizes, durations and times: each read and written in one place."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from math import ceil, inf, isinf

_BYTES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_BYTES |= {
    f"{letter}{end}": 2**power for letter, power in zip("kmgt", (10, 20, 30, 40), strict=True) for end in ("ib", "")
}
_UNITS = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("kiB", 2**10))
#: From here on, digits behind the point say nothing to a person.
_WHOLE_FROM = 99.95
#: Limits below the first are multiples of the second.
_LIMIT_STEPS = ((2**30, 2**26), (2**32, 2**29), (2**34, 2**30), (2**36, 2**31), (inf, 2**33))
_SIZE = re.compile(r"\s*(\d{1,15}(?:\.\d{1,6})?)\s*([a-zA-Z]{0,3})\s*")
_SECONDS = re.compile(r"\s*(-?\d+(?:\.\d+)?)\s*s?\s*")


def parse_bytes(text: str) -> int | None:
    """``416.95 MiB``, ``8G`` or ``123`` in bytes; None if it is not a size."""
    found = _SIZE.fullmatch(text[:40]) if text else None
    unit = _BYTES.get(found[2].lower()) if found else None
    return round(float(found[1]) * unit) if found and unit else None


def bytes_of(size: str | int) -> int:
    """The bytes of a size that a caller gave, as text or as a number; raises ValueError if it is none."""
    found = parse_bytes(size) if isinstance(size, str) else size
    if found is None or found <= 0:
        raise ValueError(f'{size!r} is not a size: give bytes, or text like "500 MB"')
    return found


def format_bytes(count: int) -> str:
    """Bytes as people write them, in at most three digits, four below the next unit: ``1.5 GiB``, ``322 MiB``."""
    for unit, size in _UNITS:
        if round(count / size, 3) >= 1:
            value = count / size
            return f"{round(value) if value >= _WHOLE_FROM else f'{value:.3g}'} {unit}"
    return f"{count} B"


def round_up_limit(count: float) -> int:
    """The next larger memory limit that one would type: multiples of 64 MiB below 1 GiB, of 0.5 GiB below 4 GiB."""
    step = next(step for below, step in _LIMIT_STEPS if count < below)
    return ceil(count / step) * step


def format_limit(count: float) -> str:
    """A memory limit to type of at least this many bytes: ``640 MiB``, ``1.5 GiB``."""
    limit = round_up_limit(count)
    unit, size = ("GiB", 2**30) if limit >= 2**30 else ("MiB", 2**20)
    return f"{limit / size:g} {unit}"


def parse_duration(text: str) -> float:
    """Seconds in a duration as Dask's configuration writes it: ``10s``, ``2 minutes``, ``500ms``, ``10``.

    Raises:
        ValueError: It is not a duration.
    """
    if plain := _SECONDS.fullmatch(text):  # avoids importing dask
        return float(plain[1])
    from dask.utils import parse_timedelta

    try:
        return float(parse_timedelta(text))
    except Exception:  # noqa: BLE001  its arithmetic raises many types
        raise ValueError(f"{text[:100]!r} is not a duration") from None


def format_duration(seconds: float) -> str:
    """A duration in the largest unit that fits at least once: ``2 hours``; ``forever`` if it is infinite."""
    if isinf(seconds):
        return "forever"
    for unit, size_s in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if seconds >= size_s:
            count = round(seconds / size_s)
            return f"{count} {unit}{'' if count == 1 else 's'}"
    count = round(seconds)
    return f"{count} second{'' if count == 1 else 's'}"


def parse_timestamp(stamp: str) -> float | None:
    """Seconds since the epoch of an ISO time with a zone, such as ``2026-11-21T08:17:48Z``; else None."""
    try:
        when = datetime.fromisoformat(stamp)
        return when.timestamp() if when.tzinfo else None
    except (ValueError, OverflowError):
        return None


def format_time(when: float | None) -> str:
    """Seconds since the epoch as ``2026-11-21 10:02:03`` in UTC; empty if unknown or out of range."""
    try:
        return "" if when is None else datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return ""
