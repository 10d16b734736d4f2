"""
Stage one: where in a block of bytes does any of many fixed texts stand?

Hyperscan does it in one pass over the bytes. Where its wheel is missing, ``bytes.find``
does: the same places, much slower.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from workerdiag.matching import database

if TYPE_CHECKING:
    import hyperscan

#: Scratch spaces that are kept for later scans.
_MOST_SPARE = 16


class LiteralScan:
    """
    A set of literals to look for, ignoring case. Safe to share between threads.

    Takes no lock, so that none outlives a fork, and a signal handler may scan in the midst of a scan.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts: tuple[bytes, ...] = tuple(each.lower().encode() for each in dict.fromkeys(texts))
        self._database: hyperscan.Database | None = None
        #: Scratch spaces that nobody uses. A scan takes one out, or makes one, and puts it back.
        self._spare: list[hyperscan.Scratch] = []

    def hits(self, block: bytes) -> Iterator[tuple[int, int]]:
        """
        Pairs of (offset of the last byte found, index of the text), in order.

        Args:
            block: The bytes to look through, less than 4 GiB.
        """
        if not self.texts:
            return
        count = len(self.texts)
        packed = self._scanned(block) if database.available() else self._found_one_by_one(block)
        packed.sort()
        for each in packed:
            yield divmod(each, count)

    def _found_one_by_one(self, block: bytes) -> list[int]:
        lowered = block.lower()
        count = len(self.texts)
        packed = []
        for index, text in enumerate(self.texts):
            at = lowered.find(text)
            while at >= 0:
                packed.append((at + len(text) - 1) * count + index)
                at = lowered.find(text, at + 1)
        return packed

    def _scanned(self, block: bytes) -> list[int]:
        """
        What was found, offset and index in one number: a hundred thousand pairs slow the interpreter down.
        """
        packed: list[int] = []
        count = len(self.texts)

        def found(index: int, _start: int, end: int, _flags: int, _context: object) -> None:
            packed.append((end - 1) * count + index)

        if self._database is None:
            self._database = database.database(self.texts)
        scratch = self._spare.pop() if self._spare else database.scratch(self._database)
        self._database.scan(block, match_event_handler=found, scratch=scratch)
        if len(self._spare) < _MOST_SPARE:
            self._spare.append(scratch)
        return packed
