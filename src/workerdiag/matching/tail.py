"""The latest blocks of a log, for finding the last matches of saturated patterns when needed.

The first matches are confirmed as they come, and of the rest only the last are wanted. So later blocks wait here,
and messages that certainly match, by their bytes alone, are counted without becoming a `Match`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from attrs import define, evolve, field, frozen

from workerdiag.matching.candidates import HEADER_BYTES, Candidate, find_candidates
from workerdiag.matching.confirmation import PatternHit
from workerdiag.matching.log_lines import guesses
from workerdiag.matching.messages import LogRecord, LogWindow, context_bounds
from workerdiag.matching.patterns import PatternOwner, PatternTable
from workerdiag.matching.prefilter import LiteralHits
from workerdiag.matching.regex import SearchWork, pattern
from workerdiag.model.vocabulary import NOTE_START

#: Places per piece.
PIECE_PLACES = 128
#: Bytes of the timestamp before the logger in a usual header.
_TIME_BYTES = len("2026-05-04 11:22:33,444 - ")
#: A message that contains one of these may be code that logs the message, or a note of ours.
_CODE, _NOTE = b"log", NOTE_START.lower().encode()


@frozen
class SureTest:
    """A pattern and what rules it out: a match that passes is one for `LogScan` and `_is_sign`, too."""

    text: str
    unless: str | None
    in_header: bool

    def starts(self, block: TailBlock, hits: LiteralHits, work: SearchWork) -> tuple[list[int], bool]:
        """Return the offsets of the certain matches at *hits* of a block, and whether there can be no others."""
        data, table = block.window.data, block.table
        found: list[int] = []
        is_sure = True
        for each in find_candidates(data, block.begin, hits, table.texts_together):
            work.count_run(len(each.message or b""))
            if each.bounds is not None and self._passes(data, each):
                found.append(block.base + each.bounds[0])
            elif each.message is None or table.matching((self.text,), each.message.decode()):
                is_sure = False
        return found, is_sure

    def _passes(self, data: bytes, candidate: Candidate) -> bool:
        if candidate.message is None or candidate.bounds is None:
            return False
        lowered = candidate.message.lower()
        if _CODE in lowered or _NOTE in lowered:
            return False
        if self.in_header:
            start = candidate.bounds[0] + _TIME_BYTES
            line = data[start : data.index(b"\n", start)].rstrip(b"\r")
            return pattern(self.text).search(line.decode()) is not None
        message = candidate.message.decode()
        found = pattern(self.text).search(message)
        if found is None or (self.unless and pattern(self.unless).search(message)):
            return False
        at = found.span()[0]
        is_blank = message[at : at + 1].isspace()
        return not any(is_blank or start <= at < end for start, end in guesses(message))


@define
class SureMatches:
    """The offsets of the last certain matches, by pattern."""

    table: PatternTable
    work: SearchWork
    #: Absolute offsets in order, and the offset up to which they are complete.
    _starts: dict[str, list[int]] = field(factory=dict, init=False)
    _searched_to: dict[str, int] = field(factory=dict, init=False)

    def are_enough(self, text: str, blocks: Sequence[TailBlock]) -> bool:
        """Whether *blocks* contain as many certain matches of the pattern *text* as are kept."""
        hits = (item for block in blocks for item in block.places().items())
        if sum(count for each, count in hits if text in self.table.texts(each)) < self.table.kept_per_end(text):
            return False
        if (test := sure_test(self.table.owners(text))) is None:
            return False
        known, wanted = self._starts.get(text, []), self.table.kept_per_end(text)
        known = known[bisect_left(known, blocks[0].base + blocks[0].begin) :]
        if len(known) < wanted:
            known = (known + self._new_starts(test, blocks, wanted))[-wanted:]
            self._starts[text], self._searched_to[text] = known, blocks[-1].searched_to
        return len(known) >= wanted

    def _new_starts(self, test: SureTest, blocks: Sequence[TailBlock], wanted: int) -> list[int]:
        """Return the offsets of new certain matches, from the end until there are as many as *wanted*."""
        low = self._searched_to.get(test.text, 0)
        found: list[int] = []
        for block in reversed(blocks):
            if block.searched_to <= low:
                break
            hits = block.hits((test.text,))
            for end in range(len(hits.packed), 0, -PIECE_PLACES):
                if len(found) >= wanted or not self.work.has_time():
                    return [each for each in found if each >= low]
                piece = evolve(hits, packed=hits.packed[max(0, end - PIECE_PLACES) : end])
                starts, _ = test.starts(block, piece, self.work)
                found = [each for each in starts if not found or each < found[0]] + found
        return [each for each in found if each >= low]


def sure_test(owners: Sequence[PatternOwner]) -> SureTest | None:
    """Return the test for the pattern of these *owners*; None if the bytes alone cannot decide."""
    (unless, *others) = {each.unless for each in owners}
    first = owners[0]
    if others or any(each.streams or each.unless_in_line for each in owners) or (first.in_header and unless):
        return None
    return SureTest(first.pattern, unless, first.in_header)


#: Hits per piece. Pieces are searched from the end.
PIECE_HITS = 1024


@define(eq=False)
class TailBlock:
    """A block of a log, or a message cut out of one, with its hits of saturated patterns."""

    #: The block with its parsed lines.
    window: LogWindow
    #: Offset in the block that the hits count from, and the hits, packed as in `LiteralHits`.
    begin: int
    packed: array[int]
    table: PatternTable
    _places: Counter[int] | None = field(default=None, init=False)

    @property
    def base(self) -> int:
        """Absolute offset of the first byte."""
        return self.window.base

    @property
    def searched_to(self) -> int:
        """Absolute offset behind the last place."""
        last = self.packed[-1] // len(self.table.literals.texts) + 1 if self.packed else 0
        return self.base + self.begin + last

    def texts(self) -> set[str]:
        """Return the patterns that may match in the block."""
        return {text for literal in self.places() for text in self.table.texts(literal)}

    def places(self) -> Counter[int]:
        """Return the number of places of each literal."""
        if self._places is None:
            count = len(self.table.literals.texts)
            self._places = Counter([each % count for each in self.packed])
        return self._places

    def hits(self, texts: Collection[str]) -> LiteralHits:
        """Return the hits at which one of the patterns *texts* may match."""
        count = len(self.table.literals.texts)
        wanted = {each for each in self.places() if any(text in texts for text in self.table.texts(each))}
        return LiteralHits([each for each in self.packed if each % count in wanted], count, 0)

    def candidates_from_end(self, texts: Collection[str]) -> Iterator[list[Candidate]]:
        """Yield the candidates of the patterns *texts* in pieces, the last piece first."""
        hits = self.hits(texts)
        for end in range(len(hits.packed), 0, -PIECE_HITS):
            piece = evolve(hits, packed=hits.packed[max(0, end - PIECE_HITS) : end])
            yield list(find_candidates(self.window.data, self.begin, piece, self.table.texts_together))

    def message(self, candidate: Candidate, work: SearchWork) -> TailBlock | None:
        """Cut the message of *candidate* out with its context; None if its bytes do not identify it."""
        window = self.window
        if candidate.bounds is None:
            return None
        bounds = context_bounds(window.data, *candidate.bounds, HEADER_BYTES)
        if bounds is None:
            return None
        start, end = bounds
        newlines = window.newlines_before(window.base + start)
        shift = (self.begin - start) * len(self.table.literals.texts)
        return TailBlock(
            window=LogWindow(window.data[start:end], window.base + start, work, newlines),
            begin=0,
            packed=array("q", [each + shift for each in candidate.hits]),
            table=self.table,
        )


#: Limits for the bytes of blocks, and of messages cut out of older blocks. More bytes mean fewer places to
#: look at; the rest of a process that reads a log takes 65 MB.
MAX_BLOCK_BYTES = 48 * 2**20
MAX_MESSAGE_BYTES = 8 * 2**20
#: Beyond the limit the oldest are evicted until this share is left: the more stay, the more signs have enough
#: certain matches among them, and nothing is cut out for those.
_STAYING_SHARE = 0.8


@define
class TailBuffer:
    """The latest blocks of one log."""

    table: PatternTable
    work: SearchWork
    #: Saturated patterns.
    saturated: set[str]
    #: Runs a pattern on a message.
    run: Callable[[str, LogRecord], Iterable[PatternHit]]
    _blocks: list[TailBlock] = field(factory=list, init=False)
    _messages: list[TailBlock] = field(factory=list, init=False)
    _block_bytes: int = field(default=0, init=False)
    _message_bytes: int = field(default=0, init=False)
    _sure: SureMatches = field(init=False)

    @_sure.default
    def _make_sure_matches(self) -> SureMatches:
        return SureMatches(self.table, self.work)

    @property
    def base(self) -> int | None:
        """Absolute offset of the first byte held; None if nothing is held."""
        return min((each.base for each in (*self._messages[:1], *self._blocks[:1])), default=None)

    def add(self, block: TailBlock) -> list[PatternHit]:
        """Add a block. Returns the hits in evicted blocks."""
        if self._blocks:
            self._blocks[-1].window.forget_lines()
        if not block.packed:
            return []
        self._blocks.append(block)
        self._block_bytes += len(block.window.data)
        return self._evict() if self._block_bytes > MAX_BLOCK_BYTES else []

    def finish(self) -> list[PatternHit]:
        """Return the last hits in the text."""
        found = self._last_hits((*self._take_messages(), *self._blocks), set(self.saturated))
        self._blocks = []
        return found

    def _evict(self) -> list[PatternHit]:
        """Evict the oldest blocks. Returns their hits that may be among the last of their sign."""
        gone = 0
        while self._block_bytes > _STAYING_SHARE * MAX_BLOCK_BYTES:
            self._block_bytes -= len(self._blocks[gone].window.data)
            gone += 1
        old, self._blocks = self._blocks[:gone], self._blocks[gone:]
        there = set[str]().union(*(block.texts() for block in old)) & self.saturated
        cut_out: list[TailBlock] = []
        wanted = {each for each in there if not self._sure.are_enough(each, self._blocks)}
        found = self._last_hits(old, wanted, cut_out)
        self._messages += reversed(cut_out)
        self._message_bytes += sum(len(each.window.data) for each in cut_out)
        if self._message_bytes <= MAX_MESSAGE_BYTES:
            return found
        return found + self._last_hits(self._take_messages(), set(self.saturated))

    def _take_messages(self) -> list[TailBlock]:
        taken, self._messages, self._message_bytes = self._messages, [], 0
        return taken

    def _last_hits(
        self, blocks: Sequence[TailBlock], wanted: set[str], cut_out: list[TailBlock] | None = None
    ) -> list[PatternHit]:
        """Return the last hits of the patterns *wanted* in the ordered *blocks*, from the end backwards.

        Messages are added to *cut_out* instead of being searched, if possible.
        """
        found: list[PatternHit] = []
        counts: defaultdict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
        for candidate, block in self._candidates_from_end(blocks, wanted):
            texts = [text for text in candidate.narrow(self.table, self.work) if text in wanted]
            if not texts:
                continue
            if cut_out is not None and (message := block.message(candidate, self.work)) is not None:
                cut_out.append(message)
                continue
            record = candidate.record_in(block.window)
            for text in texts:
                hits = list(self.run(text, record)) if text not in record.tried else []
                counts[text].update(hit.wanted.key for hit in hits)
                found += hits
                if all(counts[text][each.key] >= each.kept_per_end for each in self.table.owners(text)):
                    wanted.remove(text)
        return found

    def _candidates_from_end(
        self, blocks: Sequence[TailBlock], wanted: set[str]
    ) -> Iterator[tuple[Candidate, TailBlock]]:
        """Yield the candidates of the patterns that are still *wanted*, the last first, while there is time."""
        for block in reversed(blocks):
            for candidates in block.candidates_from_end(wanted) if wanted else ():
                for candidate in reversed(candidates):
                    if not self.work.has_time():
                        self.work.late_bytes += candidate.at - block.begin
                        break
                    if not wanted.isdisjoint(candidate.texts):
                        yield candidate, block
                if not wanted or self.work.is_late:
                    break
