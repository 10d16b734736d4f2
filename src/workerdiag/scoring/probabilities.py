"""How likely each cause is, given the evidence: docs/what-the-numbers-mean.md in code.

Odds against "unknown" start at the cause's frequency and are multiplied by the likelihood
ratio of each fact once: of a fact (`fact` in a rule) or a message, only the strongest sign counts.
What another cause explains counts less. A cause without evidence is part of unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import exp, log

from attrs import field, frozen

from workerdiag.model.diagnosis import Match
from workerdiag.model.rules import (
    EVERYDAY_ENDS,
    FREQUENCIES,
    GRADES,
    LONE_GRADES,
    Cause,
    ExitSign,
    Sign,
    TogetherSign,
)
from workerdiag.model.vocabulary import Grade

#: The fact of how a process ended.
EXIT_FACT = "exit"
#: The best odds of all causes together against unknown: some doubt always remains.
MAX_ODDS = 180.0
#: Probability from which an end has no rival in a stop on request, which was another worker's or came later.
#: Measured on labelled incidents with the lines of an orderly stop added: below it, true stops lose.
CERTAIN = 0.93
#: Evidence that a cause needs to explain a fact away, by the strength of the fact: at most one grade less.
_NEEDED = {
    log(GRADES["decisive"]): log(GRADES["strong"]),
    log(GRADES["strong"]): log(min(LONE_GRADES.values())),
}
_UNEXPECTED_ENDS = ("killed", "crashed", "raised", "never-started")


@frozen(kw_only=True)
class SignEvidence:
    """One sign that shows in one case, with the matches that show it."""

    sign: Sign
    matches: tuple[Match, ...] = ()


def fact_weights(seen: Iterable[SignEvidence], *, is_everyday: bool = False) -> tuple[float, ...]:
    """The logarithm of the likelihood ratio of each fact.

    With *is_everyday* the cause ends as every run does (`EVERYDAY_ENDS`) and no process is known to have
    ended; a sign that stands alone then counts less (`LONE_GRADES`).
    """
    by_fact: dict[str, list[SignEvidence]] = {}
    for each in seen:
        by_fact.setdefault(each.sign.fact or each.sign.name, []).append(each)
    strongest = [_strongest(some) for some in _distinct_groups(list(by_fact.values()))]
    is_exit_seen = any(each.sign.fact == EXIT_FACT for some in by_fact.values() for each in some)
    is_alone = sum(grade != "hint" for grade in strongest) == 1
    is_doubtful = is_everyday and is_alone and not is_exit_seen
    return tuple(
        log(LONE_GRADES.get(each, GRADES[each]) if is_doubtful else GRADES[each]) for each in strongest
    )


def _strongest(some: Iterable[SignEvidence]) -> Grade:
    return max((each.sign.grade for each in some), key=lambda grade: GRADES[grade])


def _distinct_groups(groups: Sequence[list[SignEvidence]]) -> list[list[SignEvidence]]:
    """The groups, each merged with those that rest on some of its messages."""
    whole: list[tuple[frozenset[tuple[str, int, str]], list[SignEvidence]]] = []
    for group in sorted(groups, key=lambda some: -len(_group_messages(some))):
        messages = _group_messages(group)
        same = next((some for known, some in whole if messages and messages <= known), None)
        if same is None:
            whole.append((messages, list(group)))
        else:
            same += group
    return [some for _, some in whole]


def _is_of_end(seen: SignEvidence) -> bool:
    """Whether the end of the process shows the sign, not only the reports of an exit."""
    return isinstance(seen.sign, ExitSign) and not (seen.matches and all(each.sign for each in seen.matches))


def _group_messages(group: Iterable[SignEvidence]) -> frozenset[tuple[str, int, str]]:
    """The messages that show a group; empty if it says more than they do: an exit, or signs together."""
    if any(isinstance(each.sign, TogetherSign) or _is_of_end(each) for each in group):
        return frozenset()
    return frozenset(
        (match.origin, match.line, "" if match.line else match.text)
        for each in group
        for match in each.matches
    )


@frozen(kw_only=True)
class CauseScore:
    """The evidence for and against one cause in one case."""

    cause: Cause
    evidence: tuple[SignEvidence, ...] = ()
    against: tuple[SignEvidence, ...] = ()

    #: Whether anything reports the end of a process.
    is_end_known: bool = True
    #: Logarithms of the likelihood ratios of its evidence.
    facts: tuple[float, ...] = field(init=False)

    @facts.default
    def _facts(self) -> tuple[float, ...]:
        is_everyday = self.cause.ends in EVERYDAY_ENDS and not self.is_end_known
        return fact_weights(self.evidence, is_everyday=is_everyday)

    @property
    def matches(self) -> list[Match]:
        """The matches of its evidence."""
        return [match for seen in self.evidence for match in seen.matches]

    def odds(self, explainers: Iterable[tuple[float, float]] = ()) -> float:
        """The odds against unknown.

        Each of *explainers* is the probability and the strongest fact of a cause that explains this one. It
        explains away that share of each fact; of decisive facts only if its own evidence is strong.
        """
        gained = 0.0
        explainers = list(explainers)
        for fact in self.facts:
            unexplained = 1.0
            for chance, strongest in explainers:
                unexplained *= 1.0 - chance if strongest >= _NEEDED.get(fact, 0.0) else 1.0
            gained += unexplained * fact
        return exp(log(FREQUENCIES[self.cause.frequency]) + gained - sum(fact_weights(self.against)))

    def alone(self) -> float:
        """The probability of this cause if there were no other."""
        odds = min(self.odds(), MAX_ODDS)
        return odds / (1.0 + odds)


@frozen(kw_only=True)
class Distribution:
    """The probabilities of causes and of unknown; their sum is 1."""

    chances: Mapping[str, float] = field(factory=dict, hash=False)
    unknown: float = 1.0

    @property
    def best(self) -> tuple[str, float] | None:
        """The likeliest cause and its probability; the first id wins a tie."""
        return min(self.chances.items(), key=lambda item: (-item[1], item[0]), default=None)

    @property
    def explanation(self) -> tuple[str, float] | None:
        """The likeliest cause and its probability, if it is likelier than unknown."""
        return self.best if self.best is not None and self.best[1] > self.unknown else None


def distribution(scores: Sequence[CauseScore]) -> Distribution:
    """The probabilities of all causes with evidence, and of unknown. Order does not matter."""
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
    """Whether *stop* is a stop on request and *other* an unrequested end that it does not explain."""
    return stop.ends == "stopped" and other.ends in _UNEXPECTED_ENDS and other.id not in reach[stop.id]


def weighted_mean(parts: Sequence[tuple[float, Distribution]]) -> Distribution:
    """The weighted mean of distributions, such as those of the deaths of one incident."""
    whole = sum(weight for weight, _ in parts)
    if not whole:
        return Distribution()
    chances: dict[str, float] = {}
    for weight, part in parts:
        for key, value in part.chances.items():
            chances[key] = chances.get(key, 0.0) + weight / whole * value
    return Distribution(chances=chances, unknown=sum(weight / whole * part.unknown for weight, part in parts))


def _explained_causes(scores: Sequence[CauseScore]) -> dict[str, frozenset[str]]:
    """The causes that each cause explains, directly or through another that shows."""
    direct = {each.cause.id: each.cause.explains for each in scores}

    def walk(start: str, seen: frozenset[str]) -> frozenset[str]:
        for each in direct.get(start, ()):
            if each not in seen:
                seen = walk(each, seen | {each})
        return seen

    return {each.cause.id: walk(each.cause.id, frozenset()) - {each.cause.id} for each in scores}
