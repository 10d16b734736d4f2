"""The latest blocks of a log, for finding the last matches of saturated patterns when needed.

A worker that dies repeatedly logs the same messages each time. The first matches are confirmed as they come,
and of the rest only the last ones. So later blocks wait here, and frequent messages cost next to nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

from attrs import define, field

from workerdiag.matching.messages.log_record import LogRecord
from workerdiag.matching.scan.candidates import Candidate
from workerdiag.matching.scan.confirmation import PatternHit
from workerdiag.matching.scan.pattern_table import PatternTable
from workerdiag.matching.scan.sure_matches import SureMatches
from workerdiag.matching.scan.tail_block import TailBlock
from workerdiag.matching.work_budget import WorkBudget

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
    work: WorkBudget
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
        if not block.packed and not block.unplaced:
            return []
        self._blocks.append(block)
        self._block_bytes += len(block.window.data)
        return self._evict(block.searched_to) if self._block_bytes > MAX_BLOCK_BYTES else []

    def finish(self, end: int) -> list[PatternHit]:
        """Return the last hits in a text of *end* bytes."""
        search = self._search(set(self.saturated), end)
        search.search((*self._take_messages(), *self._blocks))
        self._blocks = []
        return search.found

    def _evict(self, end: int) -> list[PatternHit]:
        """Evict the oldest blocks. Returns their hits that may be among the last of their sign."""
        gone = 0
        while self._block_bytes > _STAYING_SHARE * MAX_BLOCK_BYTES:
            self._block_bytes -= len(self._blocks[gone].window.data)
            gone += 1
        old, self._blocks = self._blocks[:gone], self._blocks[gone:]
        there = set[str]().union(*(block.texts() for block in old)) & self.saturated
        search = self._search({each for each in there if not self._sure.are_enough(each, self._blocks)}, end)
        search.cut_out = []
        search.search(old)
        self._messages += reversed(search.cut_out)
        self._message_bytes += sum(len(each.window.data) for each in search.cut_out)
        if self._message_bytes <= MAX_MESSAGE_BYTES:
            return search.found
        again = self._search(set(self.saturated), end)
        again.search(self._take_messages())
        return search.found + again.found

    def _take_messages(self) -> list[TailBlock]:
        taken, self._messages, self._message_bytes = self._messages, [], 0
        return taken

    def _search(self, wanted: set[str], end: int) -> _LastHits:
        return _LastHits(self.table, self.work, self.run, end, wanted)


@define
class _LastHits:
    """A search for the last hits of some patterns, from the end of a text backwards."""

    table: PatternTable
    work: WorkBudget
    run: Callable[[str, LogRecord], Iterable[PatternHit]]
    #: Bytes of the text read so far.
    end: int
    #: The patterns that are still wanted.
    wanted: set[str]
    found: list[PatternHit] = field(factory=list)
    #: Messages that are cut out instead of being searched, if possible.
    cut_out: list[TailBlock] | None = None
    _counts: defaultdict[str, Counter[tuple[str, str]]] = field(factory=lambda: defaultdict(Counter))

    def search(self, blocks: Sequence[TailBlock]) -> None:
        """Search the ordered *blocks* from the last to the first."""
        for block in reversed(blocks):
            if not self.wanted:
                break
            self._search_block(block)

    def _search_block(self, block: TailBlock) -> None:
        for candidates in block.candidates_from_end(self.wanted, self.work):
            for candidate in reversed(candidates):
                if not self.work.has_time():
                    self.work.late_bytes += candidate.at - block.begin
                    return
                if not self.work.may_search_again(self.end):
                    return
                self._look_at(candidate, block)
            if not self.wanted:
                return

    def _look_at(self, candidate: Candidate, block: TailBlock) -> None:
        if self.wanted.isdisjoint(candidate.texts):
            return
        texts = [text for text in candidate.narrow(self.table, self.work, again=True) if text in self.wanted]
        if not texts:
            return
        if self.cut_out is not None and (message := block.message(candidate, self.work)) is not None:
            self.cut_out.append(message)
            return
        record = candidate.record_in(block.window)
        for text in texts:
            if text in record.tried:
                continue
            hits = list(self.run(text, record))
            counts = self._counts[text]
            counts.update(hit.wanted.key for hit in hits)
            self.found += hits
            owners = self.table.owners(text)
            if all(counts[each.key] >= each.kept_per_end for each in owners):
                self.wanted.remove(text)
