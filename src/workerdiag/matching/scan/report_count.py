"""
Counts the reports of process ends in a log, including those that are not kept.

Only the first and last matches of a saturated pattern are kept, but every death counts. So the reports
between them are counted by the bytes of their messages. After a stop request nobody knows which ends were
requested, so counting stops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve

from workerdiag.matching.scan.confirmation import PatternHit
from workerdiag.matching.scan.pattern_table import PatternTable
from workerdiag.matching.work_budget import WorkBudget
from workerdiag.model.incident import END_ROLES

if TYPE_CHECKING:
    from workerdiag.matching.scan.sure_matches import SureTest
    from workerdiag.matching.scan.tail_block import TailBlock


class ReportCount:
    """
    Counts the reports of ends in one log.
    """

    def __init__(self, table: PatternTable, work: WorkBudget, counted: set[str]) -> None:
        """
        Create it with nothing counted.

        Args:
            table: The patterns.
            work: Receives the counts.
            counted: Receives the patterns of such reports while they are counted.
        """
        self.counted = counted
        self._table = table
        self._work = work
        #: For each pattern, the offset up to which its messages are counted.
        self._counted_to: dict[str, int] = {}
        #: Whether somebody asked for a stop: then the count is meaningless.
        self._is_void = False
        self._tests: dict[str, SureTest | None] = {}

    def add(self, hit: PatternHit) -> None:
        """
        Count a match of an unsaturated pattern. Matches come in order.
        """
        if hit.wanted.role in END_ROLES:
            self._work.reports[hit.wanted.owner] += 1
            self._counted_to[hit.wanted.pattern] = hit.at
            if not self._is_void:
                self.counted.add(hit.wanted.pattern)
        elif hit.wanted.role == "stop-request":
            self._is_void = True
            self.counted.clear()

    def add_late(self, block: TailBlock, saturated: set[str]) -> None:
        """
        Count the messages in a block that match *saturated* patterns.
        """
        for text in self._counted_to.keys() & saturated:
            owners = [each.owner for each in self._table.owners(text) if each.role in END_ROLES]
            count, is_sure = (0, False) if self._is_void else self._count_in(block, text)
            self._work.reports.update(dict.fromkeys(owners, count))
            if not is_sure:
                self._work.unsure_reports.update(owners)

    def _count_in(self, block: TailBlock, text: str) -> tuple[int, bool]:
        """
        Return the number of certain matches, and whether there are no others.
        """
        from workerdiag.matching.scan.sure_matches import PIECE_PLACES, sure_test  # for large logs

        if text not in self._tests:
            self._tests[text] = sure_test(text, self._table.owners(text))
        test, total, is_sure = self._tests[text], 0, True
        hits = block.hits((text,), self._work)
        for low in range(0, len(hits.packed), PIECE_PLACES):
            if test is None or not self._work.has_time():
                return total, False
            piece = evolve(hits, packed=hits.packed[low : low + PIECE_PLACES])
            starts, all_known = test.starts(block, piece, self._work)
            new = [each for each in starts if each > self._counted_to[text]]
            total += len(new)
            is_sure &= all_known
            if new:
                self._counted_to[text] = new[-1]
        return total, is_sure
