"""Evaluate deaths: the evidence for each cause in each, the deaths that decide the ranking, and each by itself."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence

from workerdiag.deadline import NO_DEADLINE, Deadline
from workerdiag.model.diagnosis import SURE_ENOUGH, Blame, Findings, Match
from workerdiag.model.identity import Identity
from workerdiag.model.incident import Case, Incident
from workerdiag.model.process_end import ProcessEnd
from workerdiag.model.rules import Rulebook
from workerdiag.model.vocabulary import MatchRole
from workerdiag.redaction.objects import redact_object
from workerdiag.scoring.findings import assigned_tasks, death_of_end, fingerprint, ranked_cause
from workerdiag.scoring.probabilities import CauseScore, CauseScoring, Distribution, distribution
from workerdiag.scoring.relevance import Relevance
from workerdiag.values import evolve, frozen

_MARKS_OF_AN_END: frozenset[MatchRole] = frozenset(
    ("death", "self-closed", "removal", "restart", "blame", "trouble", "disconnect", "exit-report")
)
#: Deaths evaluated at most: the first and last hundreds of a crash loop say as much as all.
MAX_EVALUATED = 200
#: Deaths that are evaluated even after the deadline.
MIN_EVALUATED = 3


@frozen(kw_only=True, eq=False)
class EvaluatedCase:
    """One death, or what no death claims, with the evidence for each cause in it. Compared by identity."""

    #: The death; None for the signs that no death claims.
    end: ProcessEnd | None
    cause_scores: tuple[CauseScore, ...]
    chances: Distribution
    #: False if the deadline or the number of deaths left it out.
    is_evaluated: bool = True

    @property
    def matches(self) -> list[Match]:
        """The matches of all evidence for any cause."""
        return [match for each in self.cause_scores for match in each.matches]

    def is_of(self, identity: Identity) -> bool:
        """Whether it is the death of that process."""
        return self.end is not None and self.end.same_process(identity)

    @property
    def is_unexpected(self) -> bool:
        """Whether it is a death that nobody requested."""
        return self.end is not None and self.end.unexpected


def evaluate_cases(
    cases: Sequence[Case], incident: Incident, book: Rulebook, deadline: Deadline = NO_DEADLINE
) -> list[EvaluatedCase]:
    """The evidence in each case, of at most `MAX_EVALUATED` deaths, the first and last; of few once it is late."""
    evaluator = _Evaluator(incident, book)
    between = range(MAX_EVALUATED // 2, len(cases) - MAX_EVALUATED // 2)
    return [
        EvaluatedCase(end=case.end, cause_scores=(), chances=Distribution(), is_evaluated=False)
        if index in between or (index >= MIN_EVALUATED and deadline.is_over)
        else evaluator.evaluated(case.end, case.signs)
        for index, case in enumerate(cases)
    ]


def evaluate_unclaimed(incident: Incident, book: Rulebook) -> EvaluatedCase:
    """The evidence in the signs that no death claims."""
    return _Evaluator(incident, book).evaluated(None)


class _Evaluator:
    def __init__(self, incident: Incident, book: Rulebook) -> None:
        self._incident = incident
        self._relevance = Relevance(incident, book)
        self._scoring = CauseScoring(book, incident.marks_by_owner, incident.inspected)

    def evaluated(self, end: ProcessEnd | None, signs: Sequence[Match] = ()) -> EvaluatedCase:
        """A death with its own *signs*, and the evidence for each cause."""
        found = tuple(
            each
            for each in self._scoring.scores(self._relevance.of(end, signs), end)
            if end is not None or not _is_only_warning(each, self._incident)
        )
        return EvaluatedCase(end=end, cause_scores=found, chances=distribution(found))


def _is_only_warning(support: CauseScore, incident: Incident) -> bool:
    """Whether only hints suggest a cause that kills, and nothing has died."""
    is_hint = all(seen.sign.grade in ("weak", "hint") for seen in support.evidence)
    is_deadly = support.cause.ends in ("killed", "crashed")
    return is_deadly and is_hint and not any(mark.role in _MARKS_OF_AN_END for mark in incident.marks)


def narrowed_case(evaluated: EvaluatedCase, admitted: Container[str]) -> EvaluatedCase:
    """The case with those causes alone that may answer the question."""
    scores = tuple(each for each in evaluated.cause_scores if each.cause.id in admitted)
    if scores == evaluated.cause_scores:
        return evaluated
    return evolve(evaluated, cause_scores=scores, chances=distribution(scores))


def deaths_in_question(evaluated: Sequence[EvaluatedCase], incident: Incident) -> Sequence[EvaluatedCase]:
    """The deaths that decide the ranking: those that the caller names, else those of the task, else all."""
    named = [each for each in evaluated if any(map(each.is_of, incident.about))]
    return named or _deaths_of_the_task(evaluated, incident) or evaluated


def _deaths_of_the_task(evaluated: Sequence[EvaluatedCase], incident: Incident) -> Sequence[EvaluatedCase]:
    """The deaths that the caught exception is about; empty if it does not say.

    Other deaths of the last minutes may belong to another incident. Dask gives up on a task after one more
    unexpected death than ``allowed-failures``; earlier ones belong to an earlier call.
    """
    killed = next((each for each in incident.exceptions if each.task), None)
    if killed is None:
        return ()
    about = [
        each
        for each in evaluated
        if each.is_of(killed.identity) or (each.end and killed.task in assigned_tasks(each.end.marks))
    ]
    if killed.allowed_failures is None:
        return about
    count = killed.allowed_failures + 1
    return _latest(about, count) if len(about) >= count else [*about, *_deaths_of_no_task(evaluated, about, count)]


def _deaths_of_no_task(
    evaluated: Sequence[EvaluatedCase], about: Sequence[EvaluatedCase], count: int
) -> Sequence[EvaluatedCase]:
    """The latest deaths that make *about* up to *count*, where it explains nothing and they agree on the cause.

    Dask says how many workers the task has cost. Where the scheduler was too busy to tell which, deaths of which no
    task is known are those.
    """
    if not about or any(each.chances.explanation for each in about):
        return ()
    others = [each for each in evaluated if each.is_unexpected and each not in about]
    if any(each.end is None or assigned_tasks(each.end.marks) for each in others):
        return ()
    others = sorted(others, key=lambda each: (each.end and each.end.when) or 0.0)[-(count - len(about)) :]
    causes = {each.chances.cause_id for each in others}
    return others if len(about) + len(others) == count and len(causes) == 1 else ()


def _latest(evaluated: list[EvaluatedCase], count: int) -> list[EvaluatedCase]:
    """The deaths since the first of the last *count* unexpected ones; all if one has no time."""
    times = [end.when for each in evaluated if (end := each.end) and end.when is not None]
    unexpected = sorted(when for each, when in zip(evaluated, times, strict=False) if each.is_unexpected)
    count = max(count, 1)  # whatever the exception says
    if count >= len(unexpected) or len(times) < len(evaluated):
        return evaluated
    first = unexpected[-count]
    return [each for each, when in zip(evaluated, times, strict=True) if when >= first]


def deciding_cases(
    in_question: Sequence[EvaluatedCase], incident: Incident, book: Rulebook
) -> Sequence[EvaluatedCase]:
    """The cases that decide the ranking: unexpected deaths, explained first, else all, else unclaimed signs."""
    crashes = [each for each in in_question if each.is_unexpected]
    deaths = _explained(crashes) or crashes or _explained(in_question) or list(in_question)
    names_death = incident.about or any(each.task or each.identity.worker for each in incident.exceptions)
    if deaths and (names_death or _explained(deaths)):
        return deaths
    left_over = evaluate_unclaimed(incident, book)
    cause = book.cause(left_over.chances.cause_id)
    return [left_over] if not deaths or (cause and cause.ends == "standstill") else deaths


def _explained(evaluated: Iterable[EvaluatedCase]) -> list[EvaluatedCase]:
    return [each for each in evaluated if each.chances.explanation]


def evaluate_deaths(incident: Incident, book: Rulebook) -> Iterator[tuple[ProcessEnd, Findings]]:
    """Every death of *incident* by itself, oldest first: its end, and findings with its likeliest cause alone."""
    evaluator = _Evaluator(incident, book)
    for case in incident.cases:
        yield case.end, _findings(evaluator.evaluated(case.end, case.signs), case.end, incident)


def _findings(evaluated: EvaluatedCase, end: ProcessEnd, incident: Incident) -> Findings:
    best = evaluated.chances.explanation
    death = death_of_end(end, best, incident, evaluated.matches)
    task = next(iter(assigned_tasks(end.marks)), None)
    if best is None:
        found = Findings(outcome="unknown", summary="", deaths=(death,))
    else:
        scores = [each for each in evaluated.cause_scores if each.cause.id == best[0]]
        rule = scores[0].cause
        blame = Blame(verdict=rule.blame if best[1] >= SURE_ENOUGH else "unknown")
        causes = (ranked_cause(rule, best[1], scores),)
        found = Findings(outcome="explained", summary="", deaths=(death,), causes=causes, blame=blame)
    return evolve(redact_object(found), fingerprint=fingerprint(found.outcome, found.causes, found.deaths, task))
