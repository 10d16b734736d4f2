"""
The stages in their order, and nothing clever: evidence, matches, incident, findings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count

from attrs import evolve

from workerdiag.correlation.clock_sync import on_one_clock
from workerdiag.correlation.incident import assemble
from workerdiag.matching.match import engine_notes, search
from workerdiag.matching.scan.matcher import Matcher
from workerdiag.matching.scan.patterns import Witness
from workerdiag.matching.scan.work_budget import never
from workerdiag.model.diagnosis import Findings
from workerdiag.model.evidence import Evidence, Gap, LogChunk
from workerdiag.model.rules import Rulebook
from workerdiag.scoring.conclude import conclude

#: So many reports of ends are joined however late it is.
_ALWAYS_JOINED = 100


def diagnose(
    evidence: Iterable[Evidence],
    book: Rulebook,
    *,
    version: str = "",
    matcher: Matcher | None = None,
    witness: Witness | None = None,
    out_of_time: Callable[[], bool] = never,
) -> Findings:
    """
    What happened, by all that was seen and all that is known.

    Args:
        evidence: Chunks of one log follow each other; each is let go of once it was read.
        book: The rulebook to judge by.
        version: Version of workerdiag, for the report.
        matcher: The compiled patterns of *book*, where the caller keeps them.
        witness: Is told where in log text something was found.
        out_of_time: Whether time is up; the answer then rests on what was found until then.
    """
    kept: list[Evidence] = []

    def passing() -> Iterable[Evidence]:
        for piece in evidence:
            if not isinstance(piece, LogChunk):
                kept.append(piece)
            yield piece

    matcher = matcher or Matcher(book)
    found = search(passing(), book, matcher, witness, out_of_time)
    kept += found.gaps
    matches, set_right = on_one_clock(found.matches)
    gaps = [piece for piece in kept if isinstance(piece, Gap)]
    noted = evolve(book, notes=(*book.notes, *engine_notes(), *matcher.left_out, *set_right))
    asked = count()
    incident = assemble(matches, kept, lambda: next(asked) >= _ALWAYS_JOINED and out_of_time())
    gaps += _left_out(incident.left_out)
    return conclude(incident, noted, gaps=gaps, version=version, out_of_time=out_of_time)


def _left_out(reports: int) -> Iterator[Gap]:
    if reports:
        yield Gap(
            source="workerdiag",
            reason="timed-out",
            detail=f"{reports} reports of ends were not looked at",
            remedy='give it more time: explain(..., timeout="60s")',
        )
