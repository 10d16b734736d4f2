"""Whether a release can make the events, exceptions and captures that signs ask for.

A sign shows where one of its witnesses is: the few things that a release must all say, such
as an event with a field for the reason, and somewhere the reason itself.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Collection, Container, Iterator, Mapping
from typing import TYPE_CHECKING

from events import ExceptionClass, LoggedEvent, RaisedException, Value
from fixed_text import fixed_runs
from template_match import TemplateMatch, any_of, fillings, templates_with
from vocabulary import Utterance, Vocabulary

from workerdiag.matching.regex import pattern
from workerdiag.model.rules import SOURCE_TOPICS, EventSign, ExceptionSign, Landmark, LandmarkSign, LogSign

if TYPE_CHECKING:
    from templates import Template

Proof = frozenset[Utterance]

#: What a computed value may be, whoever computes it; besides, the numbers that a pattern names.
_COMPUTED = ("17.5", "tcp://10.0.0.1:8786", "word", "<class 'TimeoutError'>")
_OF_PYTHON = ("True", "False", "None", *(each for each in vars(builtins) if each[0].isupper()))
#: What stands in the other gaps of a message.
_AROUND = (
    "tcp://10.0.0.1:8786",
    "<WorkerState 'tcp://10.0.0.1:8786', name: word, status: running, memory: 0, processing: 0>",
)
#: Of the texts that one value may be, so many are tried in the gaps of a message.
_MOST_VALUES = 6


class SignCheck:
    """One sign, and what proves that a release can make it."""

    def __init__(self, witnesses: Collection[Proof], *, is_wholly_own: bool) -> None:
        self._witnesses = frozenset(witnesses)
        #: Whether nobody but distributed makes it.
        self.is_wholly_own = is_wholly_own

    def is_in(self, vocabulary: Container[object], *, surely: bool = False) -> bool:  # noqa: ARG002  sure or not at all
        """Whether a release that says so much can make it."""
        return any(all(each in vocabulary for each in proof) for proof in self._witnesses)


def check_event_sign(sign: EventSign, vocabulary: Vocabulary) -> SignCheck | None:
    """What makes an event that *sign* wants; None when its topic is one of our sources'."""
    if fixed_runs(sign.topic) and any(pattern(sign.topic).matches_whole(each) for each in SOURCE_TOPICS):
        return None
    witnesses = {
        proof
        for each in vocabulary.events
        if isinstance(each, LoggedEvent) and _has_topic(each, sign.topic)
        for proof in _with_fields(each, sign, vocabulary)
    }
    return SignCheck(witnesses, is_wholly_own=True)


def _has_topic(event: LoggedEvent, wanted: str) -> bool:
    return any(
        wanted == "worker" or pattern(wanted).matches_whole("tcp://10.0.0.1:8786")
        if topic is None
        else any(pattern(wanted).matches_whole(text) for text in fillings(topic))
        for topic in event.topics
    )


def _with_fields(event: LoggedEvent, sign: EventSign, vocabulary: Vocabulary) -> Iterator[Proof]:
    """*event* with every choice of texts that its computed values may be."""
    if event.fields is None:  # it may say anything, under a topic of its own
        if fixed_runs(sign.topic) or not sign.where:
            yield frozenset((event,))
        return
    fields = dict(event.fields)
    if not {*sign.where, *sign.at_least} <= set(fields):
        return
    witnesses: list[Proof] = [frozenset((event,))]
    for key, wanted in sign.where.items():
        makers = _makers(fields[key], str(wanted), vocabulary)
        witnesses = [proof | maker for proof in witnesses for maker in makers]
    yield from witnesses


def _makers(value: Value, wanted: str, vocabulary: Vocabulary) -> list[Proof]:
    """What must be said besides for *value* to be *wanted*: nothing, or one of some texts."""
    if value is not None:
        return [frozenset()] if any(pattern(wanted).matches_whole(text) for text in fillings(value)) else []
    return [frozenset((each,)) if each else frozenset() for each in values(wanted, vocabulary)]


