"""
One log on its way through the matcher: where to look closer, and what to keep.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from attrs import evolve

from workerdiag.matching.messages.log_record import LogRecord
from workerdiag.matching.messages.log_window import REACH_AHEAD, REACH_BEHIND, LogWindow
from workerdiag.matching.regex import BadPatternError, pattern
from workerdiag.matching.scan.adapted_scan import AdaptedScan
from workerdiag.matching.scan.candidates import Candidate, find_candidates
from workerdiag.matching.scan.confirmation import PatternHit, is_sign
from workerdiag.matching.scan.excerpt import message_excerpt
from workerdiag.matching.scan.kept_matches import MATCHES_PER_END, OutermostMatches
from workerdiag.matching.scan.look_back import narrow
from workerdiag.matching.scan.newline_marks import NewlineMarks
from workerdiag.matching.scan.pattern_table import MatchObserver, PatternTable, left_out_note
from workerdiag.matching.scan.prefilter import LONGEST_LITERAL, PIECE_HITS, LiteralHits
from workerdiag.matching.scan.report_count import ReportCount
from workerdiag.matching.scan.saturated_patterns import SaturatedPatterns
from workerdiag.matching.scan.tail_buffer import HeldText
from workerdiag.matching.scan.vain_hits import without_vain
from workerdiag.matching.scan.waiting_places import WaitingPlaces
from workerdiag.matching.text.year_inference import in_year_of_log
from workerdiag.matching.work_budget import WorkBudget
from workerdiag.model.diagnosis import Match
from workerdiag.model.evidence import LogChunk, LogExcerpt


class LogScan:
    """
    One log on its way through the matcher.
    """

    def __init__(
        self,
        matcher: PatternTable,
        like: LogChunk,
        observer: MatchObserver | None = None,
        work: WorkBudget | None = None,
    ) -> None:
        self._matcher = matcher
        self._observer = observer
        #: Of the block at hand, by where their messages begin and end.
        self._excerpts: dict[tuple[int, int], LogExcerpt] = {}
        self.work = work or WorkBudget()
        self.like, self._data = evolve(like, data=b""), b""
        #: Absolute offset of the first byte held, and of the first not yet looked at.
        self._base = 0
        self._done = 0
        #: Newlines before the first byte held, and before some places.
        self._newlines = 0
        self._marks = NewlineMarks()
        self._seen: set[tuple[int, str, str]] = set()
        self._outermost: defaultdict[tuple[str, str], OutermostMatches] = defaultdict(OutermostMatches)
        self._plenty = SaturatedPatterns(matcher.texts)
        self._scan = AdaptedScan(matcher, self._plenty)
        run_again = partial(self._run_pattern, again=True)
        self._waiting = WaitingPlaces(matcher, self.work, self._plenty, run_again)
        self._reports = ReportCount(matcher, self.work)
        #: Places whose time has no year; the log's other lines may tell it.
        self._year_assumed: set[int] = set()

    def feed(self, chunks: Sequence[LogChunk]) -> None:
        """
        Take the next chunks; look at all that has enough text behind it.
        """
        self._take(chunks)
        self._search_up_to(up_to=self._base + len(self._data) - REACH_AHEAD)

    def _take(self, chunks: Sequence[LogChunk]) -> None:
        end = self._base + len(self._data)
        for chunk in chunks:
            self._marks.add(chunk, end)
            end += len(chunk.data)
        self._data = b"".join((self._data, *(chunk.data for chunk in chunks)))

    def skip_to(self, line: int) -> None:
        """
        Go on with line number *line*: what lies between was left out.
        """
        end = self._base + len(self._data)
        self._search_up_to(up_to=end)
        self._data = b""
        self._base = self._done = end + (end > 0)  # what was left out counts as a byte
        self._newlines = self._marks.total = line - 1

    def finish(self, chunks: Sequence[LogChunk]) -> Iterator[Match]:
        """
        Look at all up to the last *chunks*, and give all matches in order.
        """
        self._take(chunks)
        self._search_up_to(up_to=self._base + len(self._data))
        self._add(self._waiting.finish(self._done))
        self._settle(at_end=True)
        found_matches = [found for each in self._outermost.values() for found in (*each.first, *each.last)]
        found_matches.sort(key=lambda found: (found[0], found[1].owner, found[1].sign))
        yield from in_year_of_log(found_matches, self._year_assumed)

    def _search_up_to(self, *, up_to: int) -> None:
        if up_to <= self._done:
            return
        if self.work.is_late:
            self.work.late_bytes += up_to - self._done
        else:
            self._search_closely(up_to)
        self._done = up_to
        self._forget(max(0, up_to - self._base - REACH_BEHIND))

    def _search_closely(self, up_to: int) -> None:
        block = self._window()
        self._plenty.begin_block()
        self._waiting.begin_block()
        begin, hits = self._literal_hits(up_to)
        searched = self._base + begin + hits.searched_bytes
        self.work.late_bytes += up_to - searched
        up_to = self._search_forward(block, begin, hits, searched)
        count = hits.literal_count
        packed = hits.packed[: hits.first_from(up_to - self._base - begin)]
        late = self._plenty.late_hits(packed, count)
        held = HeldText(self._data, self._base, self._newlines, begin, late, count, block, self._marks)
        held.unplaced = hits.unplaced
        held.within = self._done - self._base - begin, up_to - self._base
        self._reports.add_late(held, self._plenty.texts)
        self._settle()
        self._add(self._waiting.add(held))

    def _window(self) -> LogWindow:
        return LogWindow(self._data, self._base, self.work, self._newlines, self._marks)

    def _literal_hits(self, up_to: int) -> tuple[int, LiteralHits]:
        """
        Where in the block the places count from, and the places that nobody looked at.
        """
        done = self._done - self._base
        begin = max(0, done - LONGEST_LITERAL)
        block = memoryview(self._data)[begin : up_to - self._base]
        hits = self._scan.hits(block, self.work)
        return begin, evolve(hits, packed=hits.packed[hits.first_from(done - begin) :])

    def _search_forward(self, block: LogWindow, begin: int, hits: LiteralHits, up_to: int) -> int:
        """
        Look at all places for the patterns of which there is no plenty; up to where there was time for it.
        """
        fresh = evolve(hits, packed=self._plenty.fresh_hits(hits.packed, hits.literal_count))
        self._scan.count_stale(len(hits.packed) - len(fresh.packed), hits.literal_count)
        pending: tuple[LogRecord, dict[str, None]] | None = None
        for spot in self._fresh_spots(begin, fresh):
            if not (texts := self._plenty.without(spot.texts)):
                continue
            if pending is None or spot.message is not None or not block.holds(spot.at):
                self._try(pending)
                pending = None
                place = self._base + spot.at
                if not self.work.has_time():
                    self.work.count_skipped(place)
                    self.work.late_bytes += up_to - place
                    return place
                if not self.work.may_search(place):
                    continue
                if spot.message is not None:
                    narrow(spot, self._matcher, self.work, again=False)
                    if texts := self._plenty.without(spot.texts):
                        self._try_likely(spot.record_in(block), texts)
                    continue
                pending = block.record_at(spot.at), {}
            pending[1].update(dict.fromkeys(texts))
        self.work.count_skipped(up_to)
        self._try(pending)
        return up_to

    def _fresh_spots(self, begin: int, hits: LiteralHits) -> Iterator[Candidate]:
        """
        The places of *hits*, but those of patterns of which there is plenty by then.
        """
        unwanted = self._plenty.texts
        left, pieces, next_look, looked, known = hits, 0, 0, -1, len(unwanted)
        while left.packed:
            if len(unwanted) > known:
                left = evolve(left, packed=self._plenty.fresh_hits(left.packed, hits.literal_count))
                known = len(unwanted)
            if pieces >= next_look and known > looked:
                left = without_vain(self._data, begin, left, self._matcher, unwanted)
                next_look, looked = 4 * pieces + 1, known
            packed = left.packed[:PIECE_HITS]
            yield from find_candidates(self._data, begin, evolve(hits, packed=packed), self._matcher.texts)
            left = evolve(left, packed=left.packed[PIECE_HITS:])
            pieces += 1

    def _add(self, places: Iterable[PatternHit]) -> None:
        for place in sorted(places, key=lambda each: each.at):
            self._outermost[place.wanted.key].add(place)
        self._settle()

    def _forget(self, count: int) -> None:
        self._newlines = self._window().newlines_before(self._base + count)
        self._data = self._data[count:]
        self._base += count
        floor = self._base if self._waiting.base is None else self._waiting.base
        self._seen = {each for each in self._seen if each[0] >= floor}
        if len(self._year_assumed) > 100 * MATCHES_PER_END:  # in a long log: keep those that still matter
            self._year_assumed &= set[int]().union(*(each.places() for each in self._outermost.values()))

    def _try(self, pending: tuple[LogRecord, dict[str, None]] | None) -> None:
        """
        Look closer at a message, with the patterns whose literals it has.
        """
        if pending is None:
            return
        record = pending[0]
        texts = tuple(text for text in pending[1] if text not in record.tried)
        record.tried.update(texts)
        likely = self._matcher.matching(texts, record.text.encode()) if record.text.isascii() else texts
        if len(likely) < len(texts):
            self.work.spend(len(record.text), 0, again=False)
        self._try_likely(record, likely)

    def _try_likely(self, record: LogRecord, texts: Iterable[str]) -> None:
        for text in texts:
            for place in self._run_pattern(text, record, again=False):
                self._outermost[place.wanted.key].add(place)
                self._reports.add(place)
            keys = (each.key for each in self._matcher.wanted(text))
            if all(key in self._outermost and self._outermost[key].has_plenty for key in keys):
                self._plenty.add(text)

    def _run_pattern(self, text: str, record: LogRecord, *, again: bool) -> list[PatternHit]:
        """
        Where a pattern matches in a message; it is run there once.
        """
        record.tried.add(text)
        places: list[PatternHit] = []
        count = 0
        owners = self._matcher.wanted(text)
        in_header = owners[0].in_header
        try:
            searched = record.heading if in_header else record.text
            for found in pattern(text).finditer(searched):
                count += 1
                start, end = found.span()
                if searched[start : start + 1].isspace():  # blank lines are no part of what was found
                    start = end - len(searched[start:end].lstrip())
                first = last = 0
                if not in_header:
                    if record.is_code(start) or record.is_guess(start):
                        continue
                    first = record.line_at(start)
                    last = record.line_at(end - 1) if "\n" in searched[start:end] else first
                at = record.line_offsets[first] + start - record.text_starts[first]
                for wanted in owners:
                    key = (at, wanted.owner, wanted.sign)
                    if key in self._seen or not is_sign(wanted, record, first, last, self.like.stream):
                        continue
                    self._seen.add(key)
                    places.append(PatternHit(at, wanted, record, found.groupdict(), first, last))
        except BadPatternError as problem:
            notes = (left_out_note(each.owner, each.sign, problem) for each in owners)
            self.work.left_out.update(dict.fromkeys(notes))
        self.work.spend(len(record.text), count, again=again)
        return places

    def _settle(self, *, at_end: bool = False) -> None:
        """
        Make matches of the places that stay.
        """
        new = [
            (place.at, number, place, ends)
            for number, outermost in enumerate(self._outermost.values())
            for place, ends in outermost.take_new(at_end=at_end)
        ]
        for at, _, place, ends in sorted(new, key=lambda each: each[:2]):
            ends.append((at, self._match(place)))
        self._excerpts.clear()

    def _match(self, place: PatternHit) -> Match:
        record = place.record
        record.number_lines()
        if record.lines[place.first].year_assumed:
            self._year_assumed.add(place.at)
        if self._observer is not None:
            self._observer.on_match(self.like.origin, place.wanted.key, self._excerpt(place))
        return place.match(self.like)

    def _excerpt(self, place: PatternHit) -> LogExcerpt:
        """
        The message with a few lines around it, cut out once however many signs it shows.
        """
        first, last = place.lines()
        record = place.record
        key = (record.line_offsets[first], record.line_offsets[last])
        if key not in self._excerpts:
            window = record.window
            self._excerpts[key] = message_excerpt(window.data, window.base, *key, record.numbers[first])
        return self._excerpts[key]
