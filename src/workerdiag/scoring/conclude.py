"""
From one incident to findings: ranks the causes, decides the outcome, gathers the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import evolve

from workerdiag.correlation.incident import Case, Incident
from workerdiag.model.diagnosis import Death, Findings, Match, RankedCause
from workerdiag.model.evidence import Gap
from workerdiag.model.rules import Rulebook
from workerdiag.redaction.objects import redacted_object
from workerdiag.scoring.advice import mitigations
from workerdiag.scoring.all_clear import Concerns, concerns
from workerdiag.scoring.blame import blame, decision
from workerdiag.scoring.cluster_setup import Setting, setting_of
from workerdiag.scoring.distribution import Distribution, mixed
from workerdiag.scoring.evaluate import Judged, deaths_of_the_task, deciding_deaths, is_explained, judge
from workerdiag.scoring.findings import clues, death, unchecked
from workerdiag.scoring.limits import Numbers, numbers_of
from workerdiag.scoring.next_steps import next_steps
from workerdiag.scoring.summary import fingerprint, summary

#: The first death counts double: what follows may be its consequence.
FIRST_WEIGHT = 2.0
#: Of "it was none of the known causes": below this it is likelier that it was one of them.
_EVEN = 0.5
_WITHOUT_CAUSES = ("no-death", "no-evidence")
#: Deaths that findings carry, at most.
MOST_DEATHS = 1000


def conclude(
    incident: Incident,
    book: Rulebook,
    *,
    gaps: Sequence[Gap],
    version: str,
    out_of_time: Callable[[], bool] = lambda: False,
) -> Findings:
    """
    Everything that can be said about *incident* by what *book* knows, and in the time there is.
    """
    judged = judge(incident.cases, incident, book, out_of_time)
    deciding = deciding_deaths(deaths_of_the_task(judged, incident))
    deciding = deciding or judge([Case(end=None)], incident, book)
    chances = mixed([(_weight(index, each.chances), each.chances) for index, each in enumerate(deciding)])
    barring = concerns(incident, gaps, book)
    outcome = _outcome(chances, incident, barring)
    if outcome in _WITHOUT_CAUSES:
        chances = Distribution()
    numbers = numbers_of(incident, [match for each in deciding for match in _matches(each)])
    setting = setting_of(incident)
    has_causes = outcome not in _WITHOUT_CAUSES
    ranked = _ranked(chances, deciding, book, incident, numbers, setting) if has_causes else ()
    deaths = tuple(_listed(each, incident) for each in judged[:MOST_DEATHS])
    verdict = redacted_object(blame(ranked, book, incident))
    findings = Findings(
        outcome=outcome,
        summary=summary(outcome, ranked, deaths, incident, barring),
        causes=ranked,
        unknown_probability=_rest(ranked),
        deaths=deaths,
        blame=verdict,
        next_steps=next_steps(outcome, ranked, book, incident, setting),
        gaps=tuple(gaps),
        decision=decision(ranked, book, verdict, numbers),
        fingerprint=fingerprint(outcome, ranked, deaths, verdict),
        knowledge=book.release,
        version=version,
        notes=book.notes,
    )
    findings = redacted_object(findings)  # the one border: whatever shows findings shows no secret
    return evolve(findings, gaps=_each_once(findings.gaps))


def _each_once(gaps: Sequence[Gap]) -> tuple[Gap, ...]:
    return tuple({(each.source, each.reason, each.detail): each for each in reversed(gaps)}.values())[::-1]


def _weight(index: int, chances: Distribution) -> float:
    """
    A death of which little is known says little of the incident.
    """
    return (FIRST_WEIGHT if index == 0 else 1.0) * max(0.01, 1.0 - chances.unknown) ** 2


def _outcome(chances: Distribution, incident: Incident, barring: Concerns) -> str:
    if is_explained(chances):
        return "explained"
    if not (barring.is_recognised or barring.is_unasked or barring.is_cut_short):
        return "no-evidence"
    if barring.bars:
        return "unknown"
    if not incident.cases and chances.unknown < _EVEN:  # several weak candidates, but together likely
        return "unknown"
    return "no-death"


def _ranked(
    chances: Distribution,
    deciding: Sequence[Judged],
    book: Rulebook,
    incident: Incident,
    numbers: Numbers,
    setting: Setting,
) -> tuple[RankedCause, ...]:
    ranked = []
    for cause_id, chance in sorted(chances.chances.items(), key=lambda item: (-item[1], item[0])):
        cause = book.cause(cause_id)
        if cause is None:
            continue
        own = [each for judged in deciding for each in judged.supports if each.cause.id == cause_id]
        ranked.append(
            RankedCause(
                id=cause.id,
                revision=cause.revision,
                title=cause.title,
                family=cause.family,
                why=cause.why,
                probability=chance,
                evidence=clues([seen for each in own for seen in each.shown]),
                against=clues([seen for each in own for seen in each.against]),
                unchecked=unchecked(cause, incident),
                mitigations=mitigations(
                    cause, numbers, [m for e in own for s in e.shown for m in s.matches], setting
                ),
                references=cause.references,
            )
        )
    return tuple(ranked)


def _rest(ranked: Sequence[RankedCause]) -> float:
    return min(1.0, max(0.0, 1.0 - sum(each.probability for each in ranked)))


def _matches(judged: Judged) -> list[Match]:
    return [match for each in judged.supports for seen in each.shown for match in seen.matches]


def _listed(judged: Judged, incident: Incident) -> Death:
    end = judged.case.end
    assert end is not None  # incidents list cases that are deaths
    best = judged.chances.best if is_explained(judged.chances) else None
    return death(end, best, incident, _matches(judged))
