"""How much a sign of each grade really speaks for its cause, on incidents whose cause is known.

In how many incidents of a cause a sign of that grade counted for it, against how many of the other
incidents: their ratio is what the grade claims to be (`workerdiag.model.odds.GRADES`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp, log, sqrt

from attrs import define, frozen

from workerdiag.authoring.rule_tests import KnownIncident, evidence_of
from workerdiag.correlation.assemble import assemble
from workerdiag.correlation.clock_sync import synchronize_clocks
from workerdiag.matching.match import match
from workerdiag.matching.scan import Matcher
from workerdiag.model.incident import Case
from workerdiag.model.odds import GRADES
from workerdiag.model.rules import Rulebook
from workerdiag.scoring.evaluate import evaluate_cases
from workerdiag.scoring.probabilities import CauseScore

#: Standard errors that 95 of 100 true values lie within.
_WIDTH = 1.96


@frozen(kw_only=True)
class Ratio:
    """A measured likelihood ratio, and the interval that holds the true one 95 times in 100."""

    value: float
    low: float
    high: float


@frozen(kw_only=True)
class RestsOn:
    """What the first cause of an answer rests on."""

    #: Grade of its strongest sign.
    grade: str
    #: Facts that speak for it, hints aside.
    fact_count: int
    is_end_known: bool


@define
class Counted:
    """How often signs of one grade counted; each pair is an incident with a cause that has such signs."""

    true_pairs: int = 0
    true_shown: int = 0
    false_pairs: int = 0
    false_shown: int = 0

    def add(self, *, true: bool, shown: bool) -> None:
        """Count one pair: whether it is the incident's cause, and whether such a sign counted for it."""
        if true:
            self.true_pairs += 1
            self.true_shown += shown
        else:
            self.false_pairs += 1
            self.false_shown += shown

    @property
    def ratio(self) -> Ratio:
        """The ratio of the two shares, with half a pair added to each count so that none is zero.

        The interval is that of Katz and others (Biometrics 34, 1978) for a ratio of two shares.
        """
        true, false = self.true_shown + 0.5, self.false_shown + 0.5
        value = (true / (self.true_pairs + 1)) / (false / (self.false_pairs + 1))
        error = sqrt(1 / true - 1 / (self.true_pairs + 1) + 1 / false - 1 / (self.false_pairs + 1))
        return Ratio(value=value, low=value * exp(-_WIDTH * error), high=value * exp(_WIDTH * error))


def graded(incidents: Sequence[KnownIncident], book: Rulebook, matcher: Matcher) -> dict[str, Counted]:
    """The counts for each grade, over all *incidents* whose cause can be told.

    What the true cause explains (`explains` in its rule) is left out: its signs are expected there.
    """
    counts = {grade: Counted() for grade in GRADES}
    causes = [cause for cause in book.causes if cause.status != "deprecated"]
    for incident in tellable(incidents):
        true = set(incident.expected)
        expected = explained_by(true, book)
        shown = _grades_that_counted(incident, book, matcher)
        for cause in causes:
            if cause.id in expected - true:
                continue
            for grade in {sign.grade for sign in cause.signs}:
                counts[grade].add(true=cause.id in true, shown=grade in shown.get(cause.id, ()))
    return counts


def tellable(incidents: Iterable[KnownIncident]) -> list[KnownIncident]:
    """Those of *incidents* whose label is not "unknown": of the others nobody knows what is false."""
    return [each for each in incidents if "unknown" not in each.expected]


def explained_by(causes: Iterable[str], book: Rulebook) -> set[str]:
    """Everything that *causes* explain, directly or through others."""
    reached: set[str] = set()
    ahead = list(causes)
    while ahead:
        cause = book.cause(ahead.pop())
        new = set(cause.explains if cause else ()) - reached
        reached |= new
        ahead += new
    return reached


def supporting(cause_id: str, incident: KnownIncident, book: Rulebook, matcher: Matcher) -> RestsOn | None:
    """What *cause_id* rests on in that death of *incident* in which most speaks for it."""
    own = [each for each in _supports(incident, book, matcher) if each.cause.id == cause_id]
    best = max(own, key=lambda support: sum(support.facts), default=None)
    if best is None:
        return None
    return RestsOn(
        grade=max((seen.sign.grade for seen in best.evidence), key=lambda grade: GRADES[grade]),
        fact_count=sum(fact > log(GRADES["hint"]) for fact in best.facts),
        is_end_known=best.is_end_known,
    )


def _grades_that_counted(incident: KnownIncident, book: Rulebook, matcher: Matcher) -> dict[str, set[str]]:
    """For each cause, the grades of signs that counted for it in any death of *incident*."""
    shown: dict[str, set[str]] = {}
    for support in _supports(incident, book, matcher):
        shown.setdefault(support.cause.id, set()).update(_strongest(support))
    return shown


def _supports(incident: KnownIncident, book: Rulebook, matcher: Matcher) -> list[CauseScore]:
    """What speaks for each cause, in any death of *incident*."""
    evidence = list(evidence_of(incident.logs))
    matches, _ = synchronize_clocks(match(evidence, book, matcher))
    found = assemble(matches, evidence)
    judged = evaluate_cases(found.cases, found, book) + evaluate_cases((Case(end=None),), found, book)
    return [support for each in judged for support in each.cause_scores]


def _strongest(support: CauseScore) -> Iterable[str]:
    """The grade that each fact counts with: that of its strongest sign."""
    strongest: dict[str, str] = {}
    for seen in support.evidence:
        fact = seen.sign.fact or seen.sign.name
        before = strongest.get(fact)
        if before is None or GRADES[seen.sign.grade] > GRADES[before]:
            strongest[fact] = seen.sign.grade
    return strongest.values()
