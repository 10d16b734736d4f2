"""The cases on the dashboard, with their victims and the memory of these.

A separate process judges deaths (`judge_process`), so all of this converts to plain data and back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import evolve, frozen

from workerdiag.model.vocabulary import Verdict
from workerdiag.wire.recorded_death import RecordedDeath
from workerdiag.wire.removal import Heartbeat

#: Maximum number of points of a curve: as many as fit into a drawing.
MAX_POINTS = 120
_NAME_CHARS = 100


@frozen(kw_only=True)
class DeadWorker:
    """A worker that died, with its memory until then."""

    #: As `RecordedDeath.id`.
    id: str
    #: Its id while only a report is known: the scheduler may notice a death later.
    report_id: str | None = None
    #: Address of the worker, or its process id if the address is not known.
    worker: str
    name: str = ""
    #: When the scheduler noticed the death, in seconds since the epoch.
    when: float
    #: Times of the memory below, in seconds relative to the death: negative.
    seconds: tuple[float, ...] = ()
    rss_bytes: tuple[int, ...] = ()
    limit_bytes: int | None = None


@frozen(kw_only=True)
class KnownCause:
    """A cause with its family, and who usually has to act."""

    cause: str
    family: str
    blame: Verdict


@frozen(kw_only=True)
class JudgedCase:
    """Deaths of one trouble, with their judgement."""

    #: The fingerprint of the diagnosis.
    id: str
    title: str
    cause: str | None = None
    family: str | None = None
    #: Probability of the cause, from 0 to 1.
    probability: float = 0.0
    #: Whether the cause is more than a guess.
    is_likely: bool = False
    blame: Verdict = "unknown"
    victims: tuple[DeadWorker, ...] = ()
    #: The report: HTML, compressed with zlib, in base64; empty if there is none.
    report: str = ""


def ids_of(victims: Iterable[DeadWorker]) -> frozenset[str]:
    """Return all ids of these deaths."""
    return frozenset(id_ for each in victims for id_ in (each.id, each.report_id) if id_ is not None)


def victim_of(death: RecordedDeath) -> DeadWorker:
    """Return the worker of a recorded death, with the memory in its box or its last heartbeat."""
    who, record, report = death.identity, death.record, death.report
    points = _decimated(_memory(death))
    limits = [each.memory_limit_bytes for each in (record, report) if each is not None]
    return DeadWorker(
        id=death.id,
        report_id=evolve(death, record=None).id if report is not None else None,
        worker=(who.worker or f"pid {who.pid or 'unknown'}")[:_NAME_CHARS],
        name=(who.name or "")[:_NAME_CHARS],
        when=death.time,
        seconds=tuple(round(at - death.time, 2) for at, _ in points),
        rss_bytes=tuple(count for _, count in points),
        limit_bytes=next((each for each in limits if each), None),
    )


def _memory(death: RecordedDeath) -> list[tuple[float, int]]:
    box = death.report.box if death.report is not None else None
    samples = box.samples if box is not None else ()
    known = [(each.at, each.process_rss_bytes) for each in samples]
    if not known:
        heartbeat = death.record.last_heartbeat if death.record is not None else Heartbeat()
        known = [(heartbeat.at or death.time, heartbeat.rss_bytes)]
    return [(at, count) for at, count in known if count is not None]


def _decimated(points: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """Return at most `MAX_POINTS` of the points: the highest of each stretch, and always the last."""
    if len(points) <= MAX_POINTS:
        return list(points)
    step = -(-len(points) // (MAX_POINTS - 1))
    stretches = (points[begin : begin + step] for begin in range(0, len(points), step))
    return [*(max(each, key=lambda point: point[1]) for each in stretches), points[-1]]
