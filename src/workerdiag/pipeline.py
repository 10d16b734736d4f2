"""
The stages in their order, and nothing clever: evidence, matches, incident, findings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from attrs import evolve

from workerdiag.correlation.assemble import assemble
from workerdiag.correlation.clock_sync import synchronize_clocks
from workerdiag.deadline import MORE_TIME, NO_DEADLINE, Deadline, GraceDeadline
from workerdiag.matching.match import derive_matches, engine_notes, find_matches, search
from workerdiag.matching.messages.log_record import MatchObserver
from workerdiag.matching.scan.matcher import Matcher
from workerdiag.model.diagnosis import Findings, Match
from workerdiag.model.evidence import Evidence, Gap, LogChunk
from workerdiag.model.identity import Identity
from workerdiag.model.rules import Rulebook
from workerdiag.scoring.conclude import conclude
from workerdiag.scoring.evaluated_deaths import EvaluatedDeath, evaluate_deaths

#: This many reports of ends are merged however late it is.
_ALWAYS_MERGED = 100


def diagnose(  # noqa: PLR0913  all but two have defaults
    evidence: Iterable[Evidence],
    book: Rulebook,
    *,
    version: str = "",
    matcher: Matcher | None = None,
    observer: MatchObserver | None = None,
    deadline: Deadline = NO_DEADLINE,
    about: Sequence[Identity] = (),
    more_deaths: int = 0,
) -> Findings:
    """
    What happened, by all that was seen and all that is known.

    Args:
        evidence: Chunks of one log follow each other; each is let go of once it was read.
        book: The rulebook to judge by.
        version: Version of workerdiag, for the report.
        matcher: The compiled patterns of *book*, where the caller keeps them.
        observer: Is told where in log text something was found.
        deadline: The answer rests on what was found until then.
        about: The processes whose deaths are in question; empty: as the evidence says.
        more_deaths: How many others died of the same, of which no evidence is given.
    """
    other_evidence: list[Evidence] = []

    def split_evidence() -> Iterable[Evidence]:
        for piece in evidence:
            if not isinstance(piece, LogChunk):
                other_evidence.append(piece)
            yield piece

    search_result = search(split_evidence(), book, matcher or Matcher(book), observer, deadline)
    other_evidence += search_result.gaps
    matches, clock_notes = synchronize_clocks(search_result.matches)
    gaps = [piece for piece in other_evidence if isinstance(piece, Gap)]
    notes = (*book.notes, *engine_notes(), *search_result.left_out, *clock_notes)
    incident = assemble(matches, other_evidence, GraceDeadline(deadline, grace=_ALWAYS_MERGED))
    gaps += _merge_gaps(incident.left_out)
    incident = evolve(
        incident,
        about=tuple(about),
        more_deaths=more_deaths,
        clipped_reports=search_result.clipped_reports,
    )
    return conclude(incident, book, gaps=gaps, notes=notes, version=version, deadline=deadline)


def judge_matches(
    matches: Sequence[Match], evidence: Sequence[Evidence], book: Rulebook, matcher: Matcher
) -> Iterator[EvaluatedDeath]:
    """
    Each death by itself that the *matches* of many logs, and other evidence, tell of.

    Args:
        matches: What scanning found in the logs of one cluster run, log by log.
        evidence: Which logs were read, and which were not; and what else there is.
        book: The rulebook to judge by.
        matcher: The compiled patterns of *book*.
    """
    found = [*matches, *find_matches(evidence, matcher).matches]
    synchronized, _ = synchronize_clocks(derive_matches(found, matcher.signs))
    others = [each for each in evidence if not isinstance(each, LogChunk)]
    yield from evaluate_deaths(assemble(synchronized, others), book)


def _merge_gaps(reports: int) -> Iterator[Gap]:
    if reports:
        yield Gap(
            source="workerdiag",
            place="workerdiag",
            reason="timed-out",
            detail=f"{reports} reports of ends were not looked at",
            remedy=MORE_TIME,
        )
