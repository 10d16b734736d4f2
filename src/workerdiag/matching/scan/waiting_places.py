"""
Places that wait until it is clear whether their matches are of interest, and when they are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from attrs import define, field

from workerdiag.matching.messages.log_record import LogRecord
from workerdiag.matching.scan.confirmation import PatternHit
from workerdiag.matching.scan.look_back import LookBack
from workerdiag.matching.scan.pattern_table import PatternTable
from workerdiag.matching.scan.saturated_patterns import SaturatedPatterns
from workerdiag.matching.scan.tail_buffer import HeldText, HeldTexts, frequent
from workerdiag.matching.work_budget import WorkBudget

if TYPE_CHECKING:
    from workerdiag.matching.scan.sure_matches import SureMatches


@define
class WaitingPlaces:
    """
    Places of patterns of whose signs there is plenty, with the text around them.
    """

    table: PatternTable
    work: WorkBudget
    plenty: SaturatedPatterns
    #: Runs a pattern on a message.
    run: Callable[[str, LogRecord], Iterable[PatternHit]]
    _held: HeldTexts = field(factory=HeldTexts, init=False)

    @cached_property
    def _sure(self) -> SureMatches:
        from workerdiag.matching.scan.sure_matches import SureMatches  # of large logs alone

        return SureMatches(self.table, self.work)

    @property
    def base(self) -> int | None:
        """
        Absolute offset of the first byte that is held; None if there is none.
        """
        return self._held.base

    def begin_block(self) -> None:
        """
        Keep no more of the blocks than their bytes.
        """
        self._held.begin_block()

    def add(self, block: HeldText) -> list[PatternHit]:
        """
        Hold another block; matches that have to be looked at now, as there is no more room.
        """
        self._held.add(block)
        if not self._held.has_many_blocks:
            return []
        found = self._let_go(end := block.base + block.begin)
        if self._held.has_many_messages:
            found += self._found_in(self._held.take_messages()[::-1], self.plenty.texts, end)
        return found

    def finish(self, end: int) -> list[PatternHit]:
        """
        The last matches, those of all that waits, in a text of *end* bytes.
        """
        return self._found_in(self._held.take(), self.plenty.texts, end)

    def _found_in(self, held_texts: Iterable[HeldText], texts: Collection[str], end: int) -> list[PatternHit]:
        """
        The last matches of *texts* in what is held, which comes the last first.
        """
        last = self._look_back(texts, end)
        for held in held_texts:
            if not last.wanted:
                break
            last.search(held, held.spots_from_end(last.wanted, self.table, self.work))
        return last.found

    def _let_go(self, end: int) -> list[PatternHit]:
        """
        Let go of the older blocks.

        Of what later blocks surely have plenty of, nothing is done; what else is frequent is looked at, and
        messages of which there are few are cut out.
        """
        old = self._held.take_old_blocks()
        staying = self._held.blocks
        there = {text for block in old for literal in block.literals() for text in self.table.texts(literal)}
        there &= self.plenty.texts
        unsure = there - self._sure.enough(there, staying)
        many = frequent(unsure, (*old, *staying), self.table, self.work)
        found = self._found_in(reversed((*old, *staying)), many, end) if many else []
        for block in staying:
            block.done |= many
        return found + self._cut(old, unsure - many, end)

    def _cut(self, blocks: Sequence[HeldText], texts: Collection[str], end: int) -> list[PatternHit]:
        """
        Cut the messages of *texts* out of blocks; matches in those messages that cannot be cut out.
        """
        search = self._look_back(texts, end)
        spots_of = [(block, block.spots(texts, self.table, self.work)) for block in blocks if texts]
        for block, spots in spots_of:
            for message in block.messages(spots, self.work):
                self._held.add_message(message)
        for block, spots in reversed(spots_of):
            search.search(block, [[spot for spot in spots if spot.texts]])
        return search.found

    def _look_back(self, texts: Iterable[str], end: int) -> LookBack:
        wanted = {text: dict.fromkeys((each.key for each in self.table.wanted(text)), 0) for text in texts}
        return LookBack(self.table, self.work, self.run, end, wanted)
