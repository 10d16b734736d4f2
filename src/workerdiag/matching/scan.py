"""The matcher: finds all patterns of a rulebook in chunks of log text, in one pass.

Matches depend on the text alone, not on how it is cut into chunks. Of a saturated pattern only the first and last
are kept, but every death counts: the reports between them are counted by the bytes of their messages, up to a stop
request: which ends it was for is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from attrs import evolve

from workerdiag.matching.candidates import fresh_candidates
from workerdiag.matching.confirmation import Confirmation, KeptMatches, PatternHit
from workerdiag.matching.messages import (
    REACH_AHEAD,
    REACH_BEHIND,
    LogRecord,
    LogWindow,
    MatchObserver,
    follows,
)
from workerdiag.matching.patterns import PatternOwner, PatternTable, SignTables
from workerdiag.matching.prefilter import LONGEST_LITERAL, LiteralHits, LogPrefilter
from workerdiag.matching.regex import SearchWork
from workerdiag.matching.repair import MAX_BYTES, repair_text
from workerdiag.model.diagnosis import Match
from workerdiag.model.evidence import LogChunk
from workerdiag.model.incident import END_ROLES
from workerdiag.model.rules import Rulebook

if TYPE_CHECKING:
    from workerdiag.matching.tail import TailBlock, TailBuffer


class LogScan:
    """The scan of one log."""

    def __init__(
        self,
        table: PatternTable,
        like: LogChunk,
        observer: MatchObserver | None = None,
        work: SearchWork | None = None,
    ) -> None:
        self.work = work or SearchWork()
        self.like = evolve(like, data=b"")
        self._table = table
        self._observer = observer
        self._data = b""
        #: Absolute offsets of the first byte held, and of the first byte not yet searched.
        self._base = 0
        self._done = 0
        #: Newlines before the first byte held, and before the end of the last one.
        self._newlines = self._total = 0
        #: Of each sign; those that follow a text (`Landmark.follows`) apart from the others.
        self._kept: dict[tuple[tuple[str, str], bool], KeptMatches] = {}
        self._prefilter = LogPrefilter(table.literals, table.texts)
        self._confirmation = Confirmation(table, self.work, self.like.stream)
        #: The blocks to search for the last matches of saturated patterns, once there are any.
        self._tail: TailBuffer | None = None
        self._reports = ReportCount(table, self.work)

    def feed(self, chunks: Sequence[LogChunk]) -> None:
        """Add the next chunks, and search everything that has enough text behind it."""
        self._take(chunks)
        self._search_up_to(self._base + len(self._data) - REACH_AHEAD)
        self._settle()

    def _take(self, chunks: Sequence[LogChunk]) -> None:
        self._total += sum(chunk.newline_count for chunk in chunks)
        self._data = b"".join((self._data, *(chunk.data for chunk in chunks)))

    def skip_to(self, line: int) -> None:
        """Continue at line number *line*. The text between was left out."""
        end = self._base + len(self._data)
        self._search_up_to(end)
        self._settle()
        self._data = b""
        self._base = self._done = end + (end > 0)  # the gap counts as one byte
        self._newlines = self._total = line - 1

    def finish(self, chunks: Sequence[LogChunk]) -> Iterator[Match]:
        """Search the rest with the last *chunks*, and yield all matches in order."""
        self._take(chunks)
        self._search_up_to(self._base + len(self._data))
        if self._tail is not None:
            self._add(self._tail.finish())
        self._settle()
        matches = [found for each in self._kept.values() for found in (*each.first, *each.last)]
        matches.sort(key=lambda found: (found[0], found[1].owner, found[1].sign))
        yield from (match for _, match in matches)

    def _search_up_to(self, up_to: int) -> None:
        if up_to <= self._done:
            return
        if self.work.is_late:
            self.work.late_bytes += up_to - self._done
        else:
            self._search_block(up_to)
        self._done = up_to
        self._forget(max(0, up_to - self._base - REACH_BEHIND))

    def _search_block(self, up_to: int) -> None:
        window = LogWindow(self._data, self._base, self.work, self._newlines)
        begin, hits = self._literal_hits(up_to)
        searched = self._base + begin + hits.searched_bytes
        self.work.late_bytes += up_to - searched
        up_to = self._search_forward(window, begin, hits, searched)
        if self._prefilter.saturated:
            self._hold(window, begin, hits, up_to)

    def _hold(self, window: LogWindow, begin: int, hits: LiteralHits, up_to: int) -> None:
        from workerdiag.matching.tail import TailBlock, TailBuffer  # needed for large logs only

        late = self._prefilter.late(hits.packed[: hits.first_from(up_to - self._base - begin)])
        block = TailBlock(window, begin, late, self._table)
        self._reports.add_late(block, self._prefilter.saturated)
        if self._tail is None:
            self._tail = TailBuffer(self._table, self.work, self._prefilter.saturated, self._confirmation.run)
        self._add(self._tail.add(block))

    def _literal_hits(self, up_to: int) -> tuple[int, LiteralHits]:
        """Return the offset that the hits count from, and the hits that are not searched yet."""
        done = self._done - self._base
        begin = max(0, done - LONGEST_LITERAL)
        block = memoryview(self._data)[begin : up_to - self._base]
        hits = self._table.literals.hits(block, self.work.clock.deadline)
        return begin, evolve(hits, packed=hits.packed[hits.first_from(done - begin) :])

    def _search_forward(self, window: LogWindow, begin: int, hits: LiteralHits, up_to: int) -> int:
        """Confirm candidates of unsaturated patterns. Returns the offset up to which there was time."""
        pending: tuple[LogRecord, dict[str, None]] | None = None
        for candidate in fresh_candidates(self._data, begin, hits, self._table, self._prefilter):
            if not (texts := self._prefilter.unsaturated(candidate.texts)):
                continue
            is_known = candidate.message is not None
            if pending is None or is_known or not window.holds(candidate.at):
                self._try(pending)
                pending = None
                place = self._base + candidate.at
                if not self.work.has_time():
                    self.work.late_bytes += up_to - place
                    return place
                if is_known:
                    if texts := self._prefilter.unsaturated(candidate.narrow(self._table, self.work)):
                        self._confirm(candidate.record_in(window), texts)
                    continue
                pending = window.record_at(candidate.at), {}
            pending[1].update(dict.fromkeys(texts))
        self._try(pending)
        return up_to

    def _try(self, pending: tuple[LogRecord, dict[str, None]] | None) -> None:
        if pending is None:
            return
        record = pending[0]
        texts = self._table.in_order(text for text in pending[1] if text not in record.tried)
        record.tried.update(texts)
        self._confirm(record, texts)

    def _confirm(self, record: LogRecord, texts: Iterable[str]) -> None:
        for text in texts:
            for hit in self._confirmation.run(text, record):
                self._kept_of(hit.wanted, follows=hit.follows).add(hit)
                self._reports.add(hit)
            if all(self._kept_of(each, follows=False).is_saturated for each in self._table.owners(text)):
                self._prefilter.saturate(text)

    def _add(self, hits: Iterable[PatternHit]) -> None:
        for hit in hits:
            self._kept_of(hit.wanted, follows=hit.follows).add(hit)

    def _kept_of(self, wanted: PatternOwner, *, follows: bool) -> KeptMatches:
        kept = self._kept.get((wanted.key, follows))
        if kept is None:
            per_end = None if self.work.keeps_all else wanted.kept_per_end
            kept = self._kept[wanted.key, follows] = KeptMatches(per_end)
        return kept

    def _settle(self) -> None:
        for each in self._kept.values():
            each.settle(self._match)

    def _match(self, hit: PatternHit) -> Match:
        hit.record.number_lines()
        if self._observer is not None:
            self._observer.on_match(self.like.origin, hit.wanted.key, hit.excerpt())
        return hit.match(self.like)

    def _forget(self, count: int) -> None:
        self._newlines = self._total - self._data.count(b"\n", count)
        self._data = self._data[count:]
        self._base += count
        base = None if self._tail is None else self._tail.base
        self._confirmation.forget_before(self._base if base is None else base)


class Matcher:
    """All signs of a rulebook, its log patterns ready to run; threads may share it."""

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
        work: SearchWork | None = None,
    ) -> Iterator[Match]:
        """Yield all matches in the chunks of one log, in the order of the text. There may be gaps between chunks.

        *observer* is called with the place of each match, unless the text was damaged by copying.
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
        if log is None:
            return
        is_excerpt = is_excerpt and held_bytes <= MAX_BYTES
        whole = repair_text(b"".join(chunk.data for chunk in held)) if is_excerpt else None
        if whole is not None:
            yield from self._repaired_matches(log, whole)
            return
        yield from log.finish(held)

    def _repaired_matches(self, scan: LogScan, lines: Sequence[tuple[int, bytes]]) -> Iterator[Match]:
        log = LogScan(self.table, scan.like, work=scan.work)
        for match in log.finish([evolve(scan.like, data=b"\n".join(line for _, line in lines))]):
            first, last, top = (
                lines[min(at, len(lines)) - 1][0] if at else 0
                for at in (match.line, match.last_line, match.message_line)
            )
            yield evolve(match, line=first, last_line=last, message_line=top, offset=None)


class ReportCount:
    """Counts the reports of ends in one log."""

    def __init__(self, table: PatternTable, work: SearchWork) -> None:
        self._table = table
        self._work = work
        #: For each pattern, the offset up to which its messages are counted.
        self._counted_to: dict[str, int] = {}
        #: Whether somebody asked for a stop: then the count is meaningless.
        self._is_void = False

    def add(self, hit: PatternHit) -> None:
        """Count a match of an unsaturated pattern. Matches come in order."""
        if hit.wanted.role in END_ROLES:
            self._work.reports[hit.wanted.owner] += 1
            self._work.following[hit.wanted.owner] += hit.follows
            self._counted_to[hit.wanted.pattern] = hit.at
        elif hit.wanted.role == "stop-request":
            self._is_void = True

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
        from workerdiag.matching.tail import PIECE_PLACES, sure_test  # for large logs

        test, found, is_sure = sure_test(self._table.owners(text)), list[int](), True
        hits = block.hits((text,))
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
