"""The signs of a rulebook that are not searched for in log text, indexed for lookup."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TypeAlias, TypeVar

from workerdiag.matching.patterns import left_out_note
from workerdiag.matching.regex import BadPatternError, pattern, uses_re2
from workerdiag.model.rules import Cause, EventSign, ExceptionSign, ExitSign, LandmarkSign, Rulebook, Sign

_S = TypeVar("_S", bound=Sign)
#: A sign with its cause.
SignOf: TypeAlias = tuple[Cause, _S]

#: Limit of the cache of signs by topic: the address of each worker is one.
_MAX_TOPICS = 1000
#: Limit of the cache of short field values that a pattern was tried on.
_MAX_KNOWN_VALUES, _MAX_KNOWN_CHARS = 2000, 100


class SignTables:
    """Signs of events, exceptions, landmarks and reported exits. Threads may share it."""

    def __init__(self, book: Rulebook) -> None:
        left_out: dict[str, None] = {}
        self.exceptions = _usable_signs(book, ExceptionSign, left_out)
        #: Signs that are a landmark, by the id of the landmark.
        self.by_landmark: dict[str, list[SignOf[LandmarkSign]]] = {}
        for cause, sign in _usable_signs(book, LandmarkSign, left_out):
            self.by_landmark.setdefault(sign.landmark, []).append((cause, sign))
        self.reported_exits = [
            (cause, sign) for cause, sign in _usable_signs(book, ExitSign, left_out) if "report" in sign.by
        ]
        self._by_topic_pattern: dict[str, list[SignOf[EventSign]]] = {}
        for cause, event in _usable_signs(book, EventSign, left_out):
            self._by_topic_pattern.setdefault(event.topic, []).append((cause, event))
        self._of_topic: dict[str, Sequence[SignOf[EventSign]]] = {}
        self._known_values: dict[tuple[str, str], bool] = {}
        #: Notes about signs whose patterns cannot be run.
        self.left_out = tuple(left_out)

    def for_events_of(self, topic: str) -> Sequence[SignOf[EventSign]]:
        """Return the signs for events of *topic*, from a cache: thousands of events have few topics."""
        known = self._of_topic.get(topic)
        if known is None:
            if len(self._of_topic) > _MAX_TOPICS:
                self._of_topic.clear()
            known = self._of_topic[topic] = [
                each
                for wanted, signs in self._by_topic_pattern.items()
                if pattern(wanted).matches_whole(topic) or (wanted == "worker" and "://" in topic)
                for each in signs
            ]
        return known

    def matches_whole(self, wanted: str, value: str) -> bool:
        """Whether the pattern *wanted* matches *value*, from a cache: thousands of events have few values."""
        key = wanted, value
        known = self._known_values.get(key)
        if known is None:
            known = pattern(wanted).matches_whole(value)
            if len(value) <= _MAX_KNOWN_CHARS and len(self._known_values) < _MAX_KNOWN_VALUES:
                self._known_values[key] = known
        return known


def pattern_texts(sign: Sign) -> tuple[str, ...]:
    """Return the patterns of a sign that are not searched for in log text."""
    if isinstance(sign, LandmarkSign):
        return tuple(sign.where.values())
    if isinstance(sign, EventSign):
        return (sign.topic, *(each for each in sign.where.values() if isinstance(each, str)))
    if isinstance(sign, ExceptionSign):
        return (sign.pattern,) if sign.pattern is not None else ()
    return ()


def compilable_patterns(book: Rulebook) -> dict[str, tuple[str, ...]]:
    """Return the valid patterns of signs outside log text, each without literals, for `Rulebook.literals`."""
    compilable: dict[str, tuple[str, ...]] = {}
    for cause in book.causes:
        for sign in (*cause.signs, *cause.against):
            for text in pattern_texts(sign):
                with contextlib.suppress(BadPatternError):
                    pattern(text)
                    compilable[text] = ()
    return compilable


def _usable_signs(book: Rulebook, kind: type[_S], left_out: dict[str, None]) -> list[SignOf[_S]]:
    """Return the signs of one kind whose patterns can be run; notes about the others go to *left_out*."""
    known = book.literals if uses_re2() else {}  # patterns that were valid when the rules were compiled
    usable: list[SignOf[_S]] = []
    for cause in book.causes:
        for sign in (*cause.signs, *cause.against):
            if not isinstance(sign, kind):
                continue
            try:
                for text in pattern_texts(sign):
                    if text not in known:
                        pattern(text)
            except BadPatternError as problem:
                left_out[left_out_note(cause.id, sign.name, problem)] = None
            else:
                usable.append((cause, sign))
    return usable
