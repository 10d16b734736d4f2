"""
What speaks for each cause in each death, and which deaths the ranking rests on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import frozen

from workerdiag.deadline import NO_DEADLINE, Deadline
from workerdiag.model.diagnosis import Match
from workerdiag.model.identity import Identity
from workerdiag.model.incident import Case, Incident
from workerdiag.model.rules import Rulebook
from workerdiag.model.vocabulary import MatchRole
from workerdiag.scoring.cause_scoring import CauseScoring, by_owner
from workerdiag.scoring.distribution import CauseScore, Distribution, distribution
from workerdiag.scoring.findings import assigned_tasks
from workerdiag.scoring.relevance import Relevance

_MARKS_OF_AN_END: tuple[MatchRole, ...] = (
    "death",
    "self-closed",
    "removal",
    "restart",
    "blame",
    "trouble",
    "disconnect",
    "exit-report",
)
#: A crash loop of thousands of deaths says no more than its first and last hundreds.
MAX_EVALUATED = 200
#: So many deaths are judged however late it is.
MIN_EVALUATED = 3


@frozen(kw_only=True, eq=False)
class EvaluatedCase:
    """
    One case with what speaks for each cause in it; equal to itself alone.
    """

    case: Case
    cause_scores: tuple[CauseScore, ...]
    chances: Distribution
    #: Whether what speaks for each cause was looked for.
    is_judged: bool = True

    @property
    def matches(self) -> list[Match]:
        """
        Where what speaks for any cause was seen.
        """
        return [match for each in self.cause_scores for match in each.matches]


def evaluate_cases(
    cases: Iterable[Case], incident: Incident, book: Rulebook, deadline: Deadline = NO_DEADLINE
) -> list[EvaluatedCase]:
    """
    What speaks for each cause in each case, with the signs that nobody else claims.

    Of very many deaths only the first and the last are judged; those between are as they are, and so are
    all but the first few where time is up.
    """
    marks = by_owner(incident.marks)
    relevance = Relevance(incident, marks, book)
    scoring = CauseScoring(book, marks, incident.inspected)
    cases = list(cases)
    between = range(MAX_EVALUATED // 2, len(cases) - MAX_EVALUATED // 2)
    return [
        EvaluatedCase(case=case, cause_scores=(), chances=Distribution(), is_judged=False)
        if index in between or (index >= MIN_EVALUATED and deadline.is_over)
        else _evaluate_case(case, incident, relevance, scoring)
        for index, case in enumerate(cases)
    ]


def _evaluate_case(
    case: Case, incident: Incident, relevance: Relevance, scoring: CauseScoring
) -> EvaluatedCase:
    found = tuple(
        each
        for each in scoring.scores(relevance.of(case), case.end)
        if case.end is not None or not _is_only_warning(each, incident)
    )
    return EvaluatedCase(case=case, cause_scores=found, chances=distribution(found))


def _is_only_warning(support: CauseScore, incident: Incident) -> bool:
    """
    Whether a cause that kills is only hinted at while nothing at all has died.
    """
    return (
        support.cause.ends in ("killed", "crashed")
        and all(seen.sign.grade in ("weak", "hint") for seen in support.evidence)
        and not any(mark.role in _MARKS_OF_AN_END for mark in incident.marks)
    )


def deaths_in_question(evaluated: Sequence[EvaluatedCase], incident: Incident) -> Sequence[EvaluatedCase]:
    """
    The deaths that the ranking rests on: those that the caller names, else those of the task.
    """
    named = [
        each
        for each in evaluated
        if (end := each.case.end) is not None
        and any(end.same_process(identity) for identity in incident.about)
    ]
    return named or deaths_of_the_task(evaluated, incident)


def deaths_of_the_task(evaluated: Sequence[EvaluatedCase], incident: Incident) -> Sequence[EvaluatedCase]:
    """
    The deaths that the caught exception is about, where it says; else all.

    Other deaths of the last minutes may belong to another incident. Dask gives a task up at one unexpected
    death more than ``allowed-failures``: earlier ones under a task of that name are of an earlier call.
    """
    killed = next((each for each in incident.exceptions if each.task), None)
    if killed is None or killed.task is None:
        return evaluated
    about = [each for each in evaluated if _is_about_task(each, killed.task, killed.identity)]
    if killed.allowed_failures is not None:
        about = _latest(about, killed.allowed_failures + 1)
    return about or evaluated


def _latest(evaluated: list[EvaluatedCase], count: int) -> list[EvaluatedCase]:
    """
    Those from the last so many unexpected deaths on; all, where the time of one is not known.
    """
    times = [end.when for each in evaluated if (end := each.case.end) and end.when is not None]
    unexpected = sorted(when for each, when in zip(evaluated, times, strict=False) if is_unexpected(each))
    count = max(count, 1)  # whatever the exception says
    if count >= len(unexpected) or len(times) < len(evaluated):
        return evaluated
    first = unexpected[-count]
    return [each for each, when in zip(evaluated, times, strict=True) if when >= first]


def _is_about_task(evaluated: EvaluatedCase, task: str, identity: Identity) -> bool:
    end = evaluated.case.end
    return end is not None and (end.same_process(identity) or task in assigned_tasks(end.marks))


def deciding_cases(
    in_question: Sequence[EvaluatedCase], incident: Incident, book: Rulebook
) -> Sequence[EvaluatedCase]:
    """
    What the ranking rests on: the deaths that decide, else what no death claims.

    Where nobody asks about a death and none is explained, it is that work stands still, if it does.
    """
    deaths = deciding_deaths(in_question)
    names_death = incident.about or any(each.task or each.identity.worker for each in incident.exceptions)
    if deaths and (names_death or any(is_explained(each.chances) for each in deaths)):
        return deaths
    left_over = evaluate_cases([Case(end=None)], incident, book)
    best = left_over[0].chances.best if is_explained(left_over[0].chances) else None
    cause = book.cause(best[0]) if best else None
    return left_over if not deaths or (cause and cause.ends == "standstill") else deaths


def deciding_deaths(evaluated: Sequence[EvaluatedCase]) -> list[EvaluatedCase]:
    """
    The deaths that the ranking rests on: those nobody asked for, else all.
    """
    crashes = [each for each in evaluated if is_unexpected(each)]
    clear = [each for each in crashes if is_explained(each.chances)]
    return clear or crashes or [each for each in evaluated if is_explained(each.chances)] or list(evaluated)


def is_unexpected(evaluated: EvaluatedCase) -> bool:
    """
    Whether this is a death that nobody asked for.
    """
    end = evaluated.case.end
    return end is not None and end.unexpected


def is_explained(chances: Distribution) -> bool:
    """
    Whether the likeliest cause is likelier than unknown.
    """
    best = chances.best
    return best is not None and best[1] > chances.unknown
