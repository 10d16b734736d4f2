"""From one incident to findings: rank the causes, decide the outcome, gather the rest."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve

from workerdiag.deadline import NO_DEADLINE, Deadline
from workerdiag.model.diagnosis import Death, Findings, Match, RankedCause, UnlistedDeaths
from workerdiag.model.evidence import Gap, MemoryReading
from workerdiag.model.incident import Incident, NameIndex
from workerdiag.model.memory import Cure, MemoryAccount
from workerdiag.model.process_end import ProcessEnd
from workerdiag.model.rules import Rulebook
from workerdiag.model.vocabulary import Outcome
from workerdiag.redaction.objects import redact_object
from workerdiag.scoring.advice import ClusterSetup, MemoryNumbers, cluster_setup, memory_numbers, mitigations
from workerdiag.scoring.all_clear import AllClearObstacles, all_clear_obstacles
from workerdiag.scoring.blame_and_retry import blame, decision, is_of_memory, retry_policy
from workerdiag.scoring.cures import cure_advice, numbers_for_reason, suggested_cures
from workerdiag.scoring.evaluate import EvaluatedCase, deciding_cases, evaluate_cases
from workerdiag.scoring.failures import is_callers_own, split_exception, task_failure
from workerdiag.scoring.findings import clues, death_of_end, factors, fingerprint, ranked_cause, unchecked_absences
from workerdiag.scoring.memory_account import (
    REFUSED_INPUTS,
    Workload,
    memory_account,
    with_deaths_of_siblings,
    with_seen_copies,
)
from workerdiag.scoring.memory_reason import memory_reasons
from workerdiag.scoring.next_steps import next_steps
from workerdiag.scoring.present import present_of
from workerdiag.scoring.probabilities import Distribution, weighted_mean
from workerdiag.scoring.question import question_of, split_cases
from workerdiag.scoring.summary import (
    LostWorkers,
    deaths_beyond_cases,
    listed,
    losses_beyond_cases,
    separate_matter,
    summary,
)
from workerdiag.scoring.timeline_assembly import make_timeline


def conclude(
    incident: Incident,
    book: Rulebook,
    *,
    gaps: Sequence[Gap],
    notes: Sequence[str] = (),
    version: str,
    deadline: Deadline = NO_DEADLINE,
) -> Findings:
    """All findings about *incident* that *book* allows, within the *deadline*."""
    others = split_cases(incident)
    evaluated = evaluate_cases(others.cases, others, book, deadline)
    question = question_of(incident, evaluated, book)
    incident = evolve(incident, deaths_are_separate=question.deaths_are_separate)
    in_question = question.ends
    deciding = deciding_cases(in_question, question.scope, book)
    is_own = is_callers_own(incident)
    # the less is known of a death the less it counts; the first counts double: others may follow from it
    weights = (
        (2.0 if each is deciding[0] else 1.0) * max(0.01, 1.0 - each.chances.unknown) ** 2 for each in deciding
    )
    chances = weighted_mean([(weight, each.chances) for weight, each in zip(weights, deciding, strict=True)])
    if is_own:  # what a rule knows of its words is about workers
        chances = Distribution()
    # an explained incident needs no all-clear
    seen = split_exception(incident)[1] if is_own else incident
    obstacles = AllClearObstacles() if chances.explanation else all_clear_obstacles(seen, gaps, book)
    outcome = _outcome(chances, incident, obstacles)
    own = _without_memory_of(_separate_ends(evaluated, in_question, chances), incident)
    numbers = memory_numbers(own, [match for each in deciding for match in each.matches])
    setting = cluster_setup(incident)
    death_of = {
        id(each.end): death_of_end(each.end, each.chances.explanation, incident, each.matches)
        for each in evaluated
        if each.end is not None  # as all have
    }
    deaths = listed(tuple(death_of.values()))
    beyond = deaths_beyond_cases(incident, gaps)
    lost_beyond = losses_beyond_cases(incident, gaps)
    unexpected = [each for each in in_question if each.is_unexpected]
    lost = [death_of[id(each.end)] for each in unexpected]
    account, cures = _memory_and_cures(incident, chances, lost, numbers, book, setting)
    if account and (account.reason or cures):
        numbers = numbers_for_reason(numbers, account.reasons[0].reason, cures)
    ranked: tuple[RankedCause, ...] = ()
    if outcome not in ("no-death", "no-evidence"):
        ranked = _rank_causes(chances, deciding, incident, numbers, setting)
        advice = tuple(map(cure_advice, cures))
        ranked = tuple(evolve(each, mitigations=(*advice, *each.mitigations)) for each in ranked[:1]) + ranked[1:]
    lost_workers = LostWorkers(
        deaths=lost,
        beyond=lost_beyond if incident.about or len(in_question) == len(evaluated) else UnlistedDeaths(),
        all_evaluated=all(each.is_evaluated for each in unexpected),
    )
    verdict = redact_object(blame(ranked, book, question.scope))
    decided = decision(ranked, book, verdict, numbers, cures)
    ends = {id(each.end): each.end for each in (*in_question, *evaluated)}
    findings = Findings(
        outcome=outcome,
        summary=summary(outcome, ranked, deaths, lost_workers, incident, obstacles)
        + separate_matter(incident, [death_of[id(each.end)] for each in evaluated if each.is_unexpected], book),
        causes=ranked,
        unknown_probability=min(1.0, max(0.0, 1.0 - sum(each.probability for each in ranked))),
        deaths=deaths,
        blame=verdict,
        next_steps=next_steps(outcome, ranked, book, incident, setting, obstacles),
        gaps=tuple(gaps),
        decision=evolve(decided, policy=retry_policy(ranked, book, verdict, lost, numbers)),
        fingerprint=fingerprint(outcome, ranked, lost, verdict.task),
        knowledge=book.release,
        version=version,
        notes=tuple(notes),
        acts=tuple(each["text"] for each in incident.fields_of("rescue")),
        failure=task_failure(incident),
        deaths_are_separate=incident.deaths_are_separate or (is_own and outcome == "unknown"),
        present=None if is_own else present_of(incident),
        churn=question.churn,
        timeline=make_timeline([end for end in ends.values() if end], incident),
        unlisted_deaths=evolve(beyond, count=beyond.count + len(death_of) - len(deaths)),
        memory=account,
        cures=cures,
    )
    findings = redact_object(findings)  # the one border: whatever shows findings shows no secret
    first_gaps = {(each.source, each.reason, each.detail): each for each in reversed(findings.gaps)}
    return evolve(findings, gaps=tuple(first_gaps.values())[::-1])


def _separate_ends(
    evaluated: Sequence[EvaluatedCase], in_question: Sequence[EvaluatedCase], chances: Distribution
) -> list[ProcessEnd]:
    """The ends that are not in question, and not of the same cause."""
    own = {id(each.end) for each in in_question}
    others = (each for each in evaluated if id(each.end) not in own and each.chances.cause_id)
    return [each.end for each in others if each.end and each.chances.cause_id != chances.cause_id]


def _without_memory_of(ends: Sequence[ProcessEnd], incident: Incident) -> Incident:
    """The *incident* without what is told of the memory of these."""
    if not ends:
        return incident
    index = NameIndex.by_identity(ends)

    def is_of_others(told: Match | MemoryReading) -> bool:
        known = (each for end in index.find(told.identity) for each in end.identities)
        return any(map(told.identity.same_process, known))

    return evolve(
        incident,
        marks=tuple(each for each in incident.marks if not is_of_others(each)),
        readings=tuple(each for each in incident.readings if not is_of_others(each)),
    )


def _memory_and_cures(
    incident: Incident,
    chances: Distribution,
    lost: Sequence[Death],
    numbers: MemoryNumbers,
    book: Rulebook,
    setting: ClusterSetup,
) -> tuple[MemoryAccount | None, tuple[Cure, ...]]:
    cause = book.cause(chances.cause_id)
    is_refused = (incident.asked is not None and incident.asked.name == "refused-inputs") or (
        cause is None and any(each.owner == REFUSED_INPUTS for each in incident.marks)
    )
    if not is_refused and (cause is None or not is_of_memory(cause)):
        return None, ()
    work = with_deaths_of_siblings(with_seen_copies(incident, Workload.of(incident), lost), lost)
    account = memory_reasons(memory_account(incident, work, numbers, lost), work, len(lost), book.reasons)
    return account, suggested_cures(account, work, setting.deployment, book.reasons)


def _outcome(chances: Distribution, incident: Incident, obstacles: AllClearObstacles) -> Outcome:
    if chances.explanation:
        return "explained"
    if not (obstacles.is_recognised or obstacles.lacks_cluster_answer or obstacles.is_cut_short):
        return "no-evidence"
    if obstacles.bars:
        return "unknown"
    if not incident.cases and chances.unknown < 0.5:  # several weak candidates, but together likely
        return "unknown"
    return "no-death"


def _rank_causes(
    chances: Distribution,
    deciding: Sequence[EvaluatedCase],
    incident: Incident,
    numbers: MemoryNumbers,
    setting: ClusterSetup,
) -> tuple[RankedCause, ...]:
    ranked = []
    for cause_id, chance in sorted(chances.chances.items(), key=lambda item: (-item[1], item[0])):
        own = [each for evaluated in deciding for each in evaluated.cause_scores if each.cause.id == cause_id]
        likeliest = max(deciding, key=lambda each: each.chances.chances.get(cause_id, 0.0))
        score = next(each for each in likeliest.cause_scores if each.cause.id == cause_id)
        cause = score.cause
        ranked.append(
            evolve(
                ranked_cause(cause, chance, own),
                against=clues([seen for each in own for seen in each.against]),
                unchecked=unchecked_absences(cause, incident),
                mitigations=mitigations(cause, numbers, [m for each in own for m in each.matches], setting),
                references=cause.references,
                factors=factors(score, likeliest.cause_scores, likeliest.chances.chances[cause_id], chance),
            )
        )
    return tuple(ranked)
