"""
How many reports of ends there are in a log, beyond those that are kept.

Of a sign of which there is plenty only the last matches are made. How many workers died is still to be said,
so the reports of ends between are counted, by the bytes of their messages alone; but not where somebody asked
for a stop, as nobody knows then which of them were asked for.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import define, field

from workerdiag.matching.scan.candidates import find_candidates, line_start, single_line_message
from workerdiag.matching.scan.confirmation import PatternHit
from workerdiag.matching.scan.pattern_table import PatternTable
from workerdiag.matching.scan.prefilter import LiteralHits
from workerdiag.matching.scan.sure_matches import SureTest, sure_test
from workerdiag.matching.scan.tail_buffer import HeldText
from workerdiag.matching.work_budget import WorkBudget
from workerdiag.model.incident import END_ROLES

#: So many places are looked at together.
_GROUP = 128


@define
class ReportCount:
    """
    Counts the reports of ends in one log.
    """

    table: PatternTable
    work: WorkBudget
    #: Of each pattern the place behind which its messages are not counted yet.
    _counted_to: dict[str, int] = field(factory=dict, init=False)
    #: Whether somebody asked for a stop: then the number tells nothing.
    _is_void: bool = field(default=False, init=False)
    _tests: dict[str, SureTest | None] = field(factory=dict, init=False)

    def add(self, hit: PatternHit) -> None:
        """
        Count a match; those come in order, as long as there is no plenty.
        """
        if hit.wanted.role in END_ROLES:
            self.work.reports[hit.wanted.owner] += 1
            self._counted_to[hit.wanted.pattern] = hit.at
        elif hit.wanted.role == "stop-request":
            self._is_void = True

    def add_late(self, held: HeldText, plenty: set[str]) -> None:
        """
        Count the messages in a block that match the patterns of which there is *plenty*.
        """
        for text in self._counted_to.keys() & plenty:
            owners = [each.owner for each in self.table.wanted(text) if each.role in END_ROLES]
            count, is_sure = (0, False) if self._is_void else self._count_in(held, text)
            self.work.reports.update(dict.fromkeys(owners, count))
            if not is_sure:
                self.work.unsure_reports.update(owners)

    def _count_in(self, held: HeldText, text: str) -> tuple[int, bool]:
        """
        How many messages surely match, and whether no others may.
        """
        if text not in self._tests:
            self._tests[text] = sure_test(text, self.table.wanted(text))
        test, total, is_sure = self._tests[text], 0, True
        for hits in self._hits(held, text):
            if test is None or not self.work.has_time():
                return total, False
            starts, all_known = self._starts_of(test, held, hits)
            new = [each for each in starts if each > self._counted_to[text]]
            total += len(new)
            is_sure &= all_known
            if new:
                self._counted_to[text] = new[-1]
        return total, is_sure

    def _starts_of(self, test: SureTest, held: HeldText, hits: LiteralHits) -> tuple[list[int], bool]:
        """
        Where the messages at *hits* begin that surely match, and whether no others may.
        """
        data = held.data
        starts = dict.fromkeys(line_start(data, held.begin + at) for at, _ in hits)
        messages = [single_line_message(data, start) for start in starts if start >= 0]
        self.work.spend(sum(len(each or b"") for each in messages), 0, again=True)
        if len(messages) == len(starts) and test.all_pass(messages):
            return [held.base + each for each in starts], True
        found: list[int] = []
        is_sure = True
        for spot in find_candidates(data, held.begin, hits, self.table.texts):
            if spot.bounds is not None and test.passes(data, spot):
                found.append(held.base + spot.bounds[0])
            elif spot.message is None or self.table.matching((test.text,), spot.message):
                is_sure = False
        return found, is_sure

    def _hits(self, held: HeldText, text: str) -> Iterator[LiteralHits]:
        """
        The places of a pattern in a block, in groups.
        """
        count = held.literal_count
        own = {each for each in held.literals() if text in self.table.texts(each)}
        if own & held.unplaced:
            held.place(self.table, self.work)
        packed = [each for each in held.packed if each % count in own]
        for low in range(0, len(packed), _GROUP):
            yield LiteralHits(packed[low : low + _GROUP], count, 0)
