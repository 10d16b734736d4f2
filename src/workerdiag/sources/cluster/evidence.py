"""
From what a cluster answers to evidence: flat, bounded, with whose each fact is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from workerdiag.model.evidence import NOBODY, Event, Evidence, Identity, LogChunk, MemoryReading
from workerdiag.sources.addresses import identity_of

_Plain = str | int | float | bool | None

#: Of a collection in an event, so many members are named.
_MOST_NAMED = 20
_TEXT_CHARS = 4000
_TRACEBACK_CHARS = 16 * 1024
_MOST_WORKERS_TOLD = 100
_ALL_TOLD = 20
_FIELD_NAMES = {"processing-tasks": "processing"}


def of_events(
    topic: str, entries: Iterable[tuple[float, Any]], known: Mapping[str, Identity]
) -> Iterator[Evidence]:
    """
    The events of one topic. *known* has what else is known of a worker, by address.
    """
    for when, message in entries:
        said = message if isinstance(message, Mapping) else {"message": message}
        fields = flat(said)
        for worker in _workers(topic, said):
            whose = identity_of(worker=worker, pid=said.get("pid"))
            whose = whose.joined(known.get(worker or "", NOBODY))
            own = fields | {"worker": worker} if worker and worker != topic else fields
            yield Event(topic=topic, fields=own, when=when, whose=whose)
            yield from _also(topic, said, when, whose)


def _workers(topic: str, said: Mapping[str, Any]) -> list[str | None]:
    """
    Whom an event is about; one that names several in ``workers`` counts for each.
    """
    if said.get("action") == "worker-ttl-timed-out":
        return [str(each) for each in list(said.get("workers", ()))[:_MOST_NAMED]] or [None]
    worker = said.get("worker") or (topic if "://" in topic else None)
    return [worker if isinstance(worker, str) else None]


def _also(topic: str, said: Mapping[str, Any], when: float, whose: Identity) -> Iterator[Evidence]:
    rss = said.get("rss")
    if topic == "worker-restart-memory" and isinstance(rss, int):
        yield MemoryReading(whose=whose, rss_bytes=rss, when=when)
    text = f"{said.get('traceback_text', '')}{said.get('exception_text', '')}"
    if topic == "worker-fail-hard" and text:  # the worker's log, which has it too, is gone
        data = text[:_TRACEBACK_CHARS].encode("utf-8", errors="replace")
        yield LogChunk(origin=f"event {topic} {when}", data=data, stream="worker", whose=whose)


def flat(message: Mapping[Any, Any]) -> dict[str, _Plain]:
    """
    Plain values as they are; collections as text of at most 20 members, with ``<key>_count``.
    """
    fields: dict[str, _Plain] = {}
    for key, value in list(message.items())[:50]:
        name = _FIELD_NAMES.get(key, str(key)[:100])
        if value is None or isinstance(value, bool | int | float):
            fields[name] = value
        elif isinstance(value, str):
            fields[name] = value[:_TEXT_CHARS]
        elif isinstance(value, set | frozenset | list | tuple | dict):
            members = sorted(map(str, value)) if isinstance(value, set | frozenset) else [*map(str, value)]
            fields[name] = ", ".join(members[:_MOST_NAMED])[:_TEXT_CHARS]
            fields[f"{name}_count"] = len(members)
        elif not isinstance(value, bytes):  # pickled, for machines
            fields[name] = str(value)[:_TEXT_CHARS]
    return fields


def of_workers(
    workers: Mapping[str, Mapping[str, Any]], *, now: float | None, known: Mapping[str, Identity]
) -> Iterator[Event]:
    """
    The state of each worker that is not plainly well; of all of them if they are few.

    Args:
        workers: By address, as in ``Client.scheduler_info()``.
        now: The scheduler's clock; None if that is not known.
        known: What else is known of a worker, by address.
    """
    interval_s = heartbeat_interval_s(len(workers))
    states = {address: _state(said, now) for address, said in workers.items()}
    chosen = [
        address
        for address, fields in states.items()
        if len(states) <= _ALL_TOLD or not is_well(fields, interval_s=interval_s)
    ]
    for address in chosen[:_MOST_WORKERS_TOLD]:
        said = workers[address]
        whose = identity_of(worker=address, nanny=said.get("nanny"), name=said.get("name"))
        yield Event(
            topic="worker-state",
            fields=states[address],
            when=now,
            whose=whose.joined(known.get(address, NOBODY)),
        )


def _state(said: Mapping[str, Any], now: float | None) -> dict[str, _Plain]:
    metrics: Mapping[str, Any] = said.get("metrics") or {}
    seen = said.get("last_seen")
    counts = metrics.get("task_counts")
    return {
        "status": str(said.get("status")),
        "memory_bytes": _number(metrics.get("memory")),
        "limit_bytes": _number(said.get("memory_limit")) or None,
        "seconds_since_heartbeat": max(0.0, round(now - seen, 1))
        if now and isinstance(seen, float)
        else None,
        "name": str(said.get("name")),
        "nanny": said.get("nanny") if isinstance(said.get("nanny"), str) else None,
        "nthreads": _number(said.get("nthreads")),
        "executing_count": _number(counts.get("executing", 0)) if isinstance(counts, Mapping) else None,
    }


def is_well(fields: Mapping[str, _Plain], *, interval_s: float) -> bool:
    """
    Whether a worker runs, has memory left and was heard of lately.
    """
    memory, limit = fields.get("memory_bytes") or 0, fields.get("limit_bytes") or 0
    silent_s = fields.get("seconds_since_heartbeat") or 0.0
    full = bool(limit) and float(memory) > 0.7 * float(limit)
    return fields.get("status") == "running" and not full and float(silent_s) <= max(10.0, 5 * interval_s)


def heartbeat_interval_s(count: int) -> float:
    """
    Seconds between heartbeats of one of *count* workers (``heartbeat_interval`` in scheduler.py).
    """
    if count <= 10:
        return 0.5
    if count < 50:
        return 1.0
    return 2.0 if count < 200 else count / 200 + 1


def _number(value: object) -> int | float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
