"""
Each death of an incident by itself, however many there are: for tables, where no death speaks for others.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from workerdiag.model.diagnosis import SURE_ENOUGH, Clue, Death, RankedCause
from workerdiag.model.incident import Incident
from workerdiag.model.process_end import ProcessEnd
from workerdiag.model.rules import Rulebook
from workerdiag.model.vocabulary import Outcome, Verdict
from workerdiag.redaction.objects import redact_object
from workerdiag.scoring.evaluate import MAX_EVALUATED, EvaluatedCase, evaluate_cases, is_explained
from workerdiag.scoring.findings import assigned_tasks, clues, death_of_end
from workerdiag.scoring.fingerprint import fingerprint


@frozen(kw_only=True)
class JudgedDeath:
    """
    One death, its likeliest cause and who needs to act.
    """

    death: Death
    end: ProcessEnd
    outcome: Outcome
    #: Its likeliest cause, where that is likelier than that it is unknown.
    cause: RankedCause | None
    blame: Verdict
    #: Equal for deaths of the same trouble.
    fingerprint: str


def judge_each(incident: Incident, book: Rulebook) -> Iterator[JudgedDeath]:
    """
    Every death of *incident*, in the order in which they died.
    """
    cases = [each for each in incident.cases if each.end is not None]
    for at in range(0, len(cases), MAX_EVALUATED):
        for each in evaluate_cases(cases[at : at + MAX_EVALUATED], incident, book):
            if each.case.end is not None:
                yield _judge(each, each.case.end, incident, book)


def _judge(evaluated: EvaluatedCase, end: ProcessEnd, incident: Incident, book: Rulebook) -> JudgedDeath:
    best = evaluated.chances.best if is_explained(evaluated.chances) else None
    rule = book.cause(best[0]) if best is not None else None
    cause = None
    if rule is not None and best is not None:
        cause = RankedCause(
            id=rule.id,
            revision=rule.revision,
            title=rule.title,
            family=rule.family,
            why=rule.why,
            probability=best[1],
            evidence=_clues(evaluated, rule.id),
        )
    outcome: Outcome = "explained" if cause is not None else "unknown"
    death = death_of_end(end, best, incident, evaluated.matches)
    tasks = assigned_tasks(end.marks)
    return JudgedDeath(
        death=redact_object(death),
        end=end,
        outcome=outcome,
        cause=redact_object(cause),
        blame=rule.blame if rule is not None and best is not None and best[1] >= SURE_ENOUGH else "unknown",
        fingerprint=fingerprint(outcome, [cause] if cause else [], [death], tasks[0] if tasks else None),
    )


def _clues(evaluated: EvaluatedCase, cause: str) -> tuple[Clue, ...]:
    return clues(
        [seen for each in evaluated.cause_scores if each.cause.id == cause for seen in each.evidence]
    )
