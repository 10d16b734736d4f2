"""A block of a log that waits, since only the last matches of its patterns are still wanted."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Iterator

from attrs import define, evolve, field

from workerdiag.matching.messages.log_record import context_bounds
from workerdiag.matching.messages.log_window import LogWindow
from workerdiag.matching.scan.candidates import HEADER_BYTES, Candidate, find_candidates
from workerdiag.matching.scan.pattern_table import PatternTable
from workerdiag.matching.scan.prefilter import LiteralHits
from workerdiag.matching.work_budget import WorkBudget

#: Hits per piece. Pieces are searched from the end.
PIECE_HITS = 1024


@define(eq=False)
class TailBlock:
    """A block of a log, or a message cut out of one, with its hits of saturated patterns."""

    #: The block with its parsed lines.
    window: LogWindow
    #: Offset in the block that the hits count from, and the hits, packed as in `LiteralHits`.
    begin: int
    packed: array[int]
    table: PatternTable
    #: Literals that are present at places not known yet, and the range of those places.
    unplaced: frozenset[int] = frozenset()
    within: tuple[int, int] = (0, 0)
    _places: Counter[int] | None = field(default=None, init=False)

    @property
    def base(self) -> int:
        """Absolute offset of the first byte."""
        return self.window.base

    @property
    def searched_to(self) -> int:
        """Absolute offset behind the last place."""
        last = self.packed[-1] // len(self.table.literals.texts) + 1 if self.packed else 0
        return self.base + self.begin + last

    def place(self, work: WorkBudget) -> None:
        """Find the places of the unplaced literals."""
        if not self.unplaced:
            return
        low, high = self.within
        data = memoryview(self.window.data)[self.begin : high]
        hits = self.table.literals.hits(data, work.clock.deadline)
        work.late_bytes += len(data) - hits.searched_bytes
        count = hits.literal_count
        found = [each for each in hits.packed[hits.first_from(low) :] if each % count in self.unplaced]
        self.packed = array("q", sorted((*self.packed, *found)))
        self.unplaced = frozenset()
        self._places = None

    def texts(self) -> set[str]:
        """Return the patterns that may match in the block."""
        literals = self.places().keys() | self.unplaced
        return {text for literal in literals for text in self.table.texts(literal)}

    def places(self) -> Counter[int]:
        """Return the number of known places of each literal."""
        if self._places is None:
            count = len(self.table.literals.texts)
            self._places = Counter([each % count for each in self.packed])
        return self._places

    def hits(self, texts: Collection[str], work: WorkBudget) -> LiteralHits:
        """Return the hits at which one of the patterns *texts* may match."""
        if any(text in texts for each in self.unplaced for text in self.table.texts(each)):
            self.place(work)
        count = len(self.table.literals.texts)
        wanted = {each for each in self.places() if any(text in texts for text in self.table.texts(each))}
        return LiteralHits([each for each in self.packed if each % count in wanted], count, 0)

    def candidates_from_end(self, texts: Collection[str], work: WorkBudget) -> Iterator[list[Candidate]]:
        """Yield the candidates of the patterns *texts* in pieces, the last piece first."""
        hits = self.hits(texts, work)
        for end in range(len(hits.packed), 0, -PIECE_HITS):
            piece = evolve(hits, packed=hits.packed[max(0, end - PIECE_HITS) : end])
            yield list(find_candidates(self.window.data, self.begin, piece, self.table.texts_together))

    def message(self, candidate: Candidate, work: WorkBudget) -> TailBlock | None:
        """Cut the message of *candidate* out with its context; None if its bytes do not identify it."""
        window = self.window
        if candidate.bounds is None:
            return None
        bounds = context_bounds(window.data, *candidate.bounds, HEADER_BYTES)
        if bounds is None:
            return None
        start, end = bounds
        newlines = window.newlines_before(window.base + start)
        shift = (self.begin - start) * len(self.table.literals.texts)
        return TailBlock(
            window=LogWindow(window.data[start:end], window.base + start, work, newlines),
            begin=0,
            packed=array("q", [each + shift for each in candidate.hits]),
            table=self.table,
        )
