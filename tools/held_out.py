"""How right the answers are out of sample, and by channel.

Rules and ratios know the labelled incidents, so these are also judged with ratios that were measured on incidents
of other families alone, and with less knowledge: without the sign that an answer rests on, or without its cause,
as if the trouble were a new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import sqrt
from typing import cast

from attrs import evolve, frozen
from grading import Shown, explained_by, graded

from workerdiag.authoring.rule_tests import KnownIncident, evidence_of
from workerdiag.bundle.bundle_file import bundle_evidence
from workerdiag.matching.scan import Matcher
from workerdiag.model.diagnosis import Findings, findings_answer
from workerdiag.model.evidence import Evidence
from workerdiag.model.odds import GRADES, LONE_GRADES
from workerdiag.model.rules import Rulebook
from workerdiag.pipeline import diagnose

CHANNELS = ("terminal", "live", "recorder", "logs")
#: Standard errors that 95 of 100 true values lie within.
_WIDTH = 1.96


@frozen(kw_only=True)
class Verdict:
    """What was said of one incident; without a probability if no cause was named."""

    incident: KnownIncident
    answer: str
    sure: float | None = None

    @property
    def right(self) -> bool:
        """Whether it is one of the expected answers."""
        return self.answer in self.incident.expected


def wilson(right: int, count: int) -> tuple[float, float]:
    """The interval that holds the true share 95 times in 100 (Wilson, J. Am. Stat. Assoc. 22, 1927)."""
    if not count:
        return 0.0, 1.0
    share, square = right / count, _WIDTH**2
    middle = share + square / (2 * count)
    spread = _WIDTH * sqrt(share * (1 - share) / count + square / (4 * count**2))
    return max(0.0, (middle - spread) / (1 + square / count)), min(1.0, (middle + spread) / (1 + square / count))


def family(incident: KnownIncident) -> str:
    """The family of the incident's cause, or the outcome that is expected."""
    return incident.expected[0].partition(".")[0]


def judged(incidents: Iterable[KnownIncident], book: Rulebook, matcher: Matcher) -> list[Verdict]:
    """A verdict on each incident, with all rules and the ratios in use."""
    return [_verdict(each, _explained(each, book, matcher)) for each in incidents]


def by_other_families(
    shown: Sequence[tuple[KnownIncident, Shown]], book: Rulebook, matcher: Matcher
) -> tuple[list[Verdict], dict[str, tuple[float, float]]]:
    """Verdicts on each family with the ratios that the other families show, and the range of each such ratio."""
    verdicts, fits = [], []
    for held_out in sorted({family(each) for each, _ in shown}):
        fit = fitted([pair for pair in shown if family(pair[0]) != held_out], book)
        fits.append(fit)
        with _ratios_used(fit):
            verdicts += judged([each for each, _ in shown if family(each) == held_out], book, matcher)
    ranges = {grade: (min(fit[grade] for fit in fits), max(fit[grade] for fit in fits)) for grade in GRADES}
    return verdicts, ranges


def fitted(shown: Sequence[tuple[KnownIncident, Shown]], book: Rulebook) -> dict[str, float]:
    """The ratio of each grade as these incidents show it, at least 1."""
    return {grade: max(1.0, counts.ratio.value) for grade, counts in graded(shown, book).items()}


@contextmanager
def _ratios_used(ratios: Mapping[str, float]) -> Iterator[None]:
    """Score with these ratios; the one of a lone sign keeps its share of the whole one."""
    tables = [cast("dict[str, float]", each) for each in (GRADES, LONE_GRADES)]
    before = [dict(each) for each in tables]
    tables[1].update({grade: value * ratios[grade] / before[0][grade] for grade, value in before[1].items()})
    tables[0].update(ratios)
    try:
        yield
    finally:
        for table, values in zip(tables, before, strict=True):
            table.update(values)


