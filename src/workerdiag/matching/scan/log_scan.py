"""
One log on its way through the matcher: where to look closer, and what to keep.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from attrs import evolve

from workerdiag.matching.regex import BadPatternError, pattern
from workerdiag.matching.scan.candidates import Candidate, find_candidates
from workerdiag.matching.scan.confirm import PatternHit, is_sign
from workerdiag.matching.scan.excerpt import message_excerpt
from workerdiag.matching.scan.literal_scan import LONGEST_LITERAL
from workerdiag.matching.scan.outermost_matches import MATCHES_PER_END, OutermostMatches
from workerdiag.matching.scan.patterns import MatchObserver, PatternTable, left_out_note
from workerdiag.matching.scan.records import REACH_AHEAD, REACH_BEHIND, LogRecord, LogWindow
from workerdiag.matching.scan.saturated_patterns import SaturatedPatterns
from workerdiag.matching.scan.work_budget import WorkBudget
from workerdiag.matching.text.year_inference import in_year, year_of
from workerdiag.model.diagnosis import Match
from workerdiag.model.evidence import LogChunk
from workerdiag.model.excerpt import LogExcerpt


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
        self.like = evolve(like, data=b"")
        self._data = b""
        #: Absolute offset of the first byte held, and of the first not yet looked at.
        self._base = 0
        self._done = 0
        #: An absolute offset and the number of newlines before it.
        self._counted = (0, 0)
        self._seen: set[tuple[int, str, str]] = set()
        self._outermost: defaultdict[tuple[str, str], OutermostMatches] = defaultdict(OutermostMatches)
        self._plenty = SaturatedPatterns()
        #: Places whose time has no year; the log's other lines may tell it.
        self._year_assumed: set[int] = set()

    def feed(self, data: bytes) -> None:
        """
        Take the next bytes; look at all that have enough text behind them.
        """
        self._data += data
        self._search_up_to(up_to=self._base + len(self._data) - REACH_AHEAD)

    def skip_to(self, line: int) -> None:
        """
        Go on with line number *line*: what lies between was left out.
        """
        end = self._base + len(self._data)
        self._search_up_to(up_to=end)
        self._data = b""
        self._base = self._done = end + (end > 0)  # what was left out counts as a byte
        self._counted = (self._base, line - 1)

    def finish(self, rest: bytes = b"") -> Iterator[Match]:
        """
        Look at all up to *rest*, the last bytes, and give all matches in order.
        """
        self._data += rest
        self._search_up_to(up_to=self._base + len(self._data))
        found_matches = [found for each in self._outermost.values() for found in (*each.first, *each.last)]
        found_matches.sort(key=lambda found: (found[0], found[1].owner, found[1].sign))
        year = next(
            (
                year_of(match.when)
                for at, match in found_matches
                if match.when and at not in self._year_assumed
            ),
            None,
        )
        for at, match in found_matches:
            if at not in self._year_assumed:
                yield match
            elif year is None:
                yield evolve(match, year_assumed=True)
            else:
                yield evolve(match, when=in_year(match.when, year))

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
        block = LogWindow(self._data, self._base, self.work)
        self._plenty.begin_block()
        spots, searched = self._spots(up_to)
        self.work.late_bytes += up_to - searched
        up_to = searched
        pending: tuple[LogRecord, dict[str, None]] | None = None
        for spot in spots:
            if not (texts := self._plenty.without(spot.texts)):
                continue
            if pending is None or spot.message is not None or not block.holds(spot.at):
                self._try(pending)
                pending = None
                place = self._base + spot.at
                if not self.work.has_time():
                    self.work.count_skipped(place)
                    self.work.late_bytes += up_to - place
                    break
                if not self.work.may_search(place):
                    continue
                if spot.message is not None:
                    self._narrow(spot, again=False)
                    if texts := self._plenty.without(spot.texts):
                        spot.record = block.record_at(spot.at)
                        self._try_likely(spot.record, texts)
                    continue
                pending = block.record_at(spot.at), {}
            spot.record = pending[0]
            pending[1].update(dict.fromkeys(texts))
        else:
            self.work.count_skipped(up_to)
        self._try(pending)
        for text, late in self._plenty.spots(spots).items():
            self._try_last(text, late, block)
        self._settle()

    def _spots(self, up_to: int) -> tuple[list[Candidate], int]:
        """
        The places to look at, in order, and up to where there was time to search for them.
        """
        done = self._done - self._base
        begin = max(0, done - LONGEST_LITERAL)
        hits = self._matcher.candidates(self._data[begin : up_to - self._base], self.work)
        new = hits.first_from(done - begin)
        spots = list(find_candidates(self._data, begin, hits, self._matcher.texts, new))
        return spots, self._base + begin + hits.searched_bytes

    def _narrow(self, spot: Candidate, *, again: bool) -> None:
        """
        Leave a spot whose message is known only the patterns that match there.
        """
        if spot.message is not None:
            self.work.spend(len(spot.message), 0, again=again)
            spot.texts = self._matcher.matching(spot.texts, spot.message)
            spot.message = None

    def _forget(self, count: int) -> None:
        self._line_number(self._base + count)
        self._data = self._data[count:]
        self._base += count
        self._seen = {each for each in self._seen if each[0] >= self._base}
        if len(self._year_assumed) > 100 * MATCHES_PER_END:  # in a long log: keep those that still matter
            self._year_assumed &= set[int]().union(*(each.places() for each in self._outermost.values()))

    def _line_number(self, offset: int) -> int:
        """
        Number, from 1, of the line at an absolute offset that is still held.
        """
        since, newlines = self._counted
        between = self._data.count(b"\n", *sorted((since - self._base, offset - self._base)))
        self._counted = (offset, newlines + between if offset >= since else newlines - between)
        return self._counted[1] + 1

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
            if all(key in self._outermost and self._outermost[key].has_plenty for key in self._keys(text)):
                self._plenty.add(text)

    def _try_last(self, text: str, spots: Sequence[Candidate], block: LogWindow) -> None:
        """
        Look closer at the places of a pattern from the end backwards, no further than needed.
        """
        counts = dict.fromkeys(self._keys(text), 0)
        found: list[PatternHit] = []
        for spot in reversed(spots):
            if not self.work.has_time() or not self.work.may_search_again(self._done):
                break
            self._narrow(spot, again=True)
            if text not in spot.texts:
                continue
            record = spot.record = spot.record or block.record_at(spot.at)
            if text in record.tried:
                continue
            for place in self._run_pattern(text, record, again=True):
                counts[place.wanted.key] += 1
                found.append(place)
            if min(counts.values()) >= MATCHES_PER_END:
                break
        for place in sorted(found, key=lambda each: each.at):
            self._outermost[place.wanted.key].add(place)

    def _keys(self, text: str) -> list[tuple[str, str]]:
        return [each.key for each in self._matcher.wanted(text)]

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
                    if record.is_code(start):
                        continue
                    first = record.line_at(start)
                    last = record.line_at(end - 1) if "\n" in searched[start:end] else first
                at = record.line_offsets[first] + start - record.text_starts[first]
                for wanted in owners:
                    key = (at, wanted.owner, wanted.sign)
                    if key in self._seen or not is_sign(wanted, record, first, self.like.stream):
                        continue
                    self._seen.add(key)
                    places.append(PatternHit(at, wanted, record, found.groupdict(), first, last))
        except BadPatternError as problem:
            notes = (left_out_note(each.owner, each.sign, problem) for each in owners)
            self.work.left_out.update(dict.fromkeys(notes))
        self.work.spend(len(record.text), count, again=again)
        return places

    def _settle(self) -> None:
        """
        Make matches of the places that stay.
        """
        new = [
            (place.at, number, place, ends)
            for number, outermost in enumerate(self._outermost.values())
            for places, ends in ((outermost.new_first, outermost.first), (outermost.new_last, outermost.last))
            for place in places
        ]
        for at, _, place, ends in sorted(new, key=lambda each: each[:2]):
            ends.append((at, self._match(place)))
        self._excerpts.clear()
        for outermost in self._outermost.values():
            outermost.new_first.clear()
            outermost.new_last.clear()

    def _match(self, place: PatternHit) -> Match:
        record = place.record
        if not record.numbers:
            record.number(self._line_number(record.line_offsets[0]), self._data, self._base)
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
            self._excerpts[key] = message_excerpt(self._data, self._base, *key, record.numbers[first])
        return self._excerpts[key]
