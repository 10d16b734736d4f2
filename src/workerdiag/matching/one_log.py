"""
One log on its way through the matcher: where to look closer, and what to keep.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from attrs import define, evolve, field

from workerdiag.matching.confirming import Place, fits
from workerdiag.matching.records import REACH_AHEAD, REACH_BEHIND, Block, Record
from workerdiag.matching.regex import BadPatternError, pattern
from workerdiag.matching.wanted import Patterns, Witness
from workerdiag.matching.work import Work
from workerdiag.matching.years import in_year, year_of
from workerdiag.model.diagnosis import Match
from workerdiag.model.evidence import LogChunk

#: A literal that straddles two looks is found again in the second, from so far back.
LONGEST_LITERAL = 256
#: Of one sign in one log, so many matches are kept from the start, and as many from the end.
KEPT_EACH_END = 400


@define
class _Kept:
    """
    The first and the last matches of one sign, in bounded memory.
    """

    first: list[tuple[int, Match]] = field(factory=list)
    last: deque[tuple[int, Match]] = field(factory=lambda: deque(maxlen=KEPT_EACH_END))
    #: Found in the block at hand; only those are made matches that stay.
    new_first: list[Place] = field(factory=list)
    new_last: deque[Place] = field(factory=lambda: deque(maxlen=KEPT_EACH_END))

    @property
    def has_plenty(self) -> bool:
        return len(self.first) + len(self.new_first) >= KEPT_EACH_END

    def add(self, place: Place) -> None:
        if self.has_plenty:
            self.new_last.append(place)
        else:
            self.new_first.append(place)

    def places(self) -> set[int]:
        return {at for at, _ in (*self.first, *self.last)}


class Log:
    """
    One log on its way through the matcher.
    """

    def __init__(
        self, matcher: Patterns, like: LogChunk, witness: Witness | None = None, work: Work | None = None
    ) -> None:
        self._matcher = matcher
        self._witness = witness
        self.work = work or Work()
        self.like = evolve(like, data=b"")
        self._data = b""
        #: Absolute offset of the first byte held, and of the first not yet looked at.
        self._base = 0
        self._done = 0
        #: An absolute offset and the number of newlines before it.
        self._counted = (0, 0)
        self._seen: set[tuple[int, str, str]] = set()
        self._kept: dict[tuple[str, str], _Kept] = {}
        #: Patterns of whose signs there are plenty: of these only the last ones are still of interest.
        self._plenty: set[str] = set()
        #: By the number of a literal, its other patterns.
        self._fresh: dict[int, dict[str, None]] = {}
        #: Places whose time has no year; the log's other lines may tell it.
        self._year_assumed: set[int] = set()

    def feed(self, data: bytes) -> None:
        """
        Take the next bytes; look at all that have enough text behind them.
        """
        self._data += data
        self._look(up_to=self._base + len(self._data) - REACH_AHEAD)

    def skip_to(self, line: int) -> None:
        """
        Go on with line number *line*: what lies between was left out.
        """
        end = self._base + len(self._data)
        self._look(up_to=end)
        self._data = b"\n" if end else b""  # so that what follows begins a line
        self._base = end - len(self._data)
        self._counted = (end, line - 1)

    def finished(self) -> Iterator[Match]:
        """
        Look at the rest, and give all matches in order.
        """
        self._look(up_to=self._base + len(self._data))
        kept = [found for each in self._kept.values() for found in (*each.first, *each.last)]
        kept.sort(key=lambda found: (found[0], found[1].owner, found[1].sign))
        year = next(
            (year_of(match.when) for at, match in kept if match.when and at not in self._year_assumed), None
        )
        for at, match in kept:
            if at not in self._year_assumed:
                yield match
            elif year is None:
                yield evolve(match, year_assumed=True)
            else:
                yield evolve(match, when=in_year(match.when, year))

    def _look(self, *, up_to: int) -> None:
        if up_to <= self._done:
            return
        if self.work.is_late:
            self.work.late_bytes += up_to - self._done
        else:
            self._look_closer(up_to)
        self._done = up_to
        self._forget(max(0, up_to - self._base - REACH_BEHIND))

    def _look_closer(self, up_to: int) -> None:
        block = Block(self._data, self._base, self.work)
        begin = max(0, self._done - self._base - LONGEST_LITERAL)
        hits = self._matcher.candidates(self._data[begin : up_to - self._base])
        asked: tuple[Record, dict[str, None]] | None = None
        for at, literal in hits:
            texts = self._fresh[literal] if literal in self._fresh else self._still_fresh(literal)
            place = self._base + begin + at
            if not texts or place < self._done:
                continue
            if asked is None or not block.holds(begin + at):
                self._try(asked)
                asked = None
                if not self.work.has_time():
                    self.work.looked_up_to(place)
                    self.work.late_bytes += up_to - place
                    break
                if not self.work.may_look(place):
                    continue
                asked = block.record_at(begin + at), {}
            asked[1].update(texts)
        else:
            self.work.looked_up_to(up_to)
        self._try(asked)
        for text, offsets in self._later(hits, begin).items():
            self._try_last(text, offsets, block)
        self._settle()

    def _still_fresh(self, literal: int) -> dict[str, None]:
        """
        The patterns of a literal of whose signs more are wanted.
        """
        texts = (each for each in self._matcher.texts(literal) if each not in self._plenty)
        self._fresh[literal] = dict.fromkeys(texts)
        return self._fresh[literal]

    def _later(self, hits: Iterable[tuple[int, int]], begin: int) -> dict[str, list[int]]:
        """
        The places of the patterns of whose signs there are plenty.
        """
        places: dict[str, list[int]] = {}
        for at, literal in hits if self._plenty else ():
            if len(self._still_fresh(literal) if literal not in self._fresh else self._fresh[literal]) < len(
                self._matcher.texts(literal)
            ):
                for text in self._matcher.texts(literal):
                    if text in self._plenty:
                        places.setdefault(text, []).append(begin + at)
        return places

    def _forget(self, count: int) -> None:
        """
        Let go of the first *count* bytes held.
        """
        line = self._line_number(self._base + count)
        self._data = self._data[count:]
        self._base += count
        if self._witness is not None:
            self._witness.reached(self.like.origin, self._base, line)
        self._seen = {each for each in self._seen if each[0] >= self._base}
        if (
            len(self._year_assumed) > 100 * KEPT_EACH_END
        ):  # a long log with many such lines: keep those that still matter
            self._year_assumed &= set[int]().union(*(each.places() for each in self._kept.values()))

    def _line_number(self, offset: int) -> int:
        """
        Number, from 1, of the line at an absolute offset that is still held.
        """
        since, newlines = self._counted
        low, high = sorted((since - self._base, offset - self._base))
        between = self._data.count(b"\n", low, high)
        self._counted = (offset, newlines + between if offset >= since else newlines - between)
        return self._counted[1] + 1

    def _try(self, asked: tuple[Record, dict[str, None]] | None) -> None:
        """
        Look closer at a message, with the patterns whose literals it has.
        """
        if asked is None:
            return
        record = asked[0]
        texts = tuple(text for text in asked[1] if text not in record.tried)
        record.tried.update(texts)
        likely = self._matcher.matching(texts, record.text)
        if len(likely) < len(texts):
            self.work.spend(len(record.text), 0, again=False)
        for text in likely:
            for place in self._run(text, record, again=False):
                self._kept_of(place).add(place)
            if all(key in self._kept and self._kept[key].has_plenty for key in self._keys(text)):
                self._plenty.add(text)
                self._fresh.clear()

    def _try_last(self, text: str, offsets: Sequence[int], block: Block) -> None:
        """
        Look closer at the places of a pattern from the end backwards, no further than needed.
        """
        counts = dict.fromkeys(self._keys(text), 0)
        found: list[Place] = []
        for offset in reversed(offsets):
            if not self.work.has_time() or not self.work.may_look_again(self._done):
                break
            record = block.record_at(offset)
            if text in record.tried:
                continue
            for place in self._run(text, record, again=True):
                counts[place.wanted.owner, place.wanted.sign] += 1
                found.append(place)
            if min(counts.values()) >= KEPT_EACH_END:
                break
        for place in sorted(found, key=lambda each: each.at):
            self._kept_of(place).add(place)

    def _kept_of(self, place: Place) -> _Kept:
        return self._kept.setdefault((place.wanted.owner, place.wanted.sign), _Kept())

    def _keys(self, text: str) -> list[tuple[str, str]]:
        return [(each.owner, each.sign) for each in self._matcher.wanted(text)]

    def _run(self, text: str, record: Record, *, again: bool) -> list[Place]:
        """
        Where a pattern matches in a message; it is run there once.
        """
        record.tried.add(text)
        places: list[Place] = []
        count = 0
        in_header = self._matcher.wanted(text)[0].in_header
        try:
            for found in pattern(text).finditer(record.heading if in_header else record.text):
                count += 1
                first = 0 if in_header else record.line_at(found.start())
                if not in_header and record.is_code(found.start()):
                    continue
                at = record.line_offsets[first] + found.start() - record.text_starts[first]
                for wanted in self._matcher.wanted(text):
                    key = (at, wanted.owner, wanted.sign)
                    if key in self._seen or not fits(wanted, record, first, self.like.stream):
                        continue
                    self._seen.add(key)
                    last = 0 if in_header else record.line_at(max(found.start(), found.end() - 1))
                    places.append(Place(at, wanted, record, found.groupdict(), first, last))
        except BadPatternError as problem:
            self._matcher.leave_out(text, problem)
        self.work.spend(len(record.text), count, again=again)
        return places

    def _settle(self) -> None:
        """
        Make matches of the places that stay, in the order of the text.
        """
        new = [
            (place.at, number, place, ends)
            for number, kept in enumerate(self._kept.values())
            for places, ends in ((kept.new_first, kept.first), (kept.new_last, kept.last))
            for place in places
        ]
        for at, _, place, ends in sorted(new, key=lambda each: each[:2]):
            ends.append((at, self._match(place)))
        for kept in self._kept.values():
            kept.new_first.clear()
            kept.new_last.clear()

    def _match(self, place: Place) -> Match:
        record = place.record
        if not record.numbers:
            record.number(self._line_number(record.line_offsets[0]), self._data, self._base)
        if record.lines[place.first].year_assumed:
            self._year_assumed.add(place.at)
        if self._witness is not None:
            first, last = place.lines()
            sign, offsets = (place.wanted.owner, place.wanted.sign), record.line_offsets
            number = record.numbers[first]
            self._witness.matched(self.like.origin, sign, offsets[first], offsets[last], number)
        return place.match(self.like)
