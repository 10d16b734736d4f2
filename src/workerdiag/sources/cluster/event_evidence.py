"""Converts a cluster's replies to evidence: flat, bounded, each item with an identity."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from workerdiag.model.dask import Reply
from workerdiag.model.evidence import Event, Evidence, LogChunk, MemoryReading
from workerdiag.model.identity import NO_IDENTITY, Identity, identity_of
from workerdiag.model.normalize import EventValue
from workerdiag.sources.cluster.losses import is_healthy
from workerdiag.sources.cluster.state import ClusterState, describe_executing

#: Evidence names at most this many members of a collection in an event.
_MAX_NAMED = 20
_TEXT_CHARS = 4000
#: States of a task that a thread of the worker runs, or may run: nobody can stop one that is cancelled.
_IN_THREADS = ("executing", "long-running", "cancelled", "resumed")


def event_evidence(
    topic: str, entries: Iterable[tuple[float, object]], known: Mapping[str, Identity]
) -> Iterator[Evidence]:
    """Yield the events of one topic as evidence; *known* holds identities by worker address."""
    for when, message in entries:
        message_fields = message if isinstance(message, Mapping) else {"message": message}
        fields = flatten_fields(message_fields)
        for worker in _workers_in(topic, message_fields):
            identity = identity_of(worker=worker, pid=message_fields.get("pid"))
            identity = identity.merged_with(known.get(worker or "", NO_IDENTITY))
            own = fields | {"worker": worker} if worker and worker != topic else fields
            yield Event(topic=topic, fields=own, when=when, identity=identity)
            yield from _extra_evidence(topic, message_fields, when, identity)


def _workers_in(topic: str, message: Reply) -> list[str | None]:
    if message.get("action") == "worker-ttl-timed-out":
        return [str(each) for each in list(message.get("workers", ()))[:_MAX_NAMED]] or [None]
    worker = message.get("worker") or (topic if "://" in topic else None)
    return [worker if isinstance(worker, str) else None]


def _extra_evidence(topic: str, message: Reply, when: float, identity: Identity) -> Iterator[Evidence]:
    rss = message.get("rss")
    if topic == "worker-restart-memory" and isinstance(rss, int):
        yield MemoryReading(identity=identity, rss_bytes=rss, when=when)
    text = f"{message.get('traceback_text', '')}{message.get('exception_text', '')}"
    if topic == "worker-fail-hard" and text:  # the worker's log also had it, and is gone
        data = text[: 16 * 1024].encode("utf-8", errors="replace")
        yield LogChunk(origin=f"event {topic} {when}", data=data, stream="worker", identity=identity)


def flatten_fields(message: Mapping[object, object]) -> dict[str, EventValue]:
    """Return plain values unchanged, and collections as text of at most 20 members plus ``<key>_count``."""
    fields: dict[str, EventValue] = {}
    for key, value in list(message.items())[:50]:
        name = "processing" if key == "processing-tasks" else str(key)[:100]
        if value is None or isinstance(value, bool | int | float):
            fields[name] = value
        elif isinstance(value, str):
            fields[name] = value[:_TEXT_CHARS]
        elif isinstance(value, set | frozenset | list | tuple | dict):
            members = sorted(map(str, value)) if isinstance(value, set | frozenset) else [*map(str, value)]
            fields[name] = ", ".join(members[:_MAX_NAMED])[:_TEXT_CHARS]
            fields[f"{name}_count"] = getattr(value, "whole", len(members))
        elif not isinstance(value, bytes):  # bytes are pickles
            fields[name] = str(value)[:_TEXT_CHARS]
    return fields


def worker_state_events(
    state: ClusterState, *, silent: Collection[str] = (), known: Mapping[str, Identity]
) -> Iterator[Event]:
    """Yield the state of each unhealthy worker, or of all workers if there are at most 20.

    *silent* are the addresses of silent workers, *known* the identities by worker address.
    """
    interval_s = state.heartbeat_interval_s
    states = {address: state_fields(address, state, silent) for address in state.workers}
    chosen = list(states)
    if len(states) > 20:
        chosen = [each for each in states if not is_healthy(states[each], interval_s=interval_s)]
    for address in sorted(chosen, key=lambda each: each not in silent)[:100]:
        worker = state.workers[address]
        identity = identity_of(worker=address, nanny=worker.get("nanny"), name=worker.get("name"))
        identity = identity.merged_with(known.get(address, NO_IDENTITY))
        yield Event(topic="worker-state", fields=states[address], when=state.now, identity=identity)


def state_fields(address: str, state: ClusterState, silent: Collection[str] = ()) -> dict[str, EventValue]:
    """The fields of the event ``worker-state`` of one worker; *silent* are the addresses of silent ones."""
    worker = state.workers[address]
    metrics: Reply = worker.get("metrics") or {}
    counts, spilled = metrics.get("task_counts"), metrics.get("spilled_bytes")
    age_s, others_s = state.ages_s.get(address), state.others_heartbeat_age_s(address)
    executing = sum(counts.get(each, 0) for each in _IN_THREADS) if isinstance(counts, Mapping) else None
    fields: dict[str, EventValue] = {
        "status": str(worker.get("status")),
        "memory_bytes": _number_or_none(metrics.get("memory")),
        "limit_bytes": _number_or_none(worker.get("memory_limit")) or None,
        "stored_bytes": _number_or_none(metrics.get("managed_bytes")),
        "spilled_bytes": _number_or_none(spilled.get("disk")) if isinstance(spilled, Mapping) else None,
        "seconds_since_heartbeat": None if age_s is None else round(age_s, 1),
        "name": str(worker.get("name")),
        "nanny": worker.get("nanny") if isinstance(worker.get("nanny"), str) else None,
        "nthreads": _number_or_none(worker.get("nthreads")),
        "executing_count": executing,
    }
    if address in silent:
        fields |= {
            "silent": True,
            "address": address,
            "others_heard_s": None if others_s is None else round(others_s, 1),
            "pid": _number_or_none(worker.get("pid")),
            "assigned_count": _number_or_none(worker.get("processing_count")),
            "assigned": ", ".join(worker.get("processing", ())) or None,
            "executing": describe_executing(worker),
        }
    return fields


def _number_or_none(value: object) -> int | float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
