"""The log patterns of a rulebook: their signs and their literals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from attrs import field, frozen

from workerdiag.matching.scan.literals import NoLiteralError, literals
from workerdiag.matching.scan.pattern_sets import PatternSets, is_over_lines, is_within_line
from workerdiag.matching.scan.prefilter import LiteralScan
from workerdiag.model.incident import END_ROLES
from workerdiag.model.rules import Landmark, Rulebook
from workerdiag.model.vocabulary import MatchRole, Stream

#: For each sign and log, this many matches are kept from the start, and as many from the end.
MATCHES_PER_END = 250
#: The same for reports of ends and for what explains them: each end counts.
END_REPORTS_PER_END = 400
_ROLES_OF_ENDS: frozenset[MatchRole] = END_ROLES | {"restart", "stop-request", "deregistered"}
#: Limit of the cache of patterns to try, by set of literals.
_MAX_TOGETHER = 4096


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
        self._together: dict[tuple[tuple[int, ...], bool], tuple[str, ...]] = {}
        self._sets = PatternSets(
            {
                text: frozenset(each.unless for each in signs if each.unless)
                for text, signs in self._owners.items()
                if all(each.unless for each in signs)
            }
        )
        self._in_header = {text for text, signs in self._owners.items() if signs[0].in_header}

    def texts(self, literal: int) -> tuple[str, ...]:
        """Return the patterns to try where the literal with that number is found."""
        return self._patterns_of[literal]

    def texts_together(self, literals: tuple[int, ...], is_one_line: bool) -> tuple[str, ...]:  # noqa: FBT001
        """Return the patterns to try in a message with all of *literals*, which may be a one-line message."""
        key = literals, is_one_line
        texts = self._together.get(key)
        if texts is None:
            if len(self._together) >= _MAX_TOGETHER:
                self._together.clear()
            found = {text for each in literals for text in self._patterns_of[each]}
            texts = self.in_order(text for text in found if not is_one_line or not is_over_lines(text))
            self._together[key] = texts
        return texts

    def in_order(self, texts: Iterable[str]) -> tuple[str, ...]:
        """Return the patterns *texts* in the order of the rules, since the first match of a sign counts."""
        return tuple(sorted(texts, key=self._number_of.__getitem__))

    def owners(self, text: str) -> list[PatternOwner]:
        """Return the signs that the pattern *text* is for."""
        return self._owners[text]

    def kept_per_end(self, text: str) -> int:
        """Return how many matches of the pattern *text* are kept from the start of a log, and from its end."""
        return max(each.kept_per_end for each in self._owners[text])

    def matching(self, texts: tuple[str, ...], message: bytes) -> tuple[str, ...]:
        """Return at least those of the patterns *texts* that match *message* (ASCII) or its heading."""
        headings, inside = self._split(texts)
        return (*headings, *self._sets.matching(inside, message)) if inside else headings

    def matching_any(self, texts: tuple[str, ...], text: bytes) -> tuple[str, ...]:
        """Return at least those of the patterns *texts* that match a message in *text* (ASCII).

        All patterns for headings are included.
        """
        headings, inside = self._split(texts)
        return (*headings, *self._sets.matching_any(inside, text)) if inside else headings

    def are_within_line(self, texts: tuple[str, ...]) -> bool:
        """Whether the matches of the patterns *texts* in a line do not depend on the lines around it."""
        return self._in_header.isdisjoint(texts) and all(map(is_within_line, texts))

    def _split(self, texts: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Split *texts* into the patterns for headings and the others."""
        if self._in_header.isdisjoint(texts):
            return (), texts
        headings = tuple(text for text in texts if text in self._in_header)
        return headings, tuple(text for text in texts if text not in self._in_header)


def _pattern_owners(book: Rulebook) -> Iterator[PatternOwner]:
    for owner, name, rule in book.log_rules():
        mark = rule if isinstance(rule, Landmark) else None
        for pattern in rule.wordings:
            yield PatternOwner(
                owner=owner,
                sign=name,
                role=mark.role if mark else "sign",
                pattern=pattern,
                unless=rule.unless,
                unless_in_line=mark.unless_in_line if mark else None,
                streams=rule.streams,
                implied=_implied_captures(mark) if mark else (),
                in_header=mark.in_header if mark else False,
                follows=mark.follows.lower().encode() if mark else b"",
            )


def _implied_captures(landmark: Landmark) -> tuple[tuple[str, str], ...]:
    pairs = (("signal", landmark.signal), ("status", landmark.status))
    return tuple((key, str(value)) for key, value in pairs if value is not None)
