"""The prefilter: finds many literals in a block of bytes.

Hyperscan finds them in one pass. Without its wheel, ``bytes.find`` finds the same places, much more slowly.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import compress
from typing import TYPE_CHECKING, Any

from attrs import frozen

from workerdiag.deadline import NO_DEADLINE, Deadline
from workerdiag.matching.scan import database_cache

if TYPE_CHECKING:
    import hyperscan

#: Bytes that two pieces overlap, so that a literal across their border is found in the second.
LONGEST_LITERAL = 256
#: Bytes of a piece. Time may run out after the first piece.
_PIECE_BYTES = 256 * 1024
#: After this many hits of saturated patterns a smaller database is compiled: both cost about 0.1 s.
STALE_PLACES = 150_000
#: Limit of the cache of unsaturated patterns.
_MAX_KNOWN = 4096
#: Scratch spaces to keep for later scans.
_MAX_SPARE = 16


@frozen
class LiteralHits:
    """Where literals end, in order, as packed numbers: a hundred thousand tuples would be slow."""

    #: For each hit, the offset of its last byte times *literal_count* plus the number of the literal.
    packed: list[int]
    literal_count: int
    #: Bytes searched before time ran out.
    searched_bytes: int
    #: Literals that may be present at unknown places.
    unplaced: frozenset[int] = frozenset()

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return (divmod(each, self.literal_count) for each in self.packed)

    def first_from(self, offset: int) -> int:
        """Return the index of the first hit that ends at *offset* or later."""
        return bisect_left(self.packed, offset * self.literal_count)


class LiteralScan:
    """A set of literals to find, ignoring case. Threads may share it.

    It takes no lock, so no lock survives a fork, and a signal handler may scan during a scan.
    """

    def __init__(self, texts: Iterable[str], unplaced: frozenset[int] = frozenset()) -> None:
        """Create it; nothing is compiled yet.

        Args:
            texts: The literals.
            unplaced: Numbers of the literals whose places are not reported.
        """
        self.texts: tuple[bytes, ...] = tuple(each.lower().encode() for each in dict.fromkeys(texts))
        self._unplaced = unplaced
        self._database: hyperscan.Database | None = None
        #: Unused scratch spaces. A scan takes one or makes one, and puts it back.
        self._spare: list[hyperscan.Scratch] = []

    def hits(self, block: bytes | memoryview, deadline: Deadline = NO_DEADLINE) -> LiteralHits:
        """Find the literals in *block* (less than 4 GiB) until *deadline*; the first piece is always searched."""
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

    def without_places(self, literals: frozenset[int]) -> LiteralScan:
        """Return a scan that reports the presence of *literals* without their places, if that is quicker."""
        if not database_cache.available():
            return self
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


class LogPrefilter:
    """The prefilter of one log, with its saturated patterns: those that have matched often enough.

    Of a saturated pattern only the last matches are still wanted. If its literals are frequent, the scan no
    longer reports their places: reporting each one is the most expensive part of a scan.
    """

    def __init__(self, literals: LiteralScan, texts_of: Callable[[int], tuple[str, ...]]) -> None:
        """Create it without saturated patterns.

        Args:
            literals: Finds the literals of all patterns.
            texts_of: Returns the patterns of a literal, by its number.
        """
        self.saturated: set[str] = set()
        #: Patterns whose matches are counted, so that all their places are wanted.
        self.counted: set[str] = set()
        self._all = self._literals = literals
        self._texts_of = texts_of
        self._unplaced: frozenset[int] = frozenset()
        self._stale_places = 0
        #: The unsaturated ones among patterns that are tried together.
        self._unsaturated: dict[tuple[str, ...], tuple[str, ...]] = {}

    def hits(self, block: memoryview, deadline: Deadline) -> LiteralHits:
        """Find the literals in *block* until *deadline*."""
        return self._literals.hits(block, deadline)

    def saturate(self, text: str) -> None:
        """Note that the pattern *text* has matched often enough."""
        self.saturated.add(text)
        self._unsaturated.clear()

    def unsaturated(self, texts: tuple[str, ...]) -> tuple[str, ...]:
        """Return those of the patterns *texts* that are not saturated."""
        if not self.saturated:
            return texts
        if texts not in self._unsaturated:
            if len(self._unsaturated) > _MAX_KNOWN:
                self._unsaturated.clear()
            self._unsaturated[texts] = tuple(each for each in texts if each not in self.saturated)
        return self._unsaturated[texts]

    def fresh(self, packed: list[int]) -> list[int]:
        """Return the *packed* hits at which an unsaturated pattern may match."""
        if not self.saturated:
            return packed
        return self._select(packed, lambda texts: not self.saturated.issuperset(texts))

    def late(self, packed: list[int]) -> array[int]:
        """Return the *packed* hits at which a saturated pattern may match."""
        if not self.saturated:
            return array("q")
        return array("q", self._select(packed, lambda texts: not self.saturated.isdisjoint(texts)))

    def _select(self, packed: list[int], is_wanted: Callable[[tuple[str, ...]], bool]) -> list[int]:
        count = len(self._all.texts)
        literals = [each % count for each in packed]
        wanted = {each: is_wanted(self._texts_of(each)) for each in set(literals)}
        return list(compress(packed, map(wanted.__getitem__, literals)))

    def count_stale(self, places: int) -> None:
        """Count hits of saturated patterns. Beyond a limit, their places are no longer reported."""
        self._stale_places += places
        if self._stale_places > STALE_PLACES:
            self._stale_places = 0
            unwanted, numbers = self.saturated - self.counted, range(len(self._all.texts))
            stale = frozenset(each for each in numbers if unwanted.issuperset(self._texts_of(each)))
            if stale != self._unplaced:
                self._unplaced, self._literals = stale, self._all.without_places(stale)
