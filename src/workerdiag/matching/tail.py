"""The last matches of saturated patterns, found when needed, and the number of reports of ends.

The first matches are confirmed as they come, and of the rest only the last are wanted. So later blocks wait here,
and messages that certainly match, by their bytes alone, are counted without becoming a `Match`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator

from attrs import define, evolve, field

from workerdiag.matching.candidates import Candidate, find_candidates
from workerdiag.matching.confirmation import PatternHit
from workerdiag.matching.log_lines import guesses
from workerdiag.matching.messages import LogRecord, LogWindow, follows
from workerdiag.matching.patterns import PatternOwner, PatternTable
from workerdiag.matching.prefilter import LiteralHits
from workerdiag.matching.regex import SearchWork, pattern
from workerdiag.model.incident import END_ROLES
from workerdiag.model.vocabulary import NOTE_START

#: Hits per piece. Pieces are searched from the end.
_PIECE_HITS = 1024


@define(eq=False)
class TailBlock:
    """A block of a log, with its hits of saturated patterns."""

    window: LogWindow
    #: Offset in the block that the hits count from.
    begin: int
    hits: LiteralHits
    table: PatternTable

    def hits_of(self, texts: Collection[str]) -> LiteralHits:
        """Return the hits at which one of the patterns *texts* may match."""
        return self.hits.select(lambda literal: any(text in texts for text in self.table.texts(literal)))

    def candidates(self, hits: LiteralHits) -> Iterator[Candidate]:
        """Yield the candidates of some of its hits."""
        return find_candidates(self.window, self.begin, hits, self.table.texts_together)


#: Bytes of blocks that wait. More bytes mean fewer places to look at; the rest of a process that reads a log takes
#: 65 MB.
MAX_BLOCK_BYTES = 48 * 2**20


@define
class TailBuffer:
    """The latest blocks of one log. When they are too many, their last hits are taken, and all are dropped."""

    table: PatternTable
    work: SearchWork
    #: Saturated patterns.
    saturated: set[str]
    #: Runs a pattern on a message.
    run: Callable[[str, LogRecord], Iterable[PatternHit]]
    _blocks: list[TailBlock] = field(factory=list, init=False)

    @property
    def base(self) -> int | None:
        """Absolute offset of the first byte held; None if nothing is held."""
        return self._blocks[0].window.base if self._blocks else None

    def add(self, block: TailBlock) -> list[PatternHit]:
        """Add a block. Returns the last hits in the blocks if they are dropped."""
        if self._blocks:
            self._blocks[-1].window.forget_lines()
        if block.hits.packed:
            self._blocks.append(block)
        is_full = sum(len(each.window.data) for each in self._blocks) > MAX_BLOCK_BYTES
        return self.take_last_hits() if is_full else []

    def take_last_hits(self) -> list[PatternHit]:
        """Return the last hits of each saturated pattern in the blocks, and drop these."""
        found: list[PatternHit] = []
        counts: defaultdict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
        wanted = set(self.saturated)
        for candidate, block in self._candidates_from_end(wanted):
            texts = [text for text in candidate.narrow(self.table, self.work) if text in wanted]
            if not texts:
                continue
            record = candidate.record_in(block.window)
            for text in texts:
                hits = list(self.run(text, record)) if text not in record.tried else []
                counts[text].update(hit.wanted.key for hit in hits)
                found += hits
                if all(counts[text][each.key] >= each.kept_per_end for each in self.table.owners(text)):
                    wanted.remove(text)
        self._blocks = []
        return found

    def _candidates_from_end(self, wanted: set[str]) -> Iterator[tuple[Candidate, TailBlock]]:
        """Yield the candidates of the patterns that are still *wanted*, the last first, while there is time."""
        for block in reversed(self._blocks):
            if not wanted:
                return
            hits = block.hits_of(wanted)
            for end in range(len(hits.packed), 0, -_PIECE_HITS):
                piece = evolve(hits, packed=hits.packed[max(0, end - _PIECE_HITS) : end])
                for candidate in reversed(list(block.candidates(piece))):
                    if not self.work.has_time():
                        self.work.late_bytes += candidate.at - block.begin
                        break
                    if not wanted.isdisjoint(candidate.texts):
                        yield candidate, block
                if not wanted or self.work.is_late:
                    break


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
            starts, is_sure = ([], False) if self._is_void else self._starts_in(block, text)
            for each in self._table.owners(text):
                if each.role not in END_ROLES:
                    continue
                self._work.reports[each.owner] += len(starts)
                if each.follows:
                    self._work.following[each.owner] += sum(
                        follows(block.window.data, start, each.follows) for start in starts
                    )
                if not is_sure:
                    self._work.unsure_reports.add(each.owner)

    def _starts_in(self, block: TailBlock, text: str) -> tuple[list[int], bool]:
        """Return the offsets of the certain new matches in a block, and whether there are no others."""
        found: list[int] = []
        wanted, *others = self._table.owners(text)
        is_sure = _can_be_sure(wanted, others)
        for each in block.candidates(block.hits_of((text,))) if is_sure else ():
            if not self._work.has_time():
                return found, False
            self._work.count_run(len(each.message or b""))
            if each.start is not None and _is_surely(wanted, each, block.window.data):
                if (at := block.window.base + each.start) > self._counted_to[text]:
                    found.append(each.start)
                    self._counted_to[text] = at
            elif each.message is None or self._table.matching((text,), each.message.decode()):
                is_sure = False
        return found, is_sure


#: Bytes of the timestamp before the logger in a usual header.
_TIME_BYTES = len("2026-05-04 11:22:33,444 - ")
#: A message that contains one of these may be code that logs the message, or a note of ours.
_CODE, _NOTE = b"log", NOTE_START.lower().encode()


def _can_be_sure(first: PatternOwner, others: Iterable[PatternOwner]) -> bool:
    """Whether bytes alone can decide that a pattern is the sign of all its owners."""
    needs_more = any(each.streams or each.unless_in_line for each in (first, *others))
    is_ruled_out_alike = all(each.unless == first.unless for each in others)
    return is_ruled_out_alike and not needs_more and not (first.in_header and first.unless)


def _is_surely(wanted: PatternOwner, candidate: Candidate, data: bytes) -> bool:
    """Whether the bytes of a candidate in *data* show a match, which is one for `LogScan` and `_is_sign`, too."""
    if candidate.message is None or candidate.start is None:
        return False
    lowered = candidate.message.lower()
    if _CODE in lowered or _NOTE in lowered:
        return False
    if wanted.in_header:
        start = candidate.start + _TIME_BYTES
        line = data[start : data.index(b"\n", start)].rstrip(b"\r")
        return pattern(wanted.pattern).search(line.decode()) is not None
    message = candidate.message.decode()
    found = pattern(wanted.pattern).search(message)
    if found is None or (wanted.unless and pattern(wanted.unless).search(message)):
        return False
    at = found.span()[0]
    is_blank = message[at : at + 1].isspace()
    return not any(is_blank or start <= at < end for start, end in guesses(message))