def with_less_knowledge(
    incidents: Iterable[KnownIncident], book: Rulebook, matcher: Matcher
) -> tuple[list[Verdict], list[Verdict]]:
    """Verdicts on the explained incidents, without the fact that most speaks in each, and without its true cause.

    A symptom of the true cause, or what explains it, is neither right nor wrong and left out. Without the cause
    no named one is right.
    """
    without_sign, without_cause = [], []
    for incident in incidents:
        findings = _explained(incident, book, matcher)
        if findings.outcome != "explained" or findings_answer(findings) not in incident.expected:
            continue
        causes = {each for each in incident.expected if "." in each}
        related = explained_by(causes, book) - causes
        narrowed = (_without_best_fact(findings, book), without_sign), (_without(causes, book), without_cause)
        for less, verdicts in narrowed:
            verdict = _verdict(incident, _explained(incident, less, matcher))
            if verdict.answer not in related and (
                verdict.right or not causes & explained_by({verdict.answer}, book)
            ):
                verdicts.append(verdict)
    return without_sign, without_cause


def _without(causes: set[str], book: Rulebook) -> Rulebook:
    return evolve(
        book, causes=tuple(evolve(each, status="deprecated") if each.id in causes else each for each in book.causes)
    )


def _without_best_fact(findings: Findings, book: Rulebook) -> Rulebook:
    assert findings.top is not None
    best = max(findings.top.evidence, key=lambda clue: GRADES[clue.grade]).sign
    cause = next(each for each in book.causes if each.id == findings.top.id)
    fact = next(each.fact or each.name for each in cause.signs if each.name == best)
    left = tuple(each for each in cause.signs if (each.fact or each.name) != fact)
    narrowed = evolve(cause, signs=left) if left else evolve(cause, status="deprecated")
    return evolve(book, causes=tuple(narrowed if each is cause else each for each in book.causes))


def _explained(incident: KnownIncident, book: Rulebook, matcher: Matcher) -> Findings:
    return diagnose(_evidence(incident), book, matcher=matcher)


def _evidence(incident: KnownIncident) -> Iterator[Evidence]:
    """What its texts and death bundles hold."""
    bundles = [each for each in incident.logs if each.suffix == ".zip"]
    yield from evidence_of([each for each in incident.logs if each not in bundles])
    for each in bundles:
        yield from bundle_evidence(each.name, each.read_bytes()) or ()


def _verdict(incident: KnownIncident, findings: Findings) -> Verdict:
    sure = findings.top.probability if findings.outcome == "explained" and findings.top else None
    return Verdict(incident=incident, answer=findings_answer(findings), sure=sure)


def held_out_table(rows: Mapping[str, Sequence[Verdict]]) -> str:
    """What was promised and came true, for each way of judging."""
    return "\n".join(
        [
            "| judged | incidents | a cause named | mean probability | share right, 95 in 100 | Brier score |",
            "|---|---|---|---|---|---|",
            *(f"| {name} | {len(verdicts)} | {_cells(verdicts)} |" for name, verdicts in rows.items()),
        ]
    )


def channel_table(known: Sequence[Verdict], less: Sequence[Verdict], before: str) -> str:
    """The same for each channel; of one without incidents the row that stands in *before*, if there is one."""
    columns = "named | mean probability | share right, 95 in 100 | Brier score"
    rows = [f"| channel | incidents | {columns} | with less knowledge: {columns} |", f"|---|---|{'---|' * 8}"]
    for channel in CHANNELS:
        own, own_less = ([each for each in some if each.incident.channel == channel] for some in (known, less))
        measured = f"| {channel} | {len(own)} | {_cells(own)} | {_cells(own_less)} |"
        kept = [
            line for line in before.splitlines() if line.startswith(f"| {channel} | ") and "| 0 | 0 |" not in line
        ]
        rows.append(measured if own or not kept else kept[0])
    return "\n".join(rows)


def _cells(verdicts: Sequence[Verdict]) -> str:
    """Number, mean probability, share right with its interval, and Brier score of those that name a cause."""
    named = [(each.sure, each.right) for each in verdicts if each.sure is not None]
    if not named:
        return "0 | - | - | -"
    count, right = len(named), sum(is_right for _, is_right in named)
    low, high = wilson(right, count)
    brier = sum((sure - is_right) ** 2 for sure, is_right in named) / count
    mean = sum(sure for sure, _ in named) / count
    return f"{count} | {mean:.2f} | {right / count:.2f} ({low:.2f} to {high:.2f}) | {brier:.3f}"
