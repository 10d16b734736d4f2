"""The prefilter: many literals in a block of bytes, by hyperscan in one pass or, more slowly, by ``bytes.find``."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import compress
from typing import TYPE_CHECKING, Any

from workerdiag.deadline import NO_DEADLINE, Deadline
from workerdiag.values import evolve, frozen

if TYPE_CHECKING:
    import hyperscan

#: Bytes that two pieces overlap, so that a literal across their border is found in the second.
LONGEST_LITERAL = 256
#: Bytes of a piece. Time may run out after the first piece.
_PIECE_BYTES = 256 * 1024


@frozen
class LiteralHits:
    """Where literals end, in order, as packed numbers: a hundred thousand tuples would be slow."""

    #: For each hit, the offset of its last byte times *literal_count* plus the number of the literal.
    packed: Sequence[int]
    literal_count: int
    #: Bytes searched before time ran out.
    searched_bytes: int

    def first_from(self, offset: int) -> int:
        """Return the index of the first hit that ends at *offset* or later."""
        return bisect_left(self.packed, offset * self.literal_count)

    def select(self, is_wanted: Callable[[int], bool]) -> LiteralHits:
        """Return the hits of those literals, by number, that are wanted."""
        literals = [each % self.literal_count for each in self.packed]
        wanted = {each: is_wanted(each) for each in set(literals)}
        return evolve(self, packed=list(compress(self.packed, map(wanted.__getitem__, literals))))


class LiteralScan:
    """A set of literals to find, ignoring case. Threads, forks and signal handlers share it: it has no lock."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts: tuple[bytes, ...] = tuple(each.lower().encode() for each in dict.fromkeys(texts))
        self._database: hyperscan.Database | None = None

    def hits(self, block: bytes | memoryview, deadline: Deadline = NO_DEADLINE) -> LiteralHits:
        """Find the literals in *block* (less than 4 GiB) until *deadline*; the first piece is always searched."""
        packed: list[int] = []
        searched = 0
        view = memoryview(block)
        while self.texts and searched < len(block) and not (searched and deadline.is_over):
            begin = max(0, searched - LONGEST_LITERAL)
            part = view[begin : searched + _PIECE_BYTES]
            found = self._scanned(part, begin) if available() else self._found_one_by_one(bytes(part), begin)
            found.sort()
            packed += found[bisect_left(found, searched * len(self.texts)) :]
            searched = begin + len(part)
        searched = searched if self.texts else len(block)
        return LiteralHits(packed, len(self.texts), searched)

    def _found_one_by_one(self, block: bytes, begin: int) -> list[int]:
        lowered, count = block.lower(), len(self.texts)
        packed = []
        for index, text in enumerate(self.texts):
            at = lowered.find(text)
            while at >= 0:
                packed.append((begin + at + len(text) - 1) * count + index)
                at = lowered.find(text, at + 1)
        return packed

    def _scanned(self, block: memoryview, begin: int) -> list[int]:
        packed: list[int] = []
        count, before = len(self.texts), begin - 1

        def found(index: int, _start: int, end: int, _flags: int, _context: object) -> None:
            packed.append((before + end) * count + index)

        if self._database is None:
            self._database = _compile_database(self.texts)
        buffer: Any = block  # hyperscan takes any; its types know only text
        self._database.scan(buffer, match_event_handler=found, scratch=hyperscan.Scratch(self._database))
        return packed


class LogPrefilter:
    """The saturated patterns of one log: they have matched often enough, and only the last matches are wanted."""

    def __init__(self, texts_of: Callable[[int], tuple[str, ...]]) -> None:
        self.saturated: set[str] = set()
        self._texts_of = texts_of
        #: The unsaturated ones among patterns that are tried together.
        self._unsaturated = lru_cache(maxsize=4096)(
            lambda texts: tuple(each for each in texts if each not in self.saturated)
        )

    def saturate(self, text: str) -> None:
        """Note that the pattern *text* has matched often enough."""
        self.saturated.add(text)
        self._unsaturated.cache_clear()

    def unsaturated(self, texts: tuple[str, ...]) -> tuple[str, ...]:
        """Return those of the patterns *texts* that are not saturated."""
        return self._unsaturated(texts) if self.saturated else texts

    def fresh(self, hits: LiteralHits) -> LiteralHits:
        """Return the hits at which an unsaturated pattern may match."""
        if not self.saturated:
            return hits
        return hits.select(lambda literal: not self.saturated.issuperset(self._texts_of(literal)))

    def late(self, hits: LiteralHits, before: int) -> LiteralHits:
        """Return the hits before an offset at which a saturated pattern may match, in little memory."""
        searched = evolve(hits, packed=hits.packed[: hits.first_from(before)])
        late = searched.select(lambda literal: not self.saturated.isdisjoint(self._texts_of(literal)))
        return evolve(late, packed=array("q", late.packed))


try:
    import hyperscan
except ImportError:  # no wheel for this platform
    hyperscan = None  # type: ignore[assignment]


def available() -> bool:
    """Whether hyperscan is installed."""
    return hyperscan is not None


def _compile_database(texts: Sequence[bytes]) -> hyperscan.Database:
    """Return a database that reports the index of each of *texts*, ignoring case."""
    compiled = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    compiled.compile(
        expressions=list(texts),
        ids=list(range(len(texts))),
        elements=len(texts),
        flags=hyperscan.HS_FLAG_CASELESS,
        literal=True,
    )
    return compiled
