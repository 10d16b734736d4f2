"""
Patterns of whose signs there are plenty in a log: of these only the last matches are still of interest.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from itertools import compress


class SaturatedPatterns:
    """
    The patterns that have matched often enough, and which literals that leaves to look at.
    """

    def __init__(self, texts_of: Callable[[int], tuple[str, ...]]) -> None:
        """
        None yet.

        Args:
            texts_of: The patterns of the literal of a number.
        """
        self.texts: set[str] = set()
        self._texts_of = texts_of
        #: Of patterns that are tried together, those that have not.
        self._fresh: dict[tuple[str, ...], tuple[str, ...]] = {}

    def add(self, text: str) -> None:
        """
        Note that the pattern *text* has matched often enough.
        """
        self.texts.add(text)
        self._fresh.clear()

    def begin_block(self) -> None:
        """
        Forget which patterns stood together in the block before.
        """
        self._fresh.clear()

    def without(self, texts: tuple[str, ...]) -> tuple[str, ...]:
        """
        The patterns of whose signs more are wanted.
        """
        if not self.texts:
            return texts
        if texts not in self._fresh:
            self._fresh[texts] = tuple(each for each in texts if each not in self.texts)
        return self._fresh[texts]

    def fresh_hits(self, packed: list[int], literal_count: int) -> list[int]:
        """
        Those of the *packed* hits that a pattern is wanted for of which there is no plenty.
        """
        if not self.texts:
            return packed
        literals = [each % literal_count for each in packed]
        is_fresh = {each: not self.texts.issuperset(self._texts_of(each)) for each in set(literals)}
        return list(compress(packed, map(is_fresh.__getitem__, literals)))

    def late_hits(self, packed: list[int], literal_count: int) -> array[int]:
        """
        Those of the *packed* hits that a pattern may match at of which there is plenty.
        """
        if not self.texts:
            return array("q")
        literals = [each % literal_count for each in packed]
        is_late = {each: not self.texts.isdisjoint(self._texts_of(each)) for each in set(literals)}
        return array("q", list(compress(packed, map(is_late.__getitem__, literals))))
