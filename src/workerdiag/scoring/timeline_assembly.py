"""What happened around the deaths, from all evidence that has a time."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

from attrs import evolve

from workerdiag.model.diagnosis import Match
from workerdiag.model.evidence import MemoryReading
from workerdiag.model.identity import NO_IDENTITY
from workerdiag.model.incident import Incident, NameIndex, grouped
from workerdiag.model.normalize import whole
from workerdiag.model.process_end import ProcessEnd
from workerdiag.model.timeline import (
    MemoryLimits,
    MemorySample,
    Moment,
    MomentKind,
    ProcessHistory,
    TaskSpan,
    Timeline,
)
from workerdiag.scoring.advice import MEMORY_BUDGET, captured_limit, captured_rss, exceeded_bytes, reading_of, share
from workerdiag.scoring.findings import tasks_at_loss

#: Processes whose last minutes findings have at most, and samples for each.
MAX_HISTORIES = 8
MAX_SAMPLES = 240
MAX_MOMENTS = 60
#: Seconds before the first death and after the last one that are shown.
BEFORE_S, AFTER_S = 300.0, 60.0
#: Landmarks that only repeat a moment of their role.
_REPEATED = ("worker.registered", "worker.waiting-to-connect", "nanny.start", "nanny.starts-worker")
_KINDS: Mapping[str, MomentKind] = {kind: kind for kind in get_args(MomentKind)}
#: Where thresholds stand in what a scheduler or a recorder says (distributed.yaml; `sources.recorder`).
_FRACTIONS = {
    "spill_fraction": ("distributed.worker.memory.spill",),
    "pause_fraction": ("distributed.worker.memory.pause",),
    "terminate_fraction": ("terminate_fraction", "distributed.worker.memory.terminate"),
}


def _name_marks(marks: Sequence[Match], ends: Sequence[ProcessEnd]) -> list[Match]:
    """The marks, nameless ones of workers with the name of the next end in their log if one worker started."""
    last_lines: dict[str, list[tuple[int, int]]] = {}
    for number, end in enumerate(ends):
        for origin in {mark.origin for mark in end.marks if mark.line}:
            insort(last_lines.setdefault(origin, []), (end.last_line(origin), number))
    started: dict[tuple[str, int], set[str]] = {}
    places = [_next_end(mark, last_lines) for mark in marks]
    for mark, place in zip(marks, places, strict=True):
        if place is not None and mark.role == "start" and mark.identity.worker:
            started.setdefault((mark.origin, place), set()).add(mark.identity.worker)
    return [
        evolve(mark, identity=ends[place].identity)
        if place is not None
        and mark.role in ("pause", "resume", "trouble", "self-closed", "stop-request")
        and mark.identity == NO_IDENTITY
        and len(started.get((mark.origin, place), ())) <= 1
        else mark
        for mark, place in zip(marks, places, strict=True)
    ]


def _next_end(mark: Match, of_origin: Mapping[str, list[tuple[int, int]]]) -> int | None:
    ends = of_origin.get(mark.origin, []) if mark.line else []
    place = bisect_left(ends, (mark.line, -1))
    return ends[place][1] if place < len(ends) else None


def make_timeline(ends: Sequence[ProcessEnd], incident: Incident) -> Timeline:
    """The last minutes of the processes that ended, or else of paused workers, and what happened around them."""
    unasked = [end for end in ends if end.unexpected] or list(ends)
    marks = _name_marks(incident.marks, ends)
    fractions = _known_fractions(incident.marks)
    by_name = NameIndex.by_identity(marks)
    histories = [_history(end, incident, by_name, fractions) for end in unasked[:MAX_HISTORIES]]
    if not ends:
        histories = _paused_histories(marks, fractions)[:MAX_HISTORIES]
    return Timeline(
        histories=tuple(each for each in histories if each.samples or each.tasks),
        moments=tuple(_moments(unasked, marks)),
    )


def _history(
    end: ProcessEnd, incident: Incident, marks: NameIndex[Match], fractions: Mapping[str, float]
) -> ProcessHistory:
    known = next(
        (each for each in incident.naming(end, ProcessHistory) if end.same_process(each.identity)),
        ProcessHistory(identity=end.identity),
    )
    named = (mark for mark in marks.find(*end.identities) if end.same_process(mark.identity))
    own = list(dict.fromkeys((*end.marks, *named)))
    worker_limit = known.limits.worker_bytes or reading_of(end, incident)[1] or captured_limit(own)
    group = [] if known.recorded else list(_group_readings(end, incident))
    limits = _limits(known.limits, worker_limit, fractions)
    return evolve(
        known,
        identity=end.identity,
        samples=tuple(_samples(known, _readings(end, incident, own, worker_limit), group)),
        limits=limits if limits.group_bytes or not group else evolve(limits, group_bytes=group[-1][2]),
        tasks=known.tasks or tuple(_spans_at_loss(end, incident)),
        when=end.when if end.when is not None else known.when,
    )


def _paused_histories(marks: Sequence[Match], fractions: Mapping[str, float]) -> list[ProcessHistory]:
    """The memory of paused workers, from their messages, if no worker died."""
    paused = grouped(
        (each for each in marks if each.role == "pause" and each.when is not None and captured_rss(each.captures)),
        lambda each: each.identity,
    )
    return [
        ProcessHistory(
            identity=identity,
            samples=tuple(
                MemorySample(at=mark.when or 0.0, process_bytes=captured_rss(mark.captures))
                for mark in sorted(found, key=lambda each: each.when or 0.0)[-MAX_SAMPLES:]
            ),
            limits=_limits(MemoryLimits(), captured_limit(found), fractions),
        )
        for identity, found in paused.items()
    ]


def _limits(known: MemoryLimits, worker_bytes: int | None, told: Mapping[str, float]) -> MemoryLimits:
    names = _FRACTIONS if worker_bytes else ()
    fractions: dict[str, Any] = {name: getattr(known, name) or told.get(name) for name in names}
    return evolve(known, worker_bytes=worker_bytes, **fractions)


def _samples(
    known: ProcessHistory, readings: Iterable[tuple[float, int]], group: Iterable[tuple[float, int, int]]
) -> list[MemorySample]:
    samples = {each.at: each for each in known.samples}
    for at, rss_bytes in readings:
        samples.setdefault(at, MemorySample(at=at, process_bytes=rss_bytes))
    for at, usage_bytes, _ in group:
        samples[at] = evolve(samples.get(at, MemorySample(at=at)), group_bytes=usage_bytes)
    return sorted(samples.values(), key=lambda each: each.at)[-MAX_SAMPLES:]


def _group_readings(end: ProcessEnd, incident: Incident) -> Iterator[tuple[float, int, int]]:
    """Time (else that of the death), usage and limit in bytes of the control group, by the kernel's kills."""
    for case in incident.cases:
        for sign in case.signs if case.end is end else ():
            usage, limit = (whole(sign.captures.get(name)) for name in ("usage_kb", "limit_kb"))
            at = end.when if sign.when is None else sign.when
            if at is not None and usage and limit:
                yield at, usage * 1024, limit * 1024


