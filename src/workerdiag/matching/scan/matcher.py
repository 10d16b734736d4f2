"""The matcher: finds all patterns of a rulebook in chunks of log text, in one pass.

The matches depend on the text alone, not on how it is cut into chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from attrs import evolve

from workerdiag.matching.messages.log_record import MatchObserver
from workerdiag.matching.scan.log_scan import LogScan
from workerdiag.matching.scan.pattern_table import PatternTable
from workerdiag.matching.sign_tables import SignTables
from workerdiag.matching.text.repair import MAX_BYTES, RepairedText, repair_text
from workerdiag.matching.work_budget import WorkBudget
from workerdiag.model.diagnosis import Match
from workerdiag.model.evidence import LogChunk
from workerdiag.model.rules import Rulebook

#: At most this many bytes wait for the next chunk: the end of a log is searched in one piece.
_MOST_HELD_BYTES = 1280 * 1024


class Matcher:
    """All signs of a rulebook, with its log patterns ready to run.

    Only its caches change, so threads may share it.
    """

    def __init__(self, book: Rulebook) -> None:
        #: Its other signs.
        self.signs = SignTables(book)
        #: Its log patterns.
        self.table = PatternTable(book)
        #: Notes about rules that cannot be used.
        self.left_out = self.table.left_out

    def matches(
        self,
        chunks: Iterable[LogChunk],
        observer: MatchObserver | None = None,
        work: WorkBudget | None = None,
    ) -> Iterator[Match]:
        """Yield all matches in the chunks of one log, in the order of the text.

        Args:
            chunks: Consecutive chunks, perhaps with gaps between them.
            observer: Is called with the place of each match, unless the text was damaged by copying.
            work: Knows when time is up, and counts the work done.
        """
        log: LogScan | None = None
        held: list[LogChunk] = []
        held_bytes, is_excerpt = 0, True
        for chunk in chunks:
            log = log or LogScan(self.table, chunk, observer, work)
            if held_bytes > MAX_BYTES or chunk.first_line is not None:
                is_excerpt = False
                log.feed(held)
                held, held_bytes = [], 0
            if chunk.first_line is not None:
                log.skip_to(chunk.first_line)
            held.append(chunk)
            held_bytes += len(chunk.data)
            if held_bytes > _MOST_HELD_BYTES:
                is_excerpt = False
                log.feed(held)
                held, held_bytes = [], 0
        if log is None:
            return
        is_excerpt = is_excerpt and held_bytes <= MAX_BYTES
        whole = repair_text(b"".join(chunk.data for chunk in held)) if is_excerpt else None
        if whole is not None:
            yield from self._repaired_matches(log, whole)
            return
        yield from log.finish(held)

    def _repaired_matches(self, scan: LogScan, repaired: RepairedText) -> Iterator[Match]:
        """Yield the matches of the repaired text, with the line numbers of the original."""
        log = LogScan(self.table, scan.like, work=scan.work)
        for match in log.finish([evolve(scan.like, data=repaired.data)]):
            first, last, top = (
                repaired.line_numbers[min(at, len(repaired.line_numbers)) - 1] if at else 0
                for at in (match.line, match.last_line, match.message_line)
            )
            yield evolve(match, line=first, last_line=last, message_line=top, offset=None)
