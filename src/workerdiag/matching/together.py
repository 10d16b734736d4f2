"""
Several patterns at once: which of them match a message, found in one pass over it.

A worker that dies again and again says the same each time, and the same patterns are tried each
time, most of them in vain. From some number of times on these are compiled into one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workerdiag.matching.regex import Generation, pattern_set

#: So many times the same patterns are tried one by one.
_TIMES_APART = 24
#: Only short messages, and so many patterns, are searched for at once; so many groups of them are known.
_MOST_CHARS = 2_000
_PATTERNS = range(3, 65)
_MOST_GROUPS = 4096
_MOST_SETS = 128


class Together:
    """
    Groups of patterns that are tried together. Safe to share between threads.
    """

    def __init__(self) -> None:
        self._times: dict[tuple[str, ...], int] = {}
        self._sets: dict[tuple[str, ...], Any] = {}
        self._made_in = Generation.now

    def matching(self, texts: tuple[str, ...], message: str) -> Sequence[str]:
        """
        Those of the patterns *texts* that match *message*, and maybe others: all, where that is not known.
        """
        if len(texts) not in _PATTERNS or len(message) > _MOST_CHARS or not message.isascii():
            return texts
        if self._made_in != Generation.now:
            self._made_in, self._sets = Generation.now, {}
        if texts not in self._sets:
            self._count(texts)
            return texts
        found = self._sets[texts].Match(message.encode()) if self._sets[texts] is not None else None
        # the last one matches everything: where it does not, the engine ran out of memory
        if not found or len(texts) not in found:
            return texts
        return [texts[number] for number in sorted(found) if number < len(texts)]

    def _count(self, texts: tuple[str, ...]) -> None:
        times = self._times.get(texts, 0) + 1
        if len(self._times) >= _MOST_GROUPS:
            self._times.clear()
        self._times[texts] = times
        if times >= _TIMES_APART and len(self._sets) < _MOST_SETS:
            self._sets[texts] = pattern_set((*texts, ""))