def _readings(
    end: ProcessEnd, incident: Incident, marks: Sequence[Match], limit: int | None
) -> list[tuple[float, int]]:
    """Times and sizes of all reports of its memory; a nanny's share counts unless something larger was measured."""
    found = [
        (each.when, each.rss_bytes)
        for each in incident.naming(end, MemoryReading)
        if each.when is not None and each.rss_bytes and each.identity.same_process(end.identity)
    ]
    timed = [(mark.when, mark) for mark in marks if mark.when is not None]
    found += [(when, rss_bytes) for when, mark in timed if (rss_bytes := captured_rss(mark.captures))]
    most = max((rss_bytes for _, rss_bytes in found), default=0)
    exceeded = [(when, exceeded_bytes(mark, limit)) for when, mark in timed]
    at_death = reading_of(end, incident)[0]
    if not found and end.when is not None and at_death:
        found = [(end.when, at_death)]
    return [*found, *(each for each in exceeded if each[1] > most)]


def _spans_at_loss(end: ProcessEnd, incident: Incident) -> Iterator[TaskSpan]:
    """The tasks that were executing when the worker was lost, by its last heartbeat."""
    loss = next(iter(tasks_at_loss(end, incident)), None)
    when = end.when if end.when is not None or loss is None else loss.when
    if loss is not None and when is not None:
        for key, thread, seconds, crashed in loss.each_task():
            if seconds is not None:
                yield TaskSpan(key=key, thread=thread, started_at=when - seconds, crashed=crashed)


def _known_fractions(marks: Iterable[Match]) -> dict[str, float]:
    """Memory thresholds by the fields of `MemoryLimits`: the scheduler's settings, or what a nanny enforces."""
    found: dict[str, float] = {}
    for mark in marks:
        if mark.owner == MEMORY_BUDGET:
            found.setdefault("terminate_fraction", share(mark.captures.get("percent"), of=100))
        for name, keys in _FRACTIONS.items():
            for key in filter(mark.captures.__contains__, keys):
                found.setdefault(name, share(mark.captures[key]))
    return {name: value for name, value in found.items() if 0 < value <= 1}


def _moments(ends: Sequence[ProcessEnd], marks: Iterable[Match]) -> list[Moment]:
    """The moments near the deaths, each once; if there are too many, those nearest to the first death."""
    times = [end.when for end in ends if end.when is not None]
    if not times:
        return []
    first, last = min(times), max(times)
    near = (
        mark
        for mark in marks
        if mark.when is not None
        and mark.role in _KINDS
        and mark.owner not in _REPEATED
        and (mark.identity.worker or mark.role not in ("start", "connection-lost", "removal"))
        and first - BEFORE_S <= mark.when <= last + AFTER_S
    )
    found: list[Moment] = []
    latest: dict[tuple[str, str], float] = {}
    for mark in sorted(near, key=lambda each: each.when or 0.0):
        at = mark.when or 0.0
        what = (mark.role, mark.identity.worker or mark.identity.nanny or str(mark.identity.pid))
        if what not in latest or at - latest[what] > 2.0:  # several logs have it
            latest[what] = at
            text = " ".join(mark.text.split())[:200]
            found.append(Moment(at=at, kind=_KINDS[mark.role], identity=mark.identity, text=text))
    nearest = sorted(found, key=lambda each: abs(each.at - first))[:MAX_MOMENTS]
    return sorted(nearest, key=lambda each: each.at)
