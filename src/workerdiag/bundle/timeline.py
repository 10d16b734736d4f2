"""
What happened when, as far as a bundle's diagnosis and evidence say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from workerdiag.bundle.retention.kept_evidence import KeptLog
from workerdiag.model.diagnosis import Findings
from workerdiag.model.evidence import Event, Evidence, ExceptionFacts, MemoryReading, ProcessExit
from workerdiag.redaction.objects import redacted_object
from workerdiag.rendering.report import Moment
from workerdiag.rendering.wording import clipped, ending, one_line, size, who

#: Moments that a report has room for.
MOST_MOMENTS = 40
_TEXT_CHARS = 240


def timeline(findings: Findings, items: Iterable[Evidence | KeptLog]) -> tuple[Moment, ...]:
    """
    The moments nearest to the first death, in their order; each thing that was seen once.
    """
    found: dict[tuple[int, str], Moment] = {}
    for moment in (*_concluded(findings), *_seen(items)):
        found.setdefault((round(moment.when), moment.text), moment)
    deaths = [death.when for death in findings.deaths if death.when is not None]
    middle = min(deaths, default=max((moment.when for moment in found.values()), default=0.0))
    nearest = sorted(found.values(), key=lambda moment: abs(moment.when - middle))[:MOST_MOMENTS]
    return tuple(sorted(nearest, key=lambda moment: moment.when))


def _concluded(findings: Findings) -> Iterator[Moment]:
    for death in findings.deaths:
        if death.when is not None:
            yield _moment(death.when, "death", f"{who(death.whose)}: {ending(death)}")
    for cause in findings.causes[:3]:
        for clue in (*cause.evidence, *cause.against):
            if clue.when is not None:
                yield _moment(clue.when, clue.where, clue.text)


def _seen(items: Iterable[Evidence | KeptLog]) -> Iterator[Moment]:
    for item in items:
        when = getattr(item, "when", None)
        if when is None or isinstance(item, KeptLog):
            continue
        piece = redacted_object(item)
        if isinstance(piece, Event):
            yield _moment(when, "event", piece.say().removeprefix("event "))
        elif isinstance(piece, ProcessExit):
            yield _moment(when, piece.said_by or "exit", f"{who(piece.whose)}: ended{_how(piece)}")
        elif isinstance(piece, MemoryReading) and piece.rss_bytes is not None:
            limit = f" of {size(piece.limit_bytes)}" if piece.limit_bytes else ""
            yield _moment(when, "memory", f"{who(piece.whose)}: {size(piece.rss_bytes)}{limit}")
        elif isinstance(piece, ExceptionFacts):
            yield _moment(when, "exception", f"{piece.type}: {piece.text}")


def _how(piece: ProcessExit) -> str:
    if piece.signal is not None:
        return f" by signal {piece.signal}"
    return "" if piece.status is None else f" by status {piece.status}"


def _moment(when: float, where: str, text: str) -> Moment:
    return Moment(when=when, where=clipped(one_line(where), 80), text=clipped(one_line(text), _TEXT_CHARS))
