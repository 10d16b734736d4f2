"""
Every rule held against what releases can say: the one place that knows the kinds of rules.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

from attrs import frozen
from evidence_check import check_event_sign, check_exception_sign, check_landmark_sign
from own_topics import topics_of_ours
from ranges import Claim, claim
from template_match import TemplateMatch

from workerdiag.model.rules import Landmark, Rulebook
from workerdiag.model.signs import EventSign, ExceptionSign, LandmarkSign, LogSign

if TYPE_CHECKING:
    from vocabulary import Utterance, Vocabulary

Rule = Landmark | LogSign | EventSign | ExceptionSign | LandmarkSign

KIND_OF: dict[type[Rule], str] = {
    Landmark: "log text",
    LogSign: "log text",
    EventSign: "event",
    ExceptionSign: "exception",
    LandmarkSign: "landmark",
}


class CheckedText(Protocol):
    """
    One rule, held against all that any release says.
    """

    @property
    def is_wholly_own(self) -> bool:
        """
        Whether nobody but distributed says what the rule is about.
        """

    def is_in(self, vocabulary: Container[object], *, surely: bool = False) -> bool:
        """
        Whether a release that says so much can say it; *surely*: and cannot but.
        """

    def wordings(self, vocabulary: Container[object]) -> frozenset[Utterance]:
        """
        Of what the rule matches, that which is in *vocabulary*.
        """


@frozen(kw_only=True)
class RuleCheck:
    """
    A rule that is about distributed's own text, and whose it is.
    """

    #: Cause or landmark, and the name of the sign in it; a landmark has none.
    owner: str
    sign: str
    kind: str
    held: CheckedText
    claimed: Claim
    #: Whether it must be said by some release; else it may be another's text.
    is_due: bool


def rules(book: Rulebook) -> Iterator[tuple[str, str, Rule]]:
    """
    All rules with a text of somebody's: the owner's id, the rule's name there, and it.
    """
    yield from book.log_rules()
    for cause in book.causes:
        for sign in (*cause.signs, *cause.against):
            if isinstance(sign, EventSign | ExceptionSign | LandmarkSign):
                yield cause.id, sign.name, sign


def check_rules(book: Rulebook, vocabulary: Vocabulary) -> Iterator[RuleCheck]:
    """
    The rules of *book* that may be about distributed's own text, held against *vocabulary*.
    """
    landmarks = {each.id: each for each in book.landmarks}
    others = topics_of_ours()
    for owner, name, rule in rules(book):
        held: CheckedText | None
        match rule:
            case LogSign() | Landmark():
                held = TemplateMatch(rule, vocabulary.lowered)
            case EventSign():
                held = check_event_sign(rule, vocabulary, others)
            case ExceptionSign():
                held = check_exception_sign(rule, vocabulary)
            case LandmarkSign(landmark=landmark):
                held = (
                    check_landmark_sign(rule, landmarks[landmark], vocabulary)
                    if landmark in landmarks
                    else None
                )
        if held is not None:
            claimed = claimed_by(rule, landmarks)
            is_log = isinstance(rule, LogSign | Landmark)
            yield RuleCheck(
                owner=owner,
                sign=name,
                kind=KIND_OF[type(rule)],
                held=held,
                claimed=claimed,
                is_due=not is_log or claimed != Claim(),
            )


def claimed_by(rule: Rule, landmarks: Mapping[str, Landmark]) -> Claim:
    """
    The releases that *rule* claims to be worded for; of those of a landmark, where it is about one.
    """
    claimed = claim(rule.introduced, rule.removed)
    if isinstance(rule, LandmarkSign) and (landmark := landmarks.get(rule.landmark)):
        return claimed.within(claim(landmark.introduced, landmark.removed))
    return claimed
