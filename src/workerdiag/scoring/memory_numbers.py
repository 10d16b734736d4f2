"""The numbers of a death: memory at its end, the limit in force, how much more to try.

They do not say how much would have been enough: a worker stopped at a limit wanted more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import field, frozen

from workerdiag.model.diagnosis import Match
from workerdiag.model.evidence import MemoryReading
from workerdiag.model.incident import Incident
from workerdiag.model.normalize import whole
from workerdiag.model.process_end import ProcessEnd
from workerdiag.units import format_bytes, format_limit, parse_bytes, round_up_limit

#: Head-room on top of what was used, as autoscalers recommend (krr, Dr. Elephant: peak + 25 %).
HEADROOM = 1.25
#: Factor for the size to try first after a limit that was too small.
BEYOND_LIMIT = 1.5
#: Factor between the limits of container and Dask, so that Dask acts before the kernel.
_POD_SHARE = 1.2
#: Python with Dask takes 50 to 70 MiB before it does anything (measured with distributed 2026.8.0 on Linux).
_LEAST_BYTES = 256 * 2**20
#: A worker that died below this share of its limit was not ended by it: something else filled the machine.
_AT_LIMIT = 0.8
#: The landmark in a nanny's log with the share of the limit at which it ends a worker.
MEMORY_BUDGET = "nanny.memory-budget"
#: Growth is reported for this many seconds before the last reading, if it is at least this large.
_GROWTH_S = 60.0
_MIN_GROWTH_S = 0.5
_MIN_GROWTH_BYTES = 2**24


@frozen(kw_only=True)
class MemoryNumbers:
    """The known numbers of an incident."""

    #: A lower bound for what was wanted: the largest memory seen, or the limit that was hit.
    wanted_more_than_bytes: int | None = None
    #: A limit that is worth one more try, rounded as people type limits. None if no worker is known to have
    #: ended at a limit of its own, or if one with more memory ended too.
    worth_a_try_bytes: int | None = None
    #: Values for the placeholders of mitigations, by name.
    words: Mapping[str, str] = field(factory=dict, hash=False)


def memory_numbers(incident: Incident, matches: Sequence[Match]) -> MemoryNumbers:
    """The largest memory seen, the smallest limit, a lower bound for what was wanted, and a size to try."""
    told_by = (*incident.marks, *matches)
    captured = [mark.captures for mark in told_by if mark.captures]
    limit = max(
        (size for captures in captured if (size := parse_bytes(captures.get("limit", "")))), default=None
    )
    limit = limit or max((each.limit_bytes for each in incident.exceptions if each.limit_bytes), default=None)
    limit = min(
        (each for each in (limit, *(each.limit_bytes for each in incident.readings)) if each), default=None
    )
    told = [size for captures in captured if (size := captured_rss(captures))]
    measured = [each.rss_bytes for each in incident.readings if each.rss_bytes]
    exceeded = [exceeded_bytes(mark, limit) for mark in told_by]
    rss = max((*told, *measured, *exceeded), default=0) or None
    at_the_end = max((*told, *exceeded), default=0)  # a heartbeat is as old as its interval
    wanted = max(rss or 0, limit or 0) or None
    first = _try_first(rss, limit)
    growth = _growth_per_s(incident.readings)
    words = {
        "rss": format_bytes(rss) if rss else "",
        "limit": format_bytes(limit) if limit else "",
        "more_than": format_bytes(wanted) if wanted else "",
        "needs_memory": format_limit(first) if first else "",
        "pod_memory": _as_quantity(round_up_limit(round_up_limit(first) * _POD_SHARE)) if first else "",
        "growth": f"{format_bytes(growth)} per second" if growth else "",
        "percent": f"{round(100 * rss / limit)}" if rss and limit else "",
    }
    return MemoryNumbers(
        wanted_more_than_bytes=wanted,
        worth_a_try_bytes=_worth_a_try(first, at_the_end, limit, incident) if first else None,
        words=words,
    )


def reading_of(end: ProcessEnd, incident: Incident) -> tuple[int | None, int | None]:
    """The last known memory and limit of a dead process, in bytes."""
    captured = [mark.captures for mark in end.marks]
    rss = next((size for captures in reversed(captured) if (size := captured_rss(captures))), None)
    limit = next((size for captures in captured if (size := parse_bytes(captures.get("limit", "")))), None)
    for reading in incident.readings_by_name.find(*end.identities):
        if reading.identity.same_process(end.identity):
            rss, limit = rss or reading.rss_bytes, limit or reading.limit_bytes
    for facts in incident.exceptions_by_name.find(*end.identities):
        if facts.identity.same_process(end.identity):
            limit = limit or facts.limit_bytes
    return rss, limit


def captured_rss(captures: Mapping[str, str]) -> int | None:
    """The resident memory in a message or an event, in bytes."""
    if (rss_kb := whole(captures.get("rss_kb"))) is not None:
        return rss_kb * 1024
    return parse_bytes(captures.get("rss", ""))


def exceeded_bytes(mark: Match, limit: int | None) -> int:
    """The least that a worker held: the share of *limit* that its nanny saw exceeded; 0 for other messages."""
    if limit is None or mark.owner != MEMORY_BUDGET:
        return 0
    return int(limit * share(mark.captures.get("percent", ""), of=100))


def share(text: str, *, of: int = 1) -> float:
    """A share in a message or a setting; 0 if it is switched off."""
    try:
        return float(text) / of
    except ValueError:  # "False"
        return 0.0


def _as_quantity(size_bytes: int) -> str:
    """A size in the notation of Kubernetes and Docker: ``640Mi``."""
    unit, one = ("Gi", 2**30) if size_bytes % 2**30 == 0 else ("Mi", 2**20)
    return f"{size_bytes // one}{unit}"


def _try_first(rss: int | None, limit: int | None) -> int | None:
    wanted = int(max((rss or 0) * HEADROOM, (limit or 0) * BEYOND_LIMIT))
    return max(wanted, _LEAST_BYTES) if wanted else None


def _worth_a_try(first: int, rss_at_the_end: int, limit: int | None, incident: Incident) -> int | None:
    """The first size to try as a limit, if the death was at one; None if not, or if another worker had as much."""
    if limit is None or 0 < rss_at_the_end < _AT_LIMIT * limit:
        return None
    felt: dict[str | int | None, int] = {}
    told = [(each.identity, each.limit_bytes) for each in incident.exceptions]
    told += [(each.identity, each.limit_bytes) for each in incident.readings]
    for who, limit_bytes in told:
        if limit_bytes:
            felt[who.worker or who.pid] = min(limit_bytes, felt.get(who.worker or who.pid, limit_bytes))
    return round_up_limit(first) if first > max(felt.values(), default=0) else None


def _growth_per_s(readings: Sequence[MemoryReading]) -> int | None:
    """Bytes per second by which the fastest-growing process grew before its last reading; None if none did."""
    of_process: dict[tuple[str | None, int | None], list[tuple[float, int]]] = {}
    for each in readings:
        if each.when is not None and each.rss_bytes and (each.identity.worker or each.identity.pid):
            of_process.setdefault((each.identity.worker, each.identity.pid), []).append(
                (each.when, each.rss_bytes)
            )
    found = []
    for seen in of_process.values():
        end, most = max(seen)
        begin, least = min(each for each in seen if each[0] >= end - _GROWTH_S)
        if end - begin >= _MIN_GROWTH_S and most - least >= _MIN_GROWTH_BYTES:
            found.append(int((most - least) / (end - begin)))
    return max(found, default=None)
