"""Every rule held against what releases can say: the one place that knows the kinds of rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import frozen
from evidence_check import SignCheck, check_event_sign, check_exception_sign, check_landmark_sign
from packaging.version import Version
from ranges import Claim, claim, problems
from template_match import TemplateMatch
from vocabulary import Vocabulary, merge_vocabularies

from workerdiag.model.rules import EventSign, ExceptionSign, Landmark, LandmarkSign, LogSign, Rulebook

Rule = Landmark | LogSign | EventSign | ExceptionSign | LandmarkSign

KIND_OF: dict[type[Rule], str] = {
    Landmark: "log text",
    LogSign: "log text",
    EventSign: "event",
    ExceptionSign: "exception",
    LandmarkSign: "landmark",
}


@frozen(kw_only=True)
class RuleCheck:
    """One rule about distributed's own wording, and the releases that word it so."""

    #: Cause or landmark, and the name of the sign in it; a landmark has none.
    owner: str
    sign: str
    #: A value of `KIND_OF`.
    kind: str
    claimed: Claim
    said_in: frozenset[Version]
    problems: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.owner} {self.sign}".strip()


def rules(book: Rulebook) -> Iterator[tuple[str, str, Rule]]:
    """All rules with a text of somebody's: the owner's id, the rule's name there, and the rule.

    Not those for the heading of a record, which loggers write.
    """
    yield from (each for each in book.log_rules() if not getattr(each[2], "in_header", False))
    for cause in book.causes:
        for sign in (*cause.signs, *cause.against):
            if isinstance(sign, EventSign | ExceptionSign | LandmarkSign):
                yield cause.id, sign.name, sign


def check_rules(book: Rulebook, vocabularies: Mapping[Version, Vocabulary]) -> Iterator[RuleCheck]:
    """The rules about distributed's own text, held against the *vocabularies* of releases, oldest first.

    Of log text, that is what a release can say, or what claims to be said in some releases only.
    """
    landmarks = {each.id: each for each in book.landmarks}
    every = merge_vocabularies(vocabularies.values())
    looked_at = list(vocabularies)
    for owner, name, rule in rules(book):
        check = _check(rule, landmarks, every)
        if check is None:
            continue
        claimed = claimed_by(rule, landmarks)
        said_in = frozenset(each for each in looked_at if check.is_in(vocabularies[each]))
        if not said_in and isinstance(rule, LogSign | Landmark) and claimed == Claim():
            continue
        surely_in = frozenset(each for each in said_in if check.is_in(vocabularies[each], surely=True))
        found = problems(claimed, said_in, looked_at, surely_in=surely_in, wholly=check.is_wholly_own)
        yield RuleCheck(
            owner=owner,
            sign=name,
            kind=KIND_OF[type(rule)],
            claimed=claimed,
            said_in=said_in,
            problems=tuple(found),
        )


def _check(
    rule: Rule, landmarks: Mapping[str, Landmark], vocabulary: Vocabulary
) -> TemplateMatch | SignCheck | None:
    match rule:
        case LogSign() | Landmark():
            return TemplateMatch(rule, vocabulary.lowered)
        case EventSign():
            return check_event_sign(rule, vocabulary)
        case ExceptionSign():
            return check_exception_sign(rule, vocabulary)
        case LandmarkSign(landmark=landmark):
            return check_landmark_sign(rule, landmarks[landmark], vocabulary) if landmark in landmarks else None


def claimed_by(rule: Rule, landmarks: Mapping[str, Landmark]) -> Claim:
    """The releases that *rule* claims to be worded for, within those of the landmark that it is about."""
    claimed = claim(rule.introduced, rule.removed)
    if isinstance(rule, LandmarkSign) and (landmark := landmarks.get(rule.landmark)):
        return claimed.within(claim(landmark.introduced, landmark.removed))
    return claimed