def values(wanted: str, vocabulary: Vocabulary) -> Mapping[Template | None, tuple[str, ...]]:
    """Which templates make a value that *wanted* covers, and some of these values.

    The key None stands for what needs no release to say it: numbers and names of Python.
    """
    known = tuple(each for each in _OF_PYTHON if pattern(wanted).matches_whole(each))
    if known or not fixed_runs(wanted):
        return {None: known[:_MOST_VALUES]}
    fillers = (*re.findall(r"\d+", wanted), *_COMPUTED)
    made = {
        each: tuple(text for text in fillings(each, fillers) if pattern(wanted).matches_whole(text))
        for each in templates_with(fixed_runs(wanted), vocabulary.lowered)
    }
    return {each: texts[:_MOST_VALUES] for each, texts in made.items() if texts}


def check_exception_sign(sign: ExceptionSign, vocabulary: Vocabulary) -> SignCheck | None:
    """What raises an exception that *sign* wants; None when it is not about distributed's own."""
    defined = {each.name for each in vocabulary.events if isinstance(each, ExceptionClass)}
    own = {name: ExceptionClass(name) for each in sign.types if (name := each.rpartition(".")[2]) in defined}
    classes: list[Proof] = [frozenset((each,)) for each in own.values()]
    only_own = len(own) == len(sign.types) > 0
    if sign.pattern is None:
        return SignCheck(classes, is_wholly_own=only_own) if own else None
    speech = TemplateMatch(LogSign(name=sign.name, pattern=sign.pattern, grade=sign.grade), vocabulary.lowered)
    raised = {each for each in vocabulary.events if isinstance(each, RaisedException)}
    texts = speech.wordings(vocabulary.templates) - {each.as_last_line for each in raised}
    raised = {each for each in raised if each.text in texts}
    types = {each.rpartition(".")[2] for each in sign.types}
    witnesses: list[Proof] = [frozenset((each,)) for each in raised if not types or each.type in types]
    for text in texts - {each.text for each in raised}:  # put together elsewhere, for whatever type
        witnesses += [each | {text} for each in classes or [frozenset()]]
    if not witnesses and not only_own and not raised:
        return None
    return SignCheck(witnesses, is_wholly_own=only_own or speech.is_wholly_own)


def check_landmark_sign(
    sign: LandmarkSign, landmark: Landmark, vocabulary: Vocabulary
) -> SignCheck | TemplateMatch | None:
    """What makes a landmark with the captures that *sign* wants; None when it is not distributed's own."""
    speech = TemplateMatch(landmark, vocabulary.lowered)
    if not speech.is_in(vocabulary.templates):
        return None
    if not sign.where:
        return speech
    witnesses: list[Proof] = [frozenset()]
    for key, wanted in sign.where.items():
        makers = list(_captured(landmark, speech, key, wanted, vocabulary))
        witnesses = [one | maker for one in witnesses for maker in makers]
    return SignCheck(witnesses, is_wholly_own=speech.is_wholly_own)


def _captured(
    landmark: Landmark, speech: TemplateMatch, key: str, wanted: str, vocabulary: Vocabulary
) -> Iterator[Proof]:
    """Messages with the texts that, in one of their gaps, are captured as *key* and covered by *wanted*."""
    messages = list(templates_with(fixed_runs(any_of(landmark)), vocabulary.lowered))
    for value, texts in values(wanted, vocabulary).items():
        for message in messages:
            if value is None:
                if speech.is_in({message}):
                    yield frozenset((message,))
            elif any(_captures(landmark, message, key, text, wanted) for text in texts):
                yield frozenset((message, value))


def _captures(landmark: Landmark, message: Template, key: str, text: str, wanted: str) -> bool:
    for line in fillings(message, (text, f"'{text}'", *_AROUND)):
        for wording in landmark.wordings:
            found = pattern(wording).search(line)
            if found and pattern(wanted).matches_whole(found.groupdict().get(key) or ""):
                return True
    return False
