"""
The numbers of a death: memory at its end, the limit in force, what would have been enough.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import ceil

from attrs import field, frozen

from workerdiag.model.diagnosis import Match
from workerdiag.reasoning.ends import End
from workerdiag.reasoning.incident import Incident

#: Head-room on top of what was used, as autoscalers recommend (krr, Dr. Elephant: peak + 25 %).
HEADROOM = 1.25
#: A worker that was stopped at a limit wanted at least this much more than the limit.
BEYOND_LIMIT = 1.5

_UNITS = {"b": 1, "kb": 1000, "mb": 1000**2, "gb": 1000**3, "tb": 1000**4}
_UNITS |= {
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
    "k": 2**10,
    "m": 2**20,
    "g": 2**30,
    "t": 2**40,
}


@frozen(kw_only=True)
class Numbers:
    """
    What is known in numbers about an incident.
    """

    rss_bytes: int | None = None
    limit_bytes: int | None = None
    needs_memory_bytes: int | None = None
    #: Ready to be put into text, by the names that mitigations use.
    words: Mapping[str, str] = field(factory=dict, hash=False)


def numbers_of(incident: Incident, matches: Sequence[Match]) -> Numbers:
    """
    The largest memory seen, the limit, and what a worker would have needed.

    Of Dask's limit and those of control groups and jobs the smallest is the one that is felt.
    """
    captured = [mark.captures for mark in (*incident.marks, *matches)]
    rss = max((size for said in captured if (size := _rss(said))), default=None)
    limit = max((size for said in captured if (size := parse_bytes(said.get("limit", "")))), default=None)
    measured = [each.rss_bytes for each in incident.readings if each.rss_bytes]
    rss = rss or max(measured, default=None)
    limit = limit or max((each.limit_bytes for each in incident.exceptions if each.limit_bytes), default=None)
    limit = min(
        (each for each in (limit, *(each.limit_bytes for each in incident.readings)) if each), default=None
    )
    needs = _needs(rss, limit)
    words = {
        "rss": format_bytes(rss) if rss else "",
        "limit": format_bytes(limit) if limit else "",
        "needs_memory": format_bytes(needs) if needs else "",
        "percent": f"{round(100 * rss / limit)}" if rss and limit else "",
    }
    return Numbers(rss_bytes=rss, limit_bytes=limit, needs_memory_bytes=needs, words=words)


def reading_of(end: End, incident: Incident) -> tuple[int | None, int | None]:
    """
    Memory and limit, in bytes, as last seen of one dead process.
    """
    captured = [mark.captures for mark in end.marks]
    rss = next((size for said in reversed(captured) if (size := _rss(said))), None)
    limit = next((size for said in captured if (size := parse_bytes(said.get("limit", "")))), None)
    for reading in incident.readings:
        if reading.whose.shares(end.whose):
            rss, limit = rss or reading.rss_bytes, limit or reading.limit_bytes
    for facts in incident.exceptions:
        if facts.whose.shares(end.whose):
            limit = limit or facts.limit_bytes
    return rss, limit


def _rss(said: Mapping[str, str]) -> int | None:
    if said.get("rss_kb", "").isdigit():
        return int(said["rss_kb"]) * 1024
    return parse_bytes(said.get("rss", ""))


def _needs(rss: int | None, limit: int | None) -> int | None:
    """
    Rounded up to a tenth of a GiB; None where nothing is known.
    """
    wanted = max((rss or 0) * HEADROOM, (limit or 0) * BEYOND_LIMIT)
    step = 2**30 / 10
    return ceil(ceil(wanted / step) * step) if wanted else None


def parse_bytes(text: str) -> int | None:
    """
    ``416.95 MiB``, ``8G`` or ``123`` in bytes; None if it is not a size.
    """
    found = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,6})?)\s*([a-zA-Z]{0,3})\s*", text[:40])
    if not found:
        return None
    unit = found.group(2).lower()
    if unit and unit not in _UNITS:
        return None
    return int(float(found.group(1)) * _UNITS.get(unit, 1))


def format_bytes(count: int) -> str:
    """
    Bytes as Dask writes them: ``1.50 GiB``.
    """
    for unit, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("kiB", 2**10)):
        if count >= size * 0.9:
            return f"{count / size:.2f} {unit}"
    return f"{count} B"
