"""How likely each cause is in each death, given its signs: docs/what-the-numbers-mean.md in code.

Odds against "unknown" start at the cause's frequency and are multiplied by the likelihood ratio of each fact once:
of a fact (`fact` in a rule) or a message, only the strongest sign counts. What another cause explains counts less.
A cause without evidence is part of unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import islice
from math import exp, log

from workerdiag.model.diagnosis import Match
from workerdiag.model.incident import grouped
from workerdiag.model.odds import FREQUENCIES, GRADES, LONE_GRADES
from workerdiag.model.process_end import ProcessEnd
from workerdiag.model.rules import EVERYDAY_ENDS, AbsentSign, Cause, ExitSign, Rulebook, Sign, TogetherSign
from workerdiag.values import field, frozen

#: The best odds of all causes together against unknown: some doubt always remains.
MAX_ODDS = 180.0
#: Probability from which an end has no rival in a stop on request, which was another worker's or came later.
#: One moderate sign of a usual cause reaches it (5 to 1). Measured on the 230 labelled incidents with the lines of
#: an orderly stop added: 162 stay right, and 157 where two signs are needed.
CERTAIN = 0.83


@frozen(kw_only=True)
class SignEvidence:
    """One sign that shows in one case, with the matches that show it."""

    sign: Sign
    matches: tuple[Match, ...] = ()


def fact_weights(seen: Iterable[SignEvidence], *, is_everyday: bool = False) -> tuple[float, ...]:
    """The logarithm of the likelihood ratio of each fact."""
    return tuple(weight for weight, _ in weighed_facts(seen, is_everyday=is_everyday))


def weighed_facts(
    seen: Iterable[SignEvidence], *, is_everyday: bool = False
) -> list[tuple[float, list[SignEvidence]]]:
    """Each fact: the logarithm of its likelihood ratio, less if it is alone and *is_everyday*, and its signs."""
    by_fact = grouped(seen, lambda each: each.sign.fact or each.sign.name)
    groups = _distinct_groups(list(by_fact.values()))
    strongest = [max((each.sign.grade for each in some), key=GRADES.__getitem__) for some in groups]
    is_exit_seen = any(each.sign.fact == "exit" for some in by_fact.values() for each in some)
    is_alone = sum(grade != "hint" for grade in strongest) == 1
    is_doubtful = is_everyday and is_alone and not is_exit_seen
    weights = (log(LONE_GRADES.get(each, GRADES[each]) if is_doubtful else GRADES[each]) for each in strongest)
    return list(zip(weights, groups, strict=True))


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


def _group_messages(group: Iterable[SignEvidence]) -> frozenset[tuple[str, int, str]]:
    """The messages that show a group; empty if it says more than they do: an exit, or signs together."""
    found = set()
    for each in group:
        is_of_end = isinstance(each.sign, ExitSign) and not (each.matches and all(one.sign for one in each.matches))
        if is_of_end or isinstance(each.sign, TogetherSign):
            return frozenset()
        found |= {(match.origin, match.line, "" if match.line else match.text) for match in each.matches}
    return frozenset(found)


@frozen(kw_only=True)
class CauseScore:
    """The evidence for and against one cause in one case."""

    cause: Cause
    evidence: tuple[SignEvidence, ...] = ()
    against: tuple[SignEvidence, ...] = ()
    #: Whether anything reports the end of a process.
    is_end_known: bool = True

    @cached_property
    def facts(self) -> tuple[float, ...]:
        """Logarithms of the likelihood ratios of its evidence."""
        return fact_weights(self.evidence, is_everyday=self.is_everyday)

    @property
    def is_everyday(self) -> bool:
        """Whether every run ends so, and no end is known."""
        return self.cause.ends in EVERYDAY_ENDS and not self.is_end_known

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
                unexplained *= 1.0 - chance if strongest >= _needed_evidence(fact) else 1.0
            gained += unexplained * fact
        return exp(log(FREQUENCIES[self.cause.frequency]) + gained - sum(fact_weights(self.against)))

    def alone(self) -> float:
        """The probability of this cause if there were no other."""
        odds = min(self.odds(), MAX_ODDS)
        return odds / (1.0 + odds)


def _needed_evidence(fact: float) -> float:
    """The evidence that a cause needs to explain such a fact away: at most one grade less."""
    if fact >= log(GRADES["decisive"]):
        return log(GRADES["strong"])
    return log(min(LONE_GRADES.values())) if fact >= log(GRADES["strong"]) else 0.0


@frozen(kw_only=True)
class Distribution:
    """The probabilities of causes and of unknown; their sum is 1."""

    chances: Mapping[str, float] = field(factory=dict, hash=False)
    unknown: float = 1.0

    @property
    def explanation(self) -> tuple[str, float] | None:
        """The likeliest cause and its probability, if it is likelier than unknown; the first id wins a tie."""
        best = min(self.chances.items(), key=lambda item: (-item[1], item[0]), default=None)
        return best if best is not None and best[1] > self.unknown else None

    @property
    def cause_id(self) -> str | None:
        """The likeliest cause alone, if it is likelier than unknown."""
        return self.explanation[0] if self.explanation else None


def distribution(scores: Sequence[CauseScore]) -> Distribution:
    """The probabilities of all causes with evidence, and of unknown. Order does not matter."""
    explained_by = explainers(scores)
    odds = {each.cause.id: each.odds(explained_by[each.cause.id].values()) for each in scores}
    whole = sum(odds.values())
    scale = min(1.0, MAX_ODDS / whole) if whole else 1.0  # some doubt stays, whatever was seen
    total = 1.0 + scale * whole
    return Distribution(chances={key: scale * value / total for key, value in odds.items()}, unknown=1.0 / total)


def explainers(scores: Sequence[CauseScore]) -> dict[str, dict[str, tuple[float, float]]]:
    """For each cause those that explain it, each with its probability alone and its strongest fact."""
    known = {each.cause.id: (each.alone(), max(each.facts, default=0.0)) for each in scores}
    reach = _explained_causes(scores)
    return {
        each.cause.id: {
            other.cause.id: known[other.cause.id]
            for other in scores
            if each.cause.id in reach[other.cause.id]
            or (known[other.cause.id][0] >= CERTAIN and _is_stop_beside_crash(each.cause, other.cause, reach))
        }
        for each in scores
    }


def _is_stop_beside_crash(stop: Cause, other: Cause, reach: Mapping[str, frozenset[str]]) -> bool:
    """Whether *stop* is a stop on request and *other* an unrequested end that it does not explain."""
    return (
        stop.ends == "stopped"
        and other.ends in ("killed", "crashed", "raised", "never-started")
        and other.id not in reach[stop.id]
    )


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


#: Signs that show with no match of their own.
_SHOWN_BY_OTHERS = (ExitSign, AbsentSign, TogetherSign)
#: Landmarks by their ids.
MarksByOwner = Mapping[str, Sequence[Match]]


class CauseScoring:
    """Scores the causes of a rulebook in each death of an incident."""

    def __init__(self, book: Rulebook, marks: MarksByOwner, inspected: Collection[str]) -> None:
        """Prepare the causes of *book*; *marks* are landmarks, *inspected* the places where absence counts."""
        self._causes = book.active_causes
        self._shown_without_match = book.signs_shown_without_match
        self._marks = marks
        self._inspected = inspected
        #: Causes that show without a match of their own, by what is known of the exit.
        self._shown_by_others: dict[tuple[object, ...], frozenset[str]] = {}

    def scores(self, by_cause: Mapping[str, Mapping[str, list[Match]]], end: ProcessEnd | None) -> list[CauseScore]:
        """The evidence for and against each cause that shows, by the matches that count here, by cause and sign."""
        found = []
        for cause_id in sorted((by_cause.keys() | self._causes_shown_by_others(end)) & self._causes.keys()):
            cause, own = self._causes[cause_id], by_cause.get(cause_id, {})
            evidence = self._sign_evidence(cause.signs, own, end)
            if any(_suggests(each.sign) for each in evidence):
                against = self._sign_evidence(cause.against, own, end)
                found.append(
                    CauseScore(cause=cause, evidence=evidence, against=against, is_end_known=end is not None)
                )
        return found

    def _causes_shown_by_others(self, end: ProcessEnd | None) -> frozenset[str]:
        exit_ = (end.signal, end.status, end.stop_requested) if end is not None else ()
        if exit_ not in self._shown_by_others:
            self._shown_by_others[exit_] = frozenset(
                cause_id
                for cause_id, signs in self._shown_without_match.items()
                if any(_suggests(sign) and self._matches(sign, {}, end) is not None for sign in signs)
            )
        return self._shown_by_others[exit_]

    def _sign_evidence(
        self, signs: Iterable[Sign], own: Mapping[str, list[Match]], end: ProcessEnd | None
    ) -> tuple[SignEvidence, ...]:
        return tuple(
            SignEvidence(sign=sign, matches=tuple(matches))
            for sign in signs
            if (sign.name in own or isinstance(sign, _SHOWN_BY_OTHERS))
            and (matches := self._matches(sign, own, end)) is not None
        )

    def _matches(self, sign: Sign, own: Mapping[str, list[Match]], end: ProcessEnd | None) -> list[Match] | None:
        """The matches that show *sign*, none for an absence; None if it does not show."""
        if isinstance(sign, ExitSign):
            shown = _exit_marks(sign, end) if "process" in sign.by else None
            return own.get(sign.name) if shown is None else [*shown, *own.get(sign.name, ())]
        if isinstance(sign, AbsentSign):
            marks = [each for landmark in sign.landmarks for each in self._marks.get(landmark, ())]
            if end is None or sign.inspected not in self._inspected or len(marks) > 50:  # of many, one may be of it
                return None
            return [] if all(end.conflicts_with(each.identity) for each in marks) else None
        if isinstance(sign, TogetherSign):
            return _joint_matches(sign, own, self._marks)
        return own.get(sign.name)


def _suggests(sign: Sign) -> bool:
    """Whether it suggests its cause alone: absences and hints do not."""
    return not isinstance(sign, AbsentSign) and sign.grade != "hint"


def _exit_marks(sign: ExitSign, end: ProcessEnd | None) -> list[Match] | None:
    """The messages that report such an exit; None for another exit, or if that only completed a request to stop."""
    if end is None or not end.exit_known or (end.stop_requested and not end.crashed):
        return None
    if not sign.is_for(end.signal, end.status):
        return None
    told = [mark for mark in end.marks if mark.role in ("death", "restart")]
    counting = [mark for mark in told if mark.owner not in sign.except_reports]
    return counting[:1] if counting or not told else None


def _joint_matches(sign: TogetherSign, own: Mapping[str, list[Match]], marks: MarksByOwner) -> list[Match] | None:
    def places_of(name: str) -> list[Match]:
        those = own.get(name) or marks.get(name, ())
        return list(islice((each for each in those if each.line), 200))

    places = [places_of(name) for name in sign.signs]
    if sign.any_of:
        places.append([each for name in sign.any_of for each in places_of(name)])
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
