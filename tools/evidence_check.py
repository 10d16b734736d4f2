"""
Whether a release can make the events, exceptions and captures that signs ask for.

A sign shows where one of its witnesses is: the few things that a release must all say, such
as an event with a field for the reason, and somewhere the reason itself.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Collection, Container, Iterator, Mapping
from typing import TYPE_CHECKING

from events import Defined, Raised, Recorded, Value
from fixed_text import fixed_runs
from template_match import Speech, fillings, templates_with
from vocabulary import Sayings, Utterance

from workerdiag.matching.regex import pattern
from workerdiag.model.rules import EventSign, ExceptionSign, Landmark, LandmarkSign, LogSign

if TYPE_CHECKING:
    from templates import Template

Witness = frozenset[Utterance]

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


class Witnessed:
    """
    One sign, and what proves that a release can make it.
    """

    def __init__(self, witnesses: Collection[Witness], *, is_wholly_own: bool) -> None:
        self._witnesses = frozenset(witnesses)
        #: Whether nobody but distributed makes it.
        self.is_wholly_own = is_wholly_own

    def is_in(self, said: Container[object], *, surely: bool = False) -> bool:  # noqa: ARG002  sure or not at all
        """
        Whether a release that says so much can make it.
        """
        return any(all(each in said for each in witness) for witness in self._witnesses)

    def wordings(self, said: Container[object]) -> frozenset[Utterance]:
        """
        Of what proves it, that which is in *said*.
        """
        witnesses = (each for each in self._witnesses if all(part in said for part in each))
        return frozenset[Utterance]().union(*witnesses)


def of_event(sign: EventSign, said: Sayings, others: Collection[str] = ()) -> Witnessed | None:
    """
    What makes an event that *sign* wants; None when its topic is one of *others* than distributed.
    """
    if fixed_runs(sign.topic) and any(pattern(sign.topic).covers(each) for each in others):
        return None
    witnesses = {
        witness
        for each in said.happenings
        if isinstance(each, Recorded) and _has_topic(each, sign.topic)
        for witness in _with_fields(each, sign, said)
    }
    return Witnessed(witnesses, is_wholly_own=True)


def _has_topic(event: Recorded, wanted: str) -> bool:
    return any(
        wanted == "worker" or pattern(wanted).covers("tcp://10.0.0.1:8786")
        if topic is None
        else any(pattern(wanted).covers(text) for text in fillings(topic))
        for topic in event.topics
    )


def _with_fields(event: Recorded, sign: EventSign, said: Sayings) -> Iterator[Witness]:
    """
    *event* with every choice of texts that its computed values may be.
    """
    if event.fields is None:  # it may say anything, under a topic of its own
        if fixed_runs(sign.topic) or not sign.where:
            yield frozenset((event,))
        return
    fields = dict(event.fields)
    if not {*sign.where, *sign.at_least} <= set(fields):
        return
    witnesses: list[Witness] = [frozenset((event,))]
    for key, wanted in sign.where.items():
        makers = _makers(fields[key], wanted, said)
        witnesses = [witness | maker for witness in witnesses for maker in makers]
    yield from witnesses


def _makers(value: Value, wanted: str, said: Sayings) -> list[Witness]:
    """
    What must be said besides for *value* to be *wanted*: nothing, or one of some texts.
    """
    if value is not None:
        return [frozenset()] if any(pattern(wanted).covers(text) for text in fillings(value)) else []
    return [frozenset((each,)) if each else frozenset() for each in values(wanted, said)]


def values(wanted: str, said: Sayings) -> Mapping[Template | None, tuple[str, ...]]:
    """
    Which templates make a value that *wanted* covers, and some of these values.

    The key None stands for what needs no release to say it: numbers and names of Python.
    """
    known = tuple(each for each in _OF_PYTHON if pattern(wanted).covers(each))
    if known or not fixed_runs(wanted):
        return {None: known[:_MOST_VALUES]}
    fillers = (*re.findall(r"\d+", wanted), *_COMPUTED)
    made = {
        each: tuple(text for text in fillings(each, fillers) if pattern(wanted).covers(text))
        for each in templates_with(fixed_runs(wanted), said.lowered)
    }
    return {each: texts[:_MOST_VALUES] for each, texts in made.items() if texts}


def of_exception(sign: ExceptionSign, said: Sayings) -> Witnessed | None:
    """
    What raises an exception that *sign* wants; None when it is not about distributed's own.
    """
    defined = {each.name for each in said.happenings if isinstance(each, Defined)}
    own = {name: Defined(name) for each in sign.types if (name := each.rpartition(".")[2]) in defined}
    classes: list[Witness] = [frozenset((each,)) for each in own.values()]
    only_own = len(own) == len(sign.types) > 0
    if sign.pattern is None:
        return Witnessed(classes, is_wholly_own=only_own) if own else None
    speech = Speech(LogSign(name=sign.name, pattern=sign.pattern, grade=sign.grade), said.lowered)
    raised = {each for each in said.happenings if isinstance(each, Raised)}
    texts = speech.wordings(said.templates) - {each.as_last_line for each in raised}
    raised = {each for each in raised if each.text in texts}
    types = {each.rpartition(".")[2] for each in sign.types}
    witnesses: list[Witness] = [frozenset((each,)) for each in raised if not types or each.type in types]
    for text in texts - {each.text for each in raised}:  # put together elsewhere, for whatever type
        witnesses += [each | {text} for each in classes or [frozenset()]]
    if not witnesses and not only_own and not raised:
        return None
    return Witnessed(witnesses, is_wholly_own=only_own or speech.is_wholly_own)


def of_landmark(sign: LandmarkSign, landmark: Landmark, said: Sayings) -> Witnessed | Speech | None:
    """
    What makes a landmark with the captures that *sign* wants; None when it is not distributed's own.
    """
    speech = Speech(landmark, said.lowered)
    if not speech.is_in(said.templates):
        return None
    if not sign.where:
        return speech
    witnesses: list[Witness] = [frozenset()]
    for key, wanted in sign.where.items():
        makers = list(_captured(landmark, speech, key, wanted, said))
        witnesses = [one | maker for one in witnesses for maker in makers]
    return Witnessed(witnesses, is_wholly_own=speech.is_wholly_own)


def _captured(landmark: Landmark, speech: Speech, key: str, wanted: str, said: Sayings) -> Iterator[Witness]:
    """
    Messages with the texts that, in one of their gaps, are captured as *key* and covered by *wanted*.
    """
    messages = list(templates_with(fixed_runs(landmark.pattern), said.lowered))
    for value, texts in values(wanted, said).items():
        for message in messages:
            if value is None:
                if speech.is_in({message}):
                    yield frozenset((message,))
            elif any(_captures(landmark, message, key, text, wanted) for text in texts):
                yield frozenset((message, value))


def _captures(landmark: Landmark, message: Template, key: str, text: str, wanted: str) -> bool:
    for line in fillings(message, (text, f"'{text}'", *_AROUND)):
        found = pattern(landmark.pattern).search(line)
        if found and pattern(wanted).covers(found.groupdict().get(key) or ""):
            return True
    return False
