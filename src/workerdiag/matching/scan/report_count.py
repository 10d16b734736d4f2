"""Counts the reports of process ends in a log, including those that are not kept.

Only the first and last matches of a saturated pattern are kept, but every death counts. So the reports
between them are counted by the bytes of their messages. After a stop request nobody knows which ends were
requested, so counting stops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve

from workerdiag.matching.messages.log_record import follows
from workerdiag.matching.scan.confirmation import PatternHit
from workerdiag.matching.scan.pattern_table import PatternTable
from workerdiag.matching.work_budget import WorkBudget
from workerdiag.model.incident import END_ROLES

if TYPE_CHECKING:
    from workerdiag.matching.scan.sure_matches import SureTest
    from workerdiag.matching.scan.tail_block import TailBlock


class ReportCount:
    """Counts the reports of ends in one log."""

    def __init__(self, table: PatternTable, work: WorkBudget, counted: set[str]) -> None:
        """Create it with nothing counted.

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
        """Count a match of an unsaturated pattern. Matches come in order."""
        if hit.wanted.role in END_ROLES:
            self._work.reports[hit.wanted.owner] += 1
            self._work.following[hit.wanted.owner] += hit.follows
            self._counted_to[hit.wanted.pattern] = hit.at
            if not self._is_void:
                self.counted.add(hit.wanted.pattern)
        elif hit.wanted.role == "stop-request":
            self._is_void = True
            self.counted.clear()

    def add_late(self, block: TailBlock, saturated: set[str]) -> None:
        """Count the messages in a block that match *saturated* patterns."""
        for text in self._counted_to.keys() & saturated:
            owners = [each for each in self._table.owners(text) if each.role in END_ROLES]
            starts, is_sure = ([], False) if self._is_void else self._starts_in(block, text)
            for each in owners:
                self._work.reports[each.owner] += len(starts)
                if each.follows:
                    places = (start - block.base for start in starts)
                    those = (follows(block.window.data, place, each.follows) for place in places)
                    self._work.following[each.owner] += sum(those)
                if not is_sure:
                    self._work.unsure_reports.add(each.owner)

    def _starts_in(self, block: TailBlock, text: str) -> tuple[list[int], bool]:
        """Return the offsets of the certain new matches, and whether there are no others."""
        from workerdiag.matching.scan.sure_matches import PIECE_PLACES, sure_test  # for large logs

        if text not in self._tests:
            self._tests[text] = sure_test(text, self._table.owners(text))
        test, found, is_sure = self._tests[text], list[int](), True
        hits = block.hits((text,), self._work)
        for low in range(0, len(hits.packed), PIECE_PLACES):
            if test is None or not self._work.has_time():
                return found, False
            piece = evolve(hits, packed=hits.packed[low : low + PIECE_PLACES])
            starts, all_known = test.starts(block, piece, self._work)
            new = [each for each in starts if each > self._counted_to[text]]
            found += new
            is_sure &= all_known
            if new:
                self._counted_to[text] = new[-1]
        return found, is_sure
