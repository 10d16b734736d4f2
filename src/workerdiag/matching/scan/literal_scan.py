"""
Stage one: where in a block of bytes does any of many fixed texts stand?

Hyperscan does it in one pass over the bytes. Where its wheel is missing, ``bytes.find``
does: the same places, much slower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from workerdiag.matching.scan import database
from workerdiag.matching.scan.work_budget import never

if TYPE_CHECKING:
    import hyperscan

#: A literal that straddles two pieces of text is found in the second, which begins so far before.
LONGEST_LITERAL = 256
#: The text is looked through in pieces of so many bytes; behind the first there may be no time for the next.
_PIECE_BYTES = 256 * 1024
#: Scratch spaces that are kept for later scans.
_MAX_SPARE = 16


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
        return self.hits_in_time(block, never)[0]

    def hits_in_time(
        self, block: bytes, is_over: Callable[[], bool]
    ) -> tuple[Iterator[tuple[int, int]], int]:
        """
        The same, and how many bytes were looked through until time was over; some are in any case.
        """
        count = len(self.texts)
        packed: list[int] = []
        searched = 0
        while self.texts and searched < len(block) and not (searched and is_over()):
            begin = max(0, searched - LONGEST_LITERAL)
            part = block[begin : searched + _PIECE_BYTES]
            found = self._scanned(part) if database.available() else self._found_one_by_one(part)
            packed += sorted(each + begin * count for each in found if begin + each // count >= searched)
            searched = begin + len(part)
        return (divmod(each, count) for each in packed), searched if self.texts else len(block)

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
        if len(self._spare) < _MAX_SPARE:
            self._spare.append(scratch)
        return packed
