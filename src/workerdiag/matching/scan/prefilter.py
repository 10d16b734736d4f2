"""
Stage one: where in a block of bytes does any of many fixed texts stand?

Hyperscan does it in one pass over the bytes. Where its wheel is missing, ``bytes.find``
does: the same places, much slower.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from attrs import frozen

from workerdiag.deadline import NO_DEADLINE, Deadline
from workerdiag.matching.scan import database_cache

if TYPE_CHECKING:
    import hyperscan

#: A literal that straddles two pieces of text is found in the second, which begins so far before.
LONGEST_LITERAL = 256
#: The text is looked through in pieces of so many bytes; behind the first there may be no time for the next.
_PIECE_BYTES = 256 * 1024
#: Hits are looked at in pieces of so many: behind each, some patterns may not be wanted any longer.
PIECE_HITS = 1024
#: Scratch spaces that are kept for later scans.
_MAX_SPARE = 16


@frozen
class LiteralHits:
    """
    Where literals end, in order; a hundred thousand pairs would slow the interpreter down.
    """

    #: Each the offset of the last byte, times *literal_count*, plus the index of the literal.
    packed: list[int]
    literal_count: int
    #: Up to where there was time to look.
    searched_bytes: int
    #: Literals of which it is only known that they may be there.
    unplaced: frozenset[int] = frozenset()

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return (divmod(each, self.literal_count) for each in self.packed)

    def first_from(self, offset: int) -> int:
        """
        Number of the first hit that ends at *offset* or behind it.
        """
        return bisect_left(self.packed, offset * self.literal_count)


class LiteralScan:
    """
    A set of literals to look for, ignoring case. Safe to share between threads.

    Takes no lock, so that none outlives a fork, and a signal handler may scan in the midst of a scan.
    """

    def __init__(self, texts: Iterable[str], unplaced: frozenset[int] = frozenset()) -> None:
        """
        Nothing is compiled yet.

        Args:
            texts: The literals.
            unplaced: The numbers of those whose places are not told.
        """
        self.texts: tuple[bytes, ...] = tuple(each.lower().encode() for each in dict.fromkeys(texts))
        self._unplaced = unplaced
        self._database: hyperscan.Database | None = None
        #: Scratch spaces that nobody uses. A scan takes one out, or makes one, and puts it back.
        self._spare: list[hyperscan.Scratch] = []

    def hits(self, block: bytes | memoryview, deadline: Deadline = NO_DEADLINE) -> LiteralHits:
        """
        What stands in *block*, of less than 4 GiB, up to where *deadline* passes; a part in any case.
        """
        packed: list[int] = []
        unplaced: set[int] = set()
        searched = 0
        view = memoryview(block)
        while self.texts and searched < len(block) and not (searched and deadline.is_over):
            begin = max(0, searched - LONGEST_LITERAL)
            part = view[begin : searched + _PIECE_BYTES]
            found = (
                self._scanned(part, begin)
                if database_cache.available()
                else self._found_one_by_one(bytes(part), begin)
            )
            if self._unplaced:
                there = [each % len(self.texts) for each in found]
                unplaced |= self._unplaced.intersection(there)
                found = [each for each, one in zip(found, there, strict=True) if one not in self._unplaced]
            found.sort()
            packed += found[bisect_left(found, searched * len(self.texts)) :]
            searched = begin + len(part)
        searched = searched if self.texts else len(block)
        return LiteralHits(packed, len(self.texts), searched, frozenset(unplaced))

    def without_places(self, literals: frozenset[int]) -> LiteralScan | None:
        """
        The same that tells of *literals* whether they are there, no more; None where that is no quicker.
        """
        if not database_cache.available():
            return None
        return LiteralScan((text.decode() for text in self.texts), literals)

    def _found_one_by_one(self, block: bytes, begin: int) -> list[int]:
        lowered = block.lower()
        count = len(self.texts)
        packed = []
        for index, text in enumerate(self.texts):
            at = lowered.find(text)
            while at >= 0:
                packed.append((begin + at + len(text) - 1) * count + index)
                at = lowered.find(text, at + 1)
        return packed

    def _scanned(self, block: memoryview, begin: int) -> list[int]:
        packed: list[int] = []
        count = len(self.texts)
        before = begin - 1

        def found(index: int, _start: int, end: int, _flags: int, _context: object) -> None:
            packed.append((before + end) * count + index)

        if self._database is None:
            self._database = database_cache.database(self.texts, once=self._unplaced)
        scratch = self._spare.pop() if self._spare else database_cache.scratch(self._database)
        buffer: Any = block  # hyperscan takes any; its types know only text
        self._database.scan(buffer, match_event_handler=found, scratch=scratch)
        if len(self._spare) < _MAX_SPARE:
            self._spare.append(scratch)
        return packed
