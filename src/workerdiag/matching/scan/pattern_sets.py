"""
Several patterns at once: which of them match a message, found in one pass over it.

A worker that dies again and again says the same each time, and the same patterns are tried each
time, most of them in vain. From some number of times on these are compiled into one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from workerdiag.matching.regex import Generation, pattern_set

#: So many times the same patterns are tried one by one in a generation.
_TIMES_APART = 24
#: Only short messages, and so many patterns, are searched for at once; so many groups of them are known.
_MAX_CHARS = 2_000
_PATTERNS = range(1, 65)
_MAX_GROUPS = 4096
_MAX_SETS = 128
_MOST_KNOWN = 1000
#: What no message shows.
_NEVER = frozenset({-1})


@frozen
class _Group:
    """
    Patterns as one.
    """

    #: The patterns, what rules some of them out, and last a pattern that always matches.
    compiled: Any
    count: int
    texts: tuple[str, ...]
    #: By the number of a pattern, the numbers of those that rule it out when all of them match.
    ruled_out_by: Mapping[int, frozenset[int]]
    #: What it came to, by what the engine found.
    known: dict[tuple[int, ...], tuple[str, ...]] = field(factory=dict)

    def matching(self, message: bytes) -> tuple[str, ...]:
        """
        The patterns that match *message* and are not ruled out; all, where the engine ran out of memory.
        """
        found = tuple(self.compiled.Match(message))
        left = self.known.get(found)
        if left is None:
            if len(self.known) >= _MOST_KNOWN:
                self.known.clear()
            left = self.known[found] = self._left(frozenset(found))
        return left

    def _left(self, found: frozenset[int]) -> tuple[str, ...]:
        if self.count - 1 not in found:
            return self.texts
        return tuple(
            text
            for number, text in enumerate(self.texts)
            if number in found and not (self.ruled_out_by.get(number, _NEVER) <= found)
        )


class PatternGroups:
    """
    Groups of patterns that are tried together. Safe to share between threads.
    """

    def __init__(self, unless: Mapping[str, frozenset[str]]) -> None:
        """
        Nothing is compiled yet.

        Args:
            unless: By pattern, those that rule it out in a message where all of them match.
        """
        self._unless = unless
        self._times: dict[tuple[str, ...], int] = {}
        self._groups: dict[tuple[str, ...], _Group | None] = {}
        self._made_in = Generation.now

    def matching(self, texts: tuple[str, ...], message: bytes) -> tuple[str, ...]:
        """
        Those of the patterns *texts* that match *message*, and maybe others: all, where that is not known.

        Args:
            texts: Patterns.
            message: ASCII text.
        """
        if len(texts) not in _PATTERNS or len(message) > _MAX_CHARS:
            return texts
        if self._made_in != Generation.now:
            self._groups = {}  # first, so that no other thread uses a group of before
            self._times = {}
            self._made_in = Generation.now
        groups = self._groups
        if texts not in groups:
            self._count_use(texts)
            return texts
        group = groups[texts]
        return group.matching(message) if group is not None else texts

    def _count_use(self, texts: tuple[str, ...]) -> None:
        times = self._times.get(texts, 0) + 1
        if len(self._times) >= _MAX_GROUPS:
            self._times.clear()
        self._times[texts] = times
        if times >= _TIMES_APART and len(self._groups) < _MAX_SETS:
            self._groups[texts] = self._group(texts)

    def _group(self, texts: tuple[str, ...]) -> _Group | None:
        ruling = (each for text in texts for each in sorted(self._unless.get(text, ())))
        whole = tuple(dict.fromkeys((*texts, *ruling, "")))
        compiled = pattern_set(whole)
        if compiled is None:
            return None
        numbers = {text: number for number, text in enumerate(whole)}
        ruled_out_by = {
            numbers[text]: frozenset(numbers[each] for each in self._unless[text])
            for text in texts
            if text in self._unless
        }
        return _Group(compiled, len(whole), texts, ruled_out_by)
