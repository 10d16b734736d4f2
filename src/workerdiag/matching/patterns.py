"""The patterns of a rulebook: those for logs with their literals, and signs that are no text."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TypeAlias, TypeVar

from workerdiag.matching.literals import NoLiteralError, literals
from workerdiag.matching.prefilter import LiteralScan
from workerdiag.matching.regex import BadPatternError, pattern, uses_re2
from workerdiag.model.incident import END_ROLES
from workerdiag.model.rules import Cause, EventSign, ExceptionSign, ExitSign, Landmark, LandmarkSign, Rulebook, Sign
from workerdiag.model.vocabulary import MatchRole, Stream
from workerdiag.values import field, frozen

#: For each sign and log, this many matches are kept from the start, and as many from the end.
MATCHES_PER_END = 250
#: The same for reports of ends and for what explains them: each end counts.
END_REPORTS_PER_END = 400
_ROLES_OF_ENDS: frozenset[MatchRole] = END_ROLES | {"restart", "stop-request", "deregistered"}


@frozen(kw_only=True)
class PatternOwner:
    """A pattern with the sign that it is for."""

    owner: str
    sign: str
    role: MatchRole
    pattern: str
    #: Patterns that rule the sign out if they match in the message, or in the matching lines.
    unless: str | None
    unless_in_line: str | None
    streams: tuple[Stream, ...]
    #: Captures that the message implies.
    implied: tuple[tuple[str, str], ...] = ()
    #: Whether the pattern is for ``logger - LEVEL - message``.
    in_header: bool = False
    #: Text of the lines above (`Landmark.follows`), in lower case.
    follows: bytes = b""
    #: The sign's owner, and its name.
    key: tuple[str, str] = field(init=False)

    @key.default
    def _key(self) -> tuple[str, str]:
        return self.owner, self.sign

    @property
    def kept_per_end(self) -> int:
        """How many matches are kept from the start of a log, and how many from its end."""
        return END_REPORTS_PER_END if self.role in _ROLES_OF_ENDS else MATCHES_PER_END


def left_out_note(owner: str, sign: str, problem: Exception) -> str:
    """Return the note about a rule whose pattern cannot be used."""
    return f"{owner} {sign}".strip() + f" is left out: {problem}"


class PatternTable:
    """The log patterns of a rulebook. Only its caches change, so threads may share it."""

    def __init__(self, book: Rulebook) -> None:
        self._owners: dict[str, list[PatternOwner]] = {}
        for each in _pattern_owners(book):
            self._owners.setdefault(each.pattern, []).append(each)
        self._number_of = {text: number for number, text in enumerate(self._owners)}
        patterns_of: dict[str, list[str]] = {}
        left_out: dict[str, None] = {}
        for text, signs in self._owners.items():
            try:
                for literal in book.literals.get(text) or literals(text):
                    patterns_of.setdefault(literal, []).append(text)
            except NoLiteralError as problem:
                left_out.update((left_out_note(each.owner, each.sign, problem), None) for each in signs)
        #: Notes about rules that cannot be used: one bad rule does not prevent a diagnosis.
        self.left_out = tuple(left_out)
        #: Finds the literals, by number.
        self.literals = LiteralScan(patterns_of)
        self._patterns_of = tuple(map(tuple, patterns_of.values()))
        #: `_texts_together`, from a cache.
        self.texts_together = lru_cache(maxsize=4096)(self._texts_together)
        self._in_header = {text for text, signs in self._owners.items() if signs[0].in_header}

    def texts(self, literal: int) -> tuple[str, ...]:
        """Return the patterns to try where the literal with that number is found."""
        return self._patterns_of[literal]

    def _texts_together(self, literals: tuple[int, ...], is_one_line: bool) -> tuple[str, ...]:  # noqa: FBT001
        """Return the patterns to try in a message with all of *literals*, which may be a one-line message."""
        found = {text for each in literals for text in self._patterns_of[each]}
        return self.in_order(text for text in found if not is_one_line or not is_over_lines(text))

    def in_order(self, texts: Iterable[str]) -> tuple[str, ...]:
        """Return the patterns *texts* in the order of the rules, since the first match of a sign counts."""
        return tuple(sorted(texts, key=self._number_of.__getitem__))

    def owners(self, text: str) -> list[PatternOwner]:
        """Return the signs that the pattern *text* is for."""
        return self._owners[text]

    def kept_per_end(self, text: str) -> int:
        """Return how many matches of the pattern *text* are kept from the start of a log, and from its end."""
        return max(each.kept_per_end for each in self._owners[text])

    def matching(self, texts: tuple[str, ...], message: str) -> tuple[str, ...]:
        """Return at least those of the patterns *texts* that match *message* or its heading."""
        return tuple(each for each in texts if each in self._in_header or self._may_match(each, message))

    def matching_any(self, texts: tuple[str, ...], text: str) -> tuple[str, ...]:
        """Return at least those of the patterns *texts* that match a message in *text*, and all for headings."""
        alone = {each for each in texts if each in self._in_header or not is_within_message(each)}
        return tuple(each for each in texts if each in alone or _may_match(each, text))

    def _may_match(self, text: str, message: str) -> bool:
        """Whether a pattern matches, and nothing rules it out for all signs that it is for."""
        unless = {each.unless for each in self._owners[text]}
        is_ruled_out = None not in unless and all(each is not None and _may_match(each, message) for each in unless)
        return _may_match(text, message) and not is_ruled_out


def _pattern_owners(book: Rulebook) -> Iterator[PatternOwner]:
    for owner, name, rule in book.log_rules():
        mark = rule if isinstance(rule, Landmark) else None
        ends = (("signal", mark.signal), ("status", mark.status)) if mark else ()
        for wording in rule.wordings:
            yield PatternOwner(
                owner=owner,
                sign=name,
                role=mark.role if mark else "sign",
                pattern=wording,
                unless=rule.unless,
                unless_in_line=mark.unless_in_line if mark else None,
                streams=rule.streams,
                implied=tuple((key, str(value)) for key, value in ends if value is not None),
                in_header=mark.in_header if mark else False,
                follows=mark.follows.lower().encode() if mark else b"",
            )


#: What is so in one line and among others alike: an end of a line, not of the text, and an end of a word.
_LINE_END, _LINE_START = "(?m:$)", "(?m:^)"
#: What may match a line end: escapes, and classes of characters.
_GROUP = re.compile(r"\([^()]*\)")
_INSIDE = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*(?:\]|\Z)", re.DOTALL)


def _may_match(text: str, message: str) -> bool:
    """Whether a pattern matches; True if it cannot be run."""
    try:
        return pattern(text).search(message) is not None
    except BadPatternError:
        return True


@lru_cache(maxsize=4096)
def is_within_message(text: str) -> bool:
    """Whether each match in a one-line message is also a match among other one-line messages."""
    others = text.replace(_LINE_END, "").replace(_LINE_START, "")
    has_anchor = re.search(r"\\[AZz]", others) or re.search(r"[\^$]", _INSIDE.sub("", others))
    return text.startswith("(?m)") or not has_anchor


@lru_cache(maxsize=4096)
def is_over_lines(text: str) -> bool:
    """Whether each match begins with a line end."""
    if not text.startswith(r"\n") or text[2:3] in ("?", "*", "{"):
        return False
    outer, inner = _INSIDE.sub("", text), ""
    while outer != inner:
        outer, inner = _GROUP.sub("", outer), outer
    return "|" not in outer


_S = TypeVar("_S", bound=Sign)
#: A sign with its cause.
SignOf: TypeAlias = tuple[Cause, _S]


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
        #: `_for_events_of`, from a cache: thousands of events have few topics, each worker's address among them.
        self.for_events_of = lru_cache(maxsize=1000)(self._for_events_of)
        #: Notes about signs whose patterns cannot be run.
        self.left_out = tuple(left_out)

    def _for_events_of(self, topic: str) -> Sequence[SignOf[EventSign]]:
        """Return the signs for events of *topic*."""
        return [
            each
            for wanted, signs in self._by_topic_pattern.items()
            if pattern(wanted).matches_whole(topic) or (wanted == "worker" and "://" in topic)
            for each in signs
        ]


def _signs_of(book: Rulebook) -> Iterator[tuple[Cause, Sign]]:
    return ((cause, sign) for cause in book.causes for sign in (*cause.signs, *cause.against))


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
    for _, sign in _signs_of(book):
        for text in pattern_texts(sign):
            with contextlib.suppress(BadPatternError):
                pattern(text)
                compilable[text] = ()
    return compilable


def _usable_signs(book: Rulebook, kind: type[_S], left_out: dict[str, None]) -> list[SignOf[_S]]:
    """Return the signs of one kind whose patterns can be run; notes about the others go to *left_out*."""
    known = book.literals if uses_re2() else {}  # patterns that were valid when the rules were compiled
    usable: list[SignOf[_S]] = []
    for cause, sign in _signs_of(book):
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
