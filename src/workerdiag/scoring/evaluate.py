"""
What speaks for each cause in each death, and which deaths the ranking rests on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from attrs import frozen

from workerdiag.correlation.incident import Case, Incident
from workerdiag.model.evidence import Identity
from workerdiag.model.rules import Cause, Rulebook
from workerdiag.scoring.distribution import (
    Distribution,
    Marks,
    Support,
    by_owner,
    considered,
    distribution,
    supports,
)
from workerdiag.scoring.findings import assigned
from workerdiag.scoring.relevance import Relevance

_MARKS_OF_AN_END = ("death", "ended", "removal", "restart", "blame", "trouble", "disconnect")
#: A crash loop of thousands of deaths says no more than its first and last hundreds.
MOST_JUDGED = 200
#: So many deaths are judged however late it is.
LEAST_JUDGED = 3


@frozen(kw_only=True)
class Judged:
    """
    One case with what speaks for each cause in it.
    """

    case: Case
    supports: tuple[Support, ...]
    chances: Distribution


def judge(
    cases: Iterable[Case], incident: Incident, book: Rulebook, out_of_time: Callable[[], bool] = lambda: False
) -> list[Judged]:
    """
    What speaks for each cause in each case, with the signs that nobody else claims.

    Of very many deaths only the first and the last are judged; those between are as they are, and so are
    all but the first few where time is up.
    """
    marks = by_owner(incident.marks)
    relevance = Relevance(incident, marks, book)
    causes = considered(book)
    cases = list(cases)
    between = range(MOST_JUDGED // 2, len(cases) - MOST_JUDGED // 2)
    return [
        Judged(case=case, supports=(), chances=Distribution())
        if index in between or (index >= LEAST_JUDGED and out_of_time())
        else _judge(case, incident, marks, relevance, causes)
        for index, case in enumerate(cases)
    ]


def _judge(
    case: Case,
    incident: Incident,
    marks: Marks,
    relevance: Relevance,
    causes: Iterable[tuple[Cause, bool]],
) -> Judged:
    signs = relevance.of(case)
    found = tuple(
        each
        for each in supports(causes, signs, marks, case.end, incident.looked)
        if case.end is not None or not _only_foreboding(each, incident)
    )
    return Judged(case=case, supports=found, chances=distribution(found))


def _only_foreboding(support: Support, incident: Incident) -> bool:
    """
    Whether a cause that kills is only hinted at while nothing at all has died.
    """
    return (
        support.cause.ends in ("killed", "crashed")
        and all(seen.sign.grade in ("weak", "hint") for seen in support.shown)
        and not any(mark.role in _MARKS_OF_AN_END for mark in incident.marks)
    )


def deaths_of_the_task(judged: Sequence[Judged], incident: Incident) -> Sequence[Judged]:
    """
    The deaths that the caught exception is about, where it says; else all.

    Other deaths of the last minutes may belong to another incident.
    """
    killed = next((each for each in incident.exceptions if each.task), None)
    if killed is None or killed.task is None:
        return judged
    return [each for each in judged if _concerns(each, killed.task, killed.whose)] or judged


def _concerns(judged: Judged, task: str, whose: Identity) -> bool:
    end = judged.case.end
    return end is not None and (end.shares(whose) or task in assigned(end.marks))


def deciding_deaths(judged: Sequence[Judged]) -> list[Judged]:
    """
    The deaths that the ranking rests on: those nobody asked for, else all.
    """
    crashes = [each for each in judged if unasked(each)]
    clear = [each for each in crashes if is_explained(each.chances)]
    return clear or crashes or [each for each in judged if is_explained(each.chances)] or list(judged)


def unasked(judged: Judged) -> bool:
    """
    Whether this is a death that nobody asked for.
    """
    end = judged.case.end
    return end is not None and end.lost and not end.asked


def is_explained(chances: Distribution) -> bool:
    """
    Whether the likeliest cause is likelier than unknown.
    """
    best = chances.best
    return best is not None and best[1] > chances.unknown
