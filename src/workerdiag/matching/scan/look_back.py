"""
Looking at places from the end of a text backwards, no further than needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from attrs import define, field

from workerdiag.matching.messages.log_record import LogRecord
from workerdiag.matching.messages.log_window import LogWindow
from workerdiag.matching.scan.candidates import Candidate
from workerdiag.matching.scan.confirmation import PatternHit
from workerdiag.matching.scan.kept_matches import MATCHES_PER_END
from workerdiag.matching.scan.pattern_table import PatternTable
from workerdiag.matching.scan.tail_buffer import HeldText
from workerdiag.matching.work_budget import WorkBudget


@define
class LookBack:
    """
    A search for the last matches of some patterns.
    """

    table: PatternTable
    work: WorkBudget
    #: Runs a pattern on a message.
    run: Callable[[str, LogRecord], Iterable[PatternHit]]
    #: How far the text was read.
    end: int
    #: For each pattern that is still looked for, by each of its signs how often it matched.
    wanted: dict[str, dict[tuple[str, str], int]]
    found: list[PatternHit] = field(factory=list)

    def search(self, held: HeldText, pieces: Iterable[Sequence[Candidate]]) -> None:
        """
        Look at the spots of a text, in *pieces*, that come before all others that were looked at.
        """
        window = held.lines(self.work)
        for spots in pieces:
            unsearched = 0
            for text, late in _by_pattern(spots, self.wanted).items():
                unsearched = max(unsearched, self._search_for(text, late, window) - held.begin)
                if min(self.wanted[text].values()) >= MATCHES_PER_END:
                    del self.wanted[text]
            self.work.late_bytes += unsearched
            if unsearched or not self.wanted:
                break

    def _search_for(self, text: str, spots: Sequence[Candidate], block: LogWindow) -> int:
        """
        Up to where in the block there was no time to look for a pattern; 0 if there was time.
        """
        counts = self.wanted[text]
        for spot in reversed(spots):
            if not self.work.has_time():
                return spot.at
            if not self.work.may_search_again(self.end):
                break
            narrow(spot, self.table, self.work, again=True)
            if text not in spot.texts:
                continue
            record = spot.record_in(block)
            if text in record.tried:
                continue
            for place in self.run(text, record):
                counts[place.wanted.key] += 1
                self.found.append(place)
            if min(counts.values()) >= MATCHES_PER_END:
                break
        return 0


def narrow(spot: Candidate, table: PatternTable, work: WorkBudget, *, again: bool) -> None:
    """
    Leave a spot whose message is known only the patterns that match there.
    """
    if spot.message is not None:
        work.spend(len(spot.message), 0, again=again)
        spot.texts = table.matching(spot.texts, spot.message)
        spot.message = None


def _by_pattern(spots: Sequence[Candidate], wanted: Iterable[str]) -> dict[str, list[Candidate]]:
    """
    For each of the *wanted* patterns its spots, in order.
    """
    alike: dict[tuple[str, ...], list[Candidate]] = {}
    for spot in spots:
        alike.setdefault(spot.texts, []).append(spot)
    found: dict[str, list[Candidate]] = {}
    for texts, those in alike.items():
        for text in texts:
            if text in wanted:
                found[text] = found[text] + those if text in found else those
    return {text: sorted(those, key=lambda spot: spot.at) for text, those in found.items()}
