"""What happened when, as far as a bundle's diagnosis and evidence say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from workerdiag.bundle.retention.kept_evidence import KeptLog
from workerdiag.model.diagnosis import Findings
from workerdiag.model.evidence import Event, Evidence, ExceptionFacts, MemoryReading, ProcessExit
from workerdiag.redaction.objects import redact_object
from workerdiag.rendering.bug_report import TimelineMoment
from workerdiag.rendering.wording import clip, exit_text, identity_text, one_line
from workerdiag.units import format_bytes

#: Moments that a report has room for.
MAX_MOMENTS = 40
_TEXT_CHARS = 240


def timeline(findings: Findings, items: Iterable[Evidence | KeptLog]) -> tuple[TimelineMoment, ...]:
    """The moments nearest to the first death, in their order; each thing that was seen once."""
    found: dict[tuple[int, str], TimelineMoment] = {}
    for moment in (*_moments_of_findings(findings), *_moments_of_evidence(items)):
        found.setdefault((round(moment.when), moment.text), moment)
    deaths = [death.when for death in findings.deaths if death.when is not None]
    middle = min(deaths, default=max((moment.when for moment in found.values()), default=0.0))
    nearest = sorted(found.values(), key=lambda moment: abs(moment.when - middle))[:MAX_MOMENTS]
    return tuple(sorted(nearest, key=lambda moment: moment.when))


def _moments_of_findings(findings: Findings) -> Iterator[TimelineMoment]:
    for death in findings.deaths:
        if death.when is not None:
            yield _clipped_moment(death.when, "death", f"{identity_text(death.identity)}: {exit_text(death)}")
    for cause in findings.causes[:3]:
        for clue in (*cause.evidence, *cause.against):
            if clue.when is not None:
                yield _clipped_moment(clue.when, clue.where, clue.text)


def _moments_of_evidence(items: Iterable[Evidence | KeptLog]) -> Iterator[TimelineMoment]:
    for item in items:
        when = getattr(item, "when", None)
        if when is None or isinstance(item, KeptLog):
            continue
        piece = redact_object(item)
        if isinstance(piece, Event):
            yield _clipped_moment(when, "event", piece.describe().removeprefix("event "))
        elif isinstance(piece, ProcessExit):
            yield _clipped_moment(
                when, piece.reporter or "exit", f"{identity_text(piece.identity)}: ended{_exit_suffix(piece)}"
            )
        elif isinstance(piece, MemoryReading) and piece.rss_bytes is not None:
            limit = f" of {format_bytes(piece.limit_bytes)}" if piece.limit_bytes else ""
            yield _clipped_moment(
                when, "memory", f"{identity_text(piece.identity)}: {format_bytes(piece.rss_bytes)}{limit}"
            )
        elif isinstance(piece, ExceptionFacts):
            yield _clipped_moment(when, "exception", f"{piece.type}: {piece.text}")


def _exit_suffix(piece: ProcessExit) -> str:
    if piece.signal is not None:
        return f" by signal {piece.signal}"
    return "" if piece.status is None else f" by status {piece.status}"


def _clipped_moment(when: float, where: str, text: str) -> TimelineMoment:
    return TimelineMoment(when=when, where=clip(one_line(where), 80), text=clip(one_line(text), _TEXT_CHARS))
