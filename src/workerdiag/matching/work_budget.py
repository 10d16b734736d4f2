"""The work budget of one log: a fixed amount for each of its bytes.

Ordinary logs use a small part of it. A text made of nothing but literals of rules exhausts it. Text that is
skipped then is counted, so that the report can say so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from attrs import define, field

from workerdiag.deadline import MORE_TIME, GraceDeadline
from workerdiag.model.evidence import Gap
from workerdiag.model.vocabulary import Place

#: Budget per byte, and fixed budget, in units of one searched character.
COST_PER_BYTE = 96
FIRST_COST = 16 * 2**20
#: Cost of a run of a pattern besides the characters of its message, and of each match.
RUN_COST = 512
FOUND_COST = 512
#: Cost of each line of a message: some texts consist of line ends.
LINE_COST = 128
#: Lines per reading of the clock.
_LINES_PER_LOOK = 32


@define
class WorkBudget:
    """The work done for one log, and the text that was skipped."""

    #: Deadline of all logs. The first readings find time left, so that something is searched.
    clock: GraceDeadline = field(factory=GraceDeadline)
    #: Runs of patterns, and characters searched.
    runs: int = 0
    searched_chars: int = 0
    #: Bytes parsed as lines, and assembled into messages.
    line_bytes: int = 0
    gathered_bytes: int = 0
    #: Bytes that were skipped: the budget was spent, or time was up.
    skipped_bytes: int = 0
    late_bytes: int = 0
    is_late: bool = False
    #: Notes about rules whose patterns could not be run: one bad rule does not prevent a diagnosis.
    left_out: dict[str, None] = field(factory=dict)
    #: Whether all matches are kept, not only the first and last of each sign.
    keeps_all: bool = False
    #: Minimum number of reports of ends by landmark, and the landmarks that may have more.
    reports: Counter[str] = field(factory=Counter)
    #: How many of them follow the text of their landmark (`Landmark.follows`).
    following: Counter[str] = field(factory=Counter)
    unsure_reports: set[str] = field(factory=set)
    _spent: int = field(default=0, init=False)
    _spent_again: int = field(default=0, init=False)
    _skipped_from: int | None = field(default=None, init=False)
    #: Lines until the next reading of the clock.
    _lines_left: int = field(default=1, init=False)

    def may_search(self, at: int) -> bool:
        """Whether the budget of the text up to byte *at* allows a closer look there."""
        is_over = self._spent > FIRST_COST + COST_PER_BYTE * at
        if is_over and self._skipped_from is None:
            self._skipped_from = at
        elif not is_over:
            self.count_skipped(at)
        return not is_over

    def count_skipped(self, at: int) -> None:
        """Count the bytes skipped up to byte *at*."""
        if self._skipped_from is not None:
            self.skipped_bytes += max(0, at - self._skipped_from)
            self._skipped_from = None

    def may_search_again(self, end: int) -> bool:
        """Whether the budget of the text up to byte *end* allows another look at its end."""
        return self._spent_again <= FIRST_COST + COST_PER_BYTE * end

    def gather(self, chars: int, lines: int) -> None:
        """Count an assembled message."""
        self.gathered_bytes += chars
        self._spent += LINE_COST * lines
        self._lines_left -= lines

    def spend(self, chars: int, found: int, *, again: bool) -> None:
        """Count a run of a pattern over a number of characters, and its matches."""
        self.runs += 1
        self.searched_chars += chars
        cost = RUN_COST + chars + FOUND_COST * found
        if again:
            self._spent_again += cost
        else:
            self._spent += cost

    def has_time(self) -> bool:
        """Whether there is time left. The clock is not read every time."""
        self._lines_left -= 1
        if self._lines_left <= 0 and not self.is_late:
            self._lines_left = _LINES_PER_LOOK
            self.is_late = self.clock.is_over()
        return not self.is_late

    def gaps(self, source: str, place: Place, what: str) -> Iterator[Gap]:
        """Yield the gaps for the skipped parts of *source*, counted in *what*."""
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
