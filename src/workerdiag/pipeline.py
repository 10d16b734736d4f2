"""The stages in their order, and nothing clever: evidence, matches, incident, findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from attrs import evolve

from workerdiag.correlation.assemble import assemble, contradiction_notes
from workerdiag.correlation.clock_sync import synchronize_clocks
from workerdiag.deadline import MORE_TIME, NO_DEADLINE, Deadline, GraceDeadline
from workerdiag.matching.match import derive_matches, engine_notes, error_rule, find_matches, search
from workerdiag.matching.messages import MatchObserver
from workerdiag.matching.scan import Matcher
from workerdiag.model.diagnosis import Findings, Match
from workerdiag.model.evidence import Evidence, Gap, LogChunk
from workerdiag.model.identity import Identity
from workerdiag.model.process_end import ProcessEnd
from workerdiag.model.rules import Rulebook
from workerdiag.model.vocabulary import Place
from workerdiag.scoring.conclude import conclude
from workerdiag.scoring.evaluate import evaluate_deaths


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
    """Return the findings of the evidence by the rules.

    Args:
        evidence: The evidence. Chunks of one log must be consecutive; each is released after reading.
        book: The rulebook.
        version: Version of workerdiag, for the report.
        matcher: The compiled patterns of *book*, if the caller has them.
        observer: Is called with the place of each match in log text.
        deadline: The answer rests on the matches found until then.
        about: The processes in question; empty: as the evidence says.
        more_deaths: Number of further deaths of the same trouble without evidence.
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
    incident = assemble(matches, other_evidence, GraceDeadline(deadline, grace=100))  # merged even if late
    if incident.left_out:
        detail = f"{incident.left_out} reports of ends were not looked at"
        where: Place = "workerdiag"
        gaps.append(Gap(source=where, place=where, reason="timed-out", detail=detail, remedy=MORE_TIME))
    notes += tuple(contradiction_notes(incident.ends))
    incident = evolve(
        incident,
        about=tuple(about),
        asked=error_rule(other_evidence, book),
        more_deaths=more_deaths,
        clipped_reports=search_result.clipped_reports,
    )
    return conclude(incident, book, gaps=gaps, notes=notes, version=version, deadline=deadline)


def judge_matches(
    matches: Sequence[Match], evidence: Sequence[Evidence], book: Rulebook, matcher: Matcher
) -> Iterator[tuple[ProcessEnd, Findings]]:
    """Yield each death in the *matches* of many logs and in other evidence, with the findings about it alone.

    The *matches* are of the logs of one cluster run, log by log; the *matcher* has the patterns of *book*.
    """
    found = [*matches, *find_matches(evidence, matcher).matches]
    synchronized, _ = synchronize_clocks(derive_matches(found, matcher.signs))
    others = [each for each in evidence if not isinstance(each, LogChunk)]
    yield from evaluate_deaths(assemble(synchronized, others), book)
