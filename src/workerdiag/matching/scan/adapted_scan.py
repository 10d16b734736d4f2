"""
Stage one, adapted to a log: where literals of which there is plenty stand, nobody asks until later.

A scan tells of each place, and that is what it takes longest for in a log that is full of them.
"""

from __future__ import annotations

from attrs import define, field

from workerdiag.matching.scan.pattern_table import PatternTable
from workerdiag.matching.scan.prefilter import LiteralHits, LiteralScan
from workerdiag.matching.scan.saturated_patterns import SaturatedPatterns
from workerdiag.matching.work_budget import WorkBudget

#: After so many places that were told in vain, another scan is compiled: both take about 0.1 s.
STALE_PLACES = 150_000


@define
class AdaptedScan:
    """
    The literals of a table, those of saturated patterns without their places where these are many.
    """

    table: PatternTable
    plenty: SaturatedPatterns
    _scan: LiteralScan | None = field(default=None, init=False)
    _without: frozenset[int] = field(default=frozenset(), init=False)
    _stale: int = field(default=0, init=False)

    def hits(self, block: memoryview, work: WorkBudget) -> LiteralHits:
        """
        What stands in *block*, up to where there was time to look.
        """
        if self._scan is None:
            return self.table.candidates(block, work)
        return self._scan.hits(block, work.clock.deadline)

    def count_stale(self, places: int, literal_count: int) -> None:
        """
        Note how many places were of saturated patterns alone; from some number on, they are no longer told.
        """
        self._stale += places
        if self._stale > STALE_PLACES:
            self._stale = 0
            texts_of, literals = self.table.texts, range(literal_count)
            stale = frozenset(each for each in literals if self.plenty.texts.issuperset(texts_of(each)))
            if stale != self._without:
                self._without, self._scan = stale, self.table.scan_without_places(stale)
