"""How much a sign of each grade really speaks for its cause, on incidents whose cause is known.

In how many incidents of a cause a sign of that grade counted for it, against how many of the other
incidents: their ratio is what the grade claims to be (`workerdiag.model.odds.GRADES`). What stands beside a
stronger sign of its cause is counted apart: there the company says most of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import exp, log, sqrt

from attrs import Factory, define, frozen

from workerdiag.authoring.rule_tests import KnownIncident, evidence_of
from workerdiag.correlation.assemble import assemble
from workerdiag.correlation.clock_sync import synchronize_clocks
from workerdiag.matching.match import search
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
    #: The standard error of its logarithm.
    error: float

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        return self.value * exp(-_WIDTH * self.error)

    @property
    def high(self) -> float:
        """The upper end of the interval."""
        return self.value * exp(_WIDTH * self.error)

    def __str__(self) -> str:
        digits = int(self.value < 10)  # of small ratios the first decimal tells
        return f"{self.value:.{digits}f} ({self.low:.{digits}f} to {self.high:.{digits}f})"


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
        return Ratio(value=value, error=error)


@define
class GradeCounts:
    """How often signs of one grade counted: in all pairs, and by whether a stronger sign of the cause showed."""

    grade: str
    all: Counted = Factory(Counted)
    alone: Counted = Factory(Counted)
    beside: Counted = Factory(Counted)

    def add(self, *, true: bool, shown: Iterable[str]) -> None:
        """Count one pair, given the grades that counted for the cause."""
        has_stronger = any(GRADES[each] > GRADES[self.grade] for each in shown)
        for counted in (self.all, self.beside if has_stronger else self.alone):
            counted.add(true=true, shown=self.grade in shown)

    @property
    def ratio(self) -> Ratio:
        """What a sign of this grade is worth by itself.

        A hint never stands alone. A weak sign does so now and then: one number stands for both, their
        geometric mean. Of the others nearly all that count are the strongest of their cause.
        """
        if self.grade == "hint":
            return self.beside.ratio
        if self.grade == "weak":
            alone, beside = self.alone.ratio, self.beside.ratio
            return Ratio(value=sqrt(alone.value * beside.value), error=sqrt(alone.error**2 + beside.error**2) / 2)
        return self.all.ratio


#: For each cause that shows in an incident, the grades of the signs that counted for it.
Shown = Mapping[str, set[str]]


def graded(shown: Sequence[tuple[KnownIncident, Shown]], book: Rulebook) -> dict[str, GradeCounts]:
    """The counts for each grade, over all incidents whose cause can be told, with what `shown_grades` says.

    What the true cause explains (`explains` in its rule) is left out: its signs are expected there.
    """
    counts = {grade: GradeCounts(grade=grade) for grade in GRADES}
    causes = [cause for cause in book.causes if cause.status != "deprecated"]
    for incident, grades in shown:
        true = set(incident.expected)
        if "unknown" in true:
            continue
        expected = explained_by(true, book)
        for cause in causes:
            if cause.id in expected - true:
                continue
            for grade in {sign.grade for sign in cause.signs}:
                counts[grade].add(true=cause.id in true, shown=grades.get(cause.id, ()))
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


def shown_grades(incident: KnownIncident, book: Rulebook, matcher: Matcher) -> Shown:
    """For each cause, the grades of signs that counted for it in any death of *incident*."""
    shown: dict[str, set[str]] = {}
    for support in _supports(incident, book, matcher):
        shown.setdefault(support.cause.id, set()).update(_strongest(support))
    return shown


def _supports(incident: KnownIncident, book: Rulebook, matcher: Matcher) -> list[CauseScore]:
    """What speaks for each cause, in any death of *incident*."""
    evidence = list(evidence_of(incident.logs))
    matches, _ = synchronize_clocks(search(evidence, book, matcher).matches)
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
