"""
What searching one log may cost: a fixed amount for each of its bytes.

Ordinary logs cost a small part of it. A text that is made of nothing but literals of rules uses it up;
what is then left out is counted, so that a report can say so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from attrs import define, field

from workerdiag.deadline import MORE_TIME, GraceDeadline
from workerdiag.model.evidence import Gap
from workerdiag.model.vocabulary import Place

#: What a text may cost for each of its bytes, and beside that, in units of one character searched.
COST_PER_BYTE = 96
FIRST_COST = 16 * 2**20
#: What a run of a pattern costs besides the characters of its message, and each place that it finds.
RUN_COST = 512
FOUND_COST = 512
#: What each line of a message costs; there are texts of nothing but line ends.
LINE_COST = 128
#: The clock is read once for this many lines.
_LINES_PER_LOOK = 32


@define
class WorkBudget:
    """
    What was done for one log, and what was left undone.
    """

    #: Of all logs together; a few looks at the clock find time left, so that something is searched.
    clock: GraceDeadline = field(factory=GraceDeadline)
    #: Runs of patterns, and characters that they searched.
    runs: int = 0
    searched_chars: int = 0
    #: Bytes that were taken apart as lines, and those that were put into messages.
    line_bytes: int = 0
    gathered_bytes: int = 0
    #: Bytes that were not searched closely: there was too much to look at, or no time left.
    skipped_bytes: int = 0
    late_bytes: int = 0
    is_late: bool = False
    #: Rules whose patterns could not be run, and why: one bad rule does not cost the diagnosis.
    left_out: dict[str, None] = field(factory=dict)
    #: Whether all matches are kept: not only the first and the last of each sign.
    keeps_all: bool = False
    #: How many reports of ends there are of each landmark, at least; and those of which there may be more.
    reports: Counter[str] = field(factory=Counter)
    unsure_reports: set[str] = field(factory=set)
    _spent: int = field(default=0, init=False)
    _spent_again: int = field(default=0, init=False)
    _skipped_from: int | None = field(default=None, init=False)
    #: Lines until the clock is read again.
    _lines_left: int = field(default=1, init=False)

    def may_search(self, at: int) -> bool:
        """
        Whether a closer look at byte *at* is within what the text up to there may cost.
        """
        is_over = self._spent > FIRST_COST + COST_PER_BYTE * at
        if is_over and self._skipped_from is None:
            self._skipped_from = at
        elif not is_over:
            self.count_skipped(at)
        return not is_over

    def count_skipped(self, at: int) -> None:
        """
        Count what was left out up to byte *at*.
        """
        if self._skipped_from is not None:
            self.skipped_bytes += max(0, at - self._skipped_from)
            self._skipped_from = None

    def may_search_again(self, end: int) -> bool:
        """
        Whether another look at the end of the text, up to byte *end*, is within what that may cost.
        """
        return self._spent_again <= FIRST_COST + COST_PER_BYTE * end

    def gather(self, chars: int, lines: int) -> None:
        """
        Count a message that was put together.
        """
        self.gathered_bytes += chars
        self._spent += LINE_COST * lines
        self._lines_left -= lines

    def spend(self, chars: int, found: int, *, again: bool) -> None:
        """
        Count a run of a pattern over a number of characters, and the places that it found.
        """
        self.runs += 1
        self.searched_chars += chars
        cost = RUN_COST + chars + FOUND_COST * found
        if again:
            self._spent_again += cost
        else:
            self._spent += cost

    def has_time(self) -> bool:
        """
        Whether there is time left, by a clock that is not read every time.
        """
        self._lines_left -= 1
        if self._lines_left <= 0 and not self.is_late:
            self._lines_left = _LINES_PER_LOOK
            self.is_late = self.clock.is_over()
        return not self.is_late

    def gaps(self, source: str, place: Place, what: str) -> Iterator[Gap]:
        """
        What to say of that which was left out of *source*, counted in *what*.
        """
        if self.late_bytes:
            yield Gap(
                source=source,
                place=place,
                reason="timed-out",
                detail=f"{self.late_bytes} {what} were not searched",
                remedy=MORE_TIME,
            )
        if self.skipped_bytes:
            yield Gap(
                source=source,
                place=place,
                reason="malformed",
                detail=f"{self.skipped_bytes} {what} were not searched: nearly all of it looks like messages",
                remedy="give the part of it that is about the death",
            )
