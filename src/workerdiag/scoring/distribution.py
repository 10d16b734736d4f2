"""
How likely each cause is, given what was seen: docs/what-the-numbers-mean.md in code.

Odds against "unknown" start at the cause's frequency and are multiplied by the likelihood
ratio of each event seen, once. What another cause explains counts less. A cause of which
nothing is seen is part of unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from math import exp, log

from attrs import field, frozen

from workerdiag.model.diagnosis import Match
from workerdiag.model.process_end import ProcessEnd
from workerdiag.model.rules import EVERYDAY_ENDS, FREQUENCIES, LONE_GRADES, Cause, Rulebook
from workerdiag.model.signs import GRADES, AbsentSign, ExitSign, LogSign, Sign, TogetherSign
from workerdiag.scoring.weights import SignEvidence, fact_weights

#: However much is seen, some doubt stays: all causes together get no better odds than this against unknown.
MAX_ODDS = 180.0
#: An end as certain as this has no rival in a stop on request: that was another worker's, or came after.
#: Measured on labelled incidents to which the lines of an orderly stop were added: below it, true stops lose.
CERTAIN = 0.93
#: What explains a fact away must itself rest on one that is at most one grade weaker.
_NEEDED = {
    log(GRADES["decisive"]): log(GRADES["strong"]),
    log(GRADES["strong"]): log(min(LONE_GRADES.values())),
}
_UNEXPECTED_ENDS = ("killed", "crashed", "raised", "never-started")
#: Of one sign, so many places are tried for others close by.
MAX_TOGETHER = 200
#: Landmarks by their ids.
MarksByOwner = Mapping[str, Sequence[Match]]


@frozen(kw_only=True)
class CauseScore:
    """
    What speaks for and against one cause in one case.
    """

    cause: Cause
    evidence: tuple[SignEvidence, ...] = ()
    against: tuple[SignEvidence, ...] = ()

    #: Whether anything tells that a process ended.
    is_end_known: bool = True
    #: Logarithms of likelihood ratios of what speaks for it.
    facts: tuple[float, ...] = field(init=False)

    @facts.default
    def _facts(self) -> tuple[float, ...]:
        is_everyday = self.cause.ends in EVERYDAY_ENDS and not self.is_end_known
        return fact_weights(self.evidence, is_everyday=is_everyday)

    def odds(self, explainers: Iterable[tuple[float, float]] = ()) -> float:
        """
        The odds against unknown.

        Args:
            explainers: Of each cause that explains this one, its chance and its strongest fact. It explains
                away that share of each fact, of decisive ones only if its own evidence is strong.
        """
        gained = 0.0
        explainers = list(explainers)
        for fact in self.facts:
            unexplained = 1.0
            for chance, strongest in explainers:
                unexplained *= 1.0 - chance if strongest >= _required_fact(fact) else 1.0
            gained += unexplained * fact
        return exp(log(FREQUENCIES[self.cause.frequency]) + gained - sum(fact_weights(self.against)))

    def alone(self) -> float:
        """
        The chance of this cause if there were no other.
        """
        odds = min(self.odds(), MAX_ODDS)
        return odds / (1.0 + odds)


@frozen(kw_only=True)
class Distribution:
    """
    Chances of causes and of unknown; together 1.
    """

    chances: Mapping[str, float] = field(factory=dict, hash=False)
    unknown: float = 1.0

    @property
    def best(self) -> tuple[str, float] | None:
        """
        The likeliest cause and its chance; ties go to the first by id.
        """
        return min(self.chances.items(), key=lambda item: (-item[1], item[0]), default=None)


def _required_fact(fact: float) -> float:
    return _NEEDED.get(fact, 0.0)


def by_owner(matches: Iterable[Match]) -> dict[str, list[Match]]:
    """
    The *matches* by the id of what they show.
    """
    found: dict[str, list[Match]] = {}
    for each in matches:
        found.setdefault(each.owner, []).append(each)
    return found


def considered(book: Rulebook) -> tuple[tuple[Cause, bool], ...]:
    """
    The causes of a rulebook that count, and whether they can show without a match of their own.
    """
    return tuple(
        (cause, any(isinstance(sign, ExitSign | TogetherSign) for sign in cause.signs))
        for cause in book.causes
        if cause.status != "deprecated"
    )


def score_causes(
    causes: Iterable[tuple[Cause, bool]],
    signs: Sequence[Match],
    marks: MarksByOwner,
    end: ProcessEnd | None,
    inspected: Collection[str],
) -> list[CauseScore]:
    """
    For every cause of which something is seen: what speaks for it and against it.

    Args:
        causes: Those that are `considered`.
        signs: Matches of signs that count in this case.
        marks: The landmarks of the incident (`by_owner`).
        end: The death, if there is one.
        inspected: Places in which absence counts.
    """
    by_cause: dict[str, dict[str, list[Match]]] = {}
    for each in signs:
        by_cause.setdefault(each.owner, {}).setdefault(each.sign, []).append(each)
    found = []
    for cause, shows_by_others in causes:
        own = by_cause.get(cause.id, {})
        if not own and not shows_by_others:
            continue
        evidence = _sign_evidence(cause.signs, own, marks, end, inspected)
        if any(not isinstance(each.sign, AbsentSign) for each in evidence):  # absence alone suggests nothing
            against = _sign_evidence(cause.against, own, marks, end, inspected)
            found.append(
                CauseScore(cause=cause, evidence=evidence, against=against, is_end_known=end is not None)
            )
    return found


def distribution(scores: Sequence[CauseScore]) -> Distribution:
    """
    Chances of all causes that have support, and of unknown. Order does not matter.
    """
    known = {each.cause.id: (each.alone(), max(each.facts, default=0.0)) for each in scores}
    reach = _explained_causes(scores)
    odds = {}
    for each in scores:
        explainers = [
            known[other.cause.id]
            for other in scores
            if each.cause.id in reach[other.cause.id]
            or (known[other.cause.id][0] >= CERTAIN and _is_stop_beside_crash(each.cause, other.cause, reach))
        ]
        odds[each.cause.id] = each.odds(explainers)
    whole = sum(odds.values())
    scale = min(1.0, MAX_ODDS / whole) if whole else 1.0  # some doubt stays, whatever was seen
    total = 1.0 + scale * whole
    return Distribution(
        chances={key: scale * value / total for key, value in odds.items()}, unknown=1.0 / total
    )


def _is_stop_beside_crash(stop: Cause, other: Cause, reach: Mapping[str, frozenset[str]]) -> bool:
    """
    Whether *stop* is one on request, and *other* an end that nobody asks for and that it does not explain.
    """
    return stop.ends == "stopped" and other.ends in _UNEXPECTED_ENDS and other.id not in reach[stop.id]


def weighted_mean(parts: Sequence[tuple[float, Distribution]]) -> Distribution:
    """
    The weighted mean of distributions, e.g. over the deaths of one incident.
    """
    whole = sum(weight for weight, _ in parts)
    if not whole:
        return Distribution()
    chances: dict[str, float] = {}
    for weight, part in parts:
        for key, value in part.chances.items():
            chances[key] = chances.get(key, 0.0) + weight / whole * value
    return Distribution(chances=chances, unknown=sum(weight / whole * part.unknown for weight, part in parts))


def _explained_causes(scores: Sequence[CauseScore]) -> dict[str, frozenset[str]]:
    """
    What each cause explains, directly or through another that shows as well.
    """
    direct = {each.cause.id: each.cause.explains for each in scores}

    def walk(start: str, seen: frozenset[str]) -> frozenset[str]:
        for each in direct.get(start, ()):
            if each not in seen:
                seen = walk(each, seen | {each})
        return seen

    return {each.cause.id: walk(each.cause.id, frozenset()) - {each.cause.id} for each in scores}


def _sign_evidence(
    signs: Iterable[Sign],
    own: Mapping[str, list[Match]],
    marks: MarksByOwner,
    end: ProcessEnd | None,
    inspected: Collection[str],
) -> tuple[SignEvidence, ...]:
    found = []
    for sign in signs:
        matches: list[Match] | None
        if isinstance(sign, LogSign):  # as most are
            matches = own.get(sign.name)
        elif isinstance(sign, ExitSign):
            matches = _exit_marks(sign, end)
        elif isinstance(sign, AbsentSign):
            absent = sign.inspected in inspected and marks.keys().isdisjoint(sign.landmarks)
            matches = [] if absent and end is not None else None
        elif isinstance(sign, TogetherSign):
            matches = _joint_matches(sign, own, marks)
        else:
            matches = own.get(sign.name)
        if matches is not None:
            found.append(SignEvidence(sign=sign, matches=tuple(matches)))
    return tuple(found)


def _exit_marks(sign: ExitSign, end: ProcessEnd | None) -> list[Match] | None:
    """
    The messages that tell of such an exit; None if it is another.

    A process that was asked to stop has none: a signal is then only how the asking ended, but for one
    that no nanny sends.
    """
    if end is None or not end.exit_known or (end.stop_requested and not end.crashed):
        return None
    fits = (
        (end.signal is not None and end.signal in sign.signals)
        or (end.status is not None and end.status in sign.statuses)
        or (sign.any_failure and end.signal is None and end.status not in (None, 0))
    )
    if not fits:
        return None
    return [mark for mark in end.marks if mark.role in ("death", "restart")][:1]


def _joint_matches(
    sign: TogetherSign, own: Mapping[str, list[Match]], marks: MarksByOwner
) -> list[Match] | None:
    found = [own.get(name) or marks.get(name, ()) for name in sign.signs]
    if not all(found):
        return None
    places = [list(islice((each for each in those if each.line), MAX_TOGETHER)) for those in found]
    if not all(places):
        return None
    if sign.within_lines == 0:
        return [each[0] for each in places]
    for anchor in places[0]:
        group = [anchor]
        for others in places[1:]:
            near = [
                each
                for each in others
                if each.origin == anchor.origin
                and abs(each.line - anchor.line) <= sign.within_lines
                and not any(each is one for one in group)
                and (not sign.in_order or each.line >= group[-1].line)
            ]
            if not near:
                break
            group.append(min(near, key=lambda each: abs(each.line - anchor.line)))
        else:
            return group
    return None
