"""
Patterns of whose signs there are plenty in a log: of these only the last matches are still of interest.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable


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
        stale = {
            literal
            for literal in {each % literal_count for each in packed}
            if self.texts.issuperset(self._texts_of(literal))
        }
        return [each for each in packed if each % literal_count not in stale] if stale else packed

    def late_hits(self, packed: list[int], literal_count: int) -> array[int]:
        """
        Those of the *packed* hits that a pattern may match at of which there is plenty.
        """
        late = {
            literal
            for literal in {each % literal_count for each in packed}
            if not self.texts.isdisjoint(self._texts_of(literal))
        }
        return array("q", [each for each in packed if each % literal_count in late] if late else ())
