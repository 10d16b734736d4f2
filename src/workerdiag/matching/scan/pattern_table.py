"""
The log patterns of a rulebook: whose signs they are, and which literals lead to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from attrs import field, frozen

from workerdiag.matching.scan.literals import NoLiteralError, literals
from workerdiag.matching.scan.pattern_sets import PatternSets, is_over_lines, is_within_line
from workerdiag.matching.scan.prefilter import LiteralScan
from workerdiag.model.rules import Landmark, Rulebook
from workerdiag.model.vocabulary import MatchRole, Stream

#: This many sets of literals are remembered with the patterns to try.
_MAX_TOGETHER = 4096


@frozen(kw_only=True)
class PatternOwner:
    """
    A pattern and whose sign it is.
    """

    owner: str
    sign: str
    role: MatchRole
    pattern: str
    #: What rules the sign out where it matches in the message, or in the very lines.
    unless: str | None
    unless_in_line: str | None
    streams: tuple[Stream, ...]
    #: Captures that the message implies.
    implied: tuple[tuple[str, str], ...] = ()
    #: Whether the pattern is for ``logger - LEVEL - message``.
    in_header: bool = False
    #: The sign's owner, and its name.
    key: tuple[str, str] = field(init=False)

    @key.default
    def _key(self) -> tuple[str, str]:
        return self.owner, self.sign


def left_out_note(owner: str, sign: str, problem: Exception) -> str:
    """
    The note of a rule whose pattern cannot be used.
    """
    return f"{owner} {sign}".strip() + f" is left out: {problem}"


class PatternTable:
    """
    The log patterns of a rulebook. Safe to share between threads: only caches in it change.
    """

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
        #: Notes of rules that cannot be used: one bad rule does not cost the diagnosis.
        self.left_out = tuple(left_out)
        #: Finds the literals, which are numbered.
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
        """
        The patterns to try where the literal of that number stands.
        """
        return self._patterns_of[literal]

    def texts_together(self, literals: tuple[int, ...], is_one_line: bool) -> tuple[str, ...]:  # noqa: FBT001
        """
        The patterns to try in a message, of one line or another, in which all of *literals* stand.
        """
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
        """
        The patterns *texts* in the order of the rules: of two of a sign at one place, the first counts.
        """
        return tuple(sorted(texts, key=self._number_of.__getitem__))

    def owners(self, text: str) -> list[PatternOwner]:
        """
        Whose signs the pattern *text* is.
        """
        return self._owners[text]

    def matching(self, texts: tuple[str, ...], message: bytes) -> tuple[str, ...]:
        """
        Those of the patterns *texts* that match *message* (ASCII) or its heading, and maybe others.
        """
        headings, inside = self._split(texts)
        return (*headings, *self._sets.matching(inside, message)) if inside else headings

    def matching_any(self, texts: tuple[str, ...], text: bytes) -> tuple[str, ...]:
        """
        Those of the patterns *texts* that match one of the messages in *text* (ASCII), and maybe others.

        Those for headings are among the others.
        """
        headings, inside = self._split(texts)
        return (*headings, *self._sets.matching_any(inside, text)) if inside else headings

    def are_within_line(self, texts: tuple[str, ...]) -> bool:
        """
        Whether the patterns *texts* match the same in a line by itself and among whatever other lines.
        """
        return self._in_header.isdisjoint(texts) and all(map(is_within_line, texts))

    def _split(self, texts: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """
        The patterns for headings, and the others.
        """
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
            )


def _implied_captures(landmark: Landmark) -> tuple[tuple[str, str], ...]:
    pairs = (("signal", landmark.signal), ("status", landmark.status))
    return tuple((key, str(value)) for key, value in pairs if value is not None)
