"""
From what a cluster answers to evidence: flat, bounded, with whose each fact is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from workerdiag.model.evidence import NOBODY, Event, Evidence, Identity, LogChunk, MemoryReading
from workerdiag.sources.addresses import identity_of
from workerdiag.sources.cluster.health import heartbeat_interval_s, is_well
from workerdiag.sources.cluster.state import Standing, executing_in_words

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
            fields[f"{name}_count"] = getattr(value, "whole", len(members))
        elif not isinstance(value, bytes):  # pickled, for machines
            fields[name] = str(value)[:_TEXT_CHARS]
    return fields


def of_workers(
    standing: Standing, *, silent: Collection[str] = (), known: Mapping[str, Identity]
) -> Iterator[Event]:
    """
    The state of each worker that is not plainly well; of all of them if they are few.

    Args:
        standing: What the scheduler says of them.
        silent: Those that answer nobody.
        known: What else is known of a worker, by address.
    """
    interval_s = heartbeat_interval_s(len(standing.workers))
    states = {address: _state(address, standing, silent) for address in standing.workers}
    chosen = [
        address
        for address, fields in states.items()
        if len(states) <= _ALL_TOLD or not is_well(fields, interval_s=interval_s)
    ]
    for address in sorted(chosen, key=lambda each: each not in silent)[:_MOST_WORKERS_TOLD]:
        said = standing.workers[address]
        whose = identity_of(worker=address, nanny=said.get("nanny"), name=said.get("name"))
        yield Event(
            topic="worker-state",
            fields=states[address],
            when=standing.now,
            whose=whose.joined(known.get(address, NOBODY)),
        )


def _state(address: str, standing: Standing, silent: Collection[str]) -> dict[str, _Plain]:
    said = standing.workers[address]
    metrics: Mapping[str, Any] = said.get("metrics") or {}
    counts = metrics.get("task_counts")
    age_s, others_s = standing.ages_s.get(address), standing.others_heard_s(address)
    fields: dict[str, _Plain] = {
        "status": str(said.get("status")),
        "memory_bytes": _number(metrics.get("memory")),
        "limit_bytes": _number(said.get("memory_limit")) or None,
        "seconds_since_heartbeat": None if age_s is None else round(age_s, 1),
        "name": str(said.get("name")),
        "nanny": said.get("nanny") if isinstance(said.get("nanny"), str) else None,
        "nthreads": _number(said.get("nthreads")),
        "executing_count": _number(counts.get("executing", 0)) if isinstance(counts, Mapping) else None,
    }
    if address in silent:
        fields |= {
            "silent": True,
            "others_heard_s": None if others_s is None else round(others_s, 1),
            "pid": _number(said.get("pid")),
            "assigned_count": _number(said.get("processing_count")),
            "assigned": ", ".join(said.get("processing", ())) or None,
            "executing": executing_in_words(said),
        }
    return fields


def _number(value: object) -> int | float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
