"""The matcher: finds all patterns of a rulebook in chunks of log text, in one pass.

Matches depend on the text alone, not on how it is cut into chunks. Of a saturated pattern only the first and last
are kept, but every death counts: the reports between them are counted by the bytes of their messages, up to a stop
request: which ends it was for is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from attrs import evolve

from workerdiag.matching.candidates import fresh_candidates
from workerdiag.matching.confirmation import Confirmation, KeptMatches, PatternHit
from workerdiag.matching.messages import REACH_AHEAD, REACH_BEHIND, LogRecord, LogWindow, MatchObserver
from workerdiag.matching.patterns import PatternOwner, PatternTable, SignTables
from workerdiag.matching.prefilter import LONGEST_LITERAL, LiteralHits, LogPrefilter
from workerdiag.matching.regex import SearchWork
from workerdiag.matching.repair import MAX_BYTES, repair_text
from workerdiag.matching.tail import ReportCount, TailBlock, TailBuffer
from workerdiag.model.diagnosis import Match
from workerdiag.model.evidence import LogChunk
from workerdiag.model.rules import Rulebook


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
        self._prefilter = LogPrefilter(table.texts)
        self._confirmation = Confirmation(table, self.work, self.like.stream)
        self._tail = TailBuffer(table, self.work, self._prefilter.saturated, self._confirmation.run)
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
        self._add(self._tail.take_last_hits())
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
        begin, hits = self._literal_hits(up_to)
        searched = self._base + begin + hits.searched_bytes
        self.work.late_bytes += up_to - searched
        window = LogWindow(self._data, self._base, self.work, self._newlines)
        up_to = self._search_forward(window, begin, hits, searched)
        if self._prefilter.saturated:
            late = self._prefilter.late(hits, up_to - self._base - begin)
            block = TailBlock(window, begin, late, self._table)
            self._reports.add_late(block, self._prefilter.saturated)
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
        record: LogRecord | None = None
        wanted: dict[str, None] = {}
        for candidate in fresh_candidates(window, begin, hits, self._table, self._prefilter):
            if not self._prefilter.unsaturated(candidate.texts):
                continue
            if not self.work.has_time():
                self._confirm(record, wanted)
                place = self._base + candidate.at
                self.work.late_bytes += up_to - place
                return place
            if not (texts := self._prefilter.unsaturated(candidate.narrow(self._table, self.work))):
                continue
            if record is not (found := candidate.record_in(window)):
                self._confirm(record, wanted)
                record, wanted = found, {}
            wanted.update(dict.fromkeys(texts))
        self._confirm(record, wanted)
        return up_to

    def _confirm(self, record: LogRecord | None, texts: Iterable[str]) -> None:
        """Run the patterns *texts* on a message, unless they were."""
        for text in self._table.in_order(texts):
            if record is None or text in record.tried:
                continue
            hits = self._confirmation.run(text, record)
            self._add(hits)
            for hit in hits:
                self._reports.add(hit)
            if all(self._kept_of(each, follows=False).is_saturated for each in self._table.owners(text)):
                self._prefilter.saturate(text)

    def _add(self, hits: Iterable[PatternHit]) -> None:
        for hit in hits:
            self._kept_of(hit.wanted, follows=hit.follows).add(hit, self._match)

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
        self._confirmation.forget_before(self._base if self._tail.base is None else self._tail.base)


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
        self, chunks: Iterable[LogChunk], observer: MatchObserver | None = None, work: SearchWork | None = None
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
