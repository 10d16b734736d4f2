"""
The latest blocks of a log, in which the last matches of saturated patterns are looked for once needed.

A worker that dies again and again says the same each time: of what it says the first places are confirmed
as they come, and of the others the last. So these wait here, and context of which there is plenty costs
next to nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

from attrs import define, field

from workerdiag.matching.messages.log_record import LogRecord
from workerdiag.matching.scan.candidates import Candidate
from workerdiag.matching.scan.confirmation import MATCHES_PER_END, PatternHit
from workerdiag.matching.scan.pattern_table import PatternTable
from workerdiag.matching.scan.sure_matches import SureMatches
from workerdiag.matching.scan.tail_block import TailBlock
from workerdiag.matching.work_budget import WorkBudget

#: At most this many bytes of blocks are held, and of messages that were cut out of older blocks. The more are
#: held, the fewer of their places are looked at; the rest of a process that reads a log takes 65 MB.
MAX_BLOCK_BYTES = 56 * 2**20
MAX_MESSAGE_BYTES = 8 * 2**20
#: Where there are more, the oldest are let go of until this share is left: the more stay, the more signs
#: have enough sure matches among them, and nothing is cut out for those.
_STAYING_SHARE = 0.8


@define
class TailBuffer:
    """
    The latest blocks of one log.
    """

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
        """
        Absolute offset of the first byte held; None if there is none.
        """
        return min((each.base for each in (*self._messages[:1], *self._blocks[:1])), default=None)

    def add(self, block: TailBlock) -> list[PatternHit]:
        """
        Hold another block; hits in blocks that are let go of.
        """
        if self._blocks:
            self._blocks[-1].window.forget_lines()
        if not block.packed and not block.unplaced:
            return []
        self._blocks.append(block)
        self._block_bytes += len(block.window.data)
        return self._evict(block.searched_to) if self._block_bytes > MAX_BLOCK_BYTES else []

    def finish(self, end: int) -> list[PatternHit]:
        """
        The last hits in a text of *end* bytes.
        """
        search = self._search(set(self.saturated), end)
        search.search((*self._take_messages(), *self._blocks))
        self._blocks = []
        return search.found

    def _evict(self, end: int) -> list[PatternHit]:
        """
        Let go of the oldest blocks; those hits in them that may be among the last of their sign.
        """
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
    """
    A search for the last hits of some patterns, from the end of a text backwards.
    """

    table: PatternTable
    work: WorkBudget
    run: Callable[[str, LogRecord], Iterable[PatternHit]]
    #: How far the text was read.
    end: int
    #: The patterns that are still looked for.
    wanted: set[str]
    found: list[PatternHit] = field(factory=list)
    #: Messages that are cut out where that is possible, instead of being searched.
    cut_out: list[TailBlock] | None = None
    _counts: defaultdict[str, Counter[tuple[str, str]]] = field(factory=lambda: defaultdict(Counter))

    def search(self, blocks: Sequence[TailBlock]) -> None:
        """
        Look at *blocks*, which are in order, from the last to the first.
        """
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
            if min(counts[each.key] for each in self.table.owners(text)) >= MATCHES_PER_END:
                self.wanted.remove(text)
