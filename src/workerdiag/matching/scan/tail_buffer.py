"""
Places in a log that matter only if no later ones show the same, and the text around them.

A worker that dies again and again says the same each time: the first places are looked at as they come, and
of the others the last. So they wait, and context of which there is plenty costs next to nothing.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from attrs import define, field

from workerdiag.matching.messages.log_window import LogWindow
from workerdiag.matching.scan.candidates import HEADER_BYTES, Candidate, find_candidates
from workerdiag.matching.scan.excerpt import context_bounds
from workerdiag.matching.scan.kept_matches import MATCHES_PER_END
from workerdiag.matching.scan.newline_marks import NewlineMarks
from workerdiag.matching.scan.pattern_table import PatternTable
from workerdiag.matching.scan.prefilter import PIECE_HITS, LiteralHits
from workerdiag.matching.work_budget import WorkBudget

#: So many bytes of blocks wait together, and so many of messages that were cut out of earlier blocks. The
#: more blocks wait, the fewer of their places are looked at; a process that reads a log takes 65 MB beside.
MAX_BLOCK_BYTES = 56 * 2**20
MAX_MESSAGE_BYTES = 8 * 2**20
#: Of blocks that wait, so much stays when the others are let go of.
_STAYING_SHARE = 0.43
#: A pattern with more places than this in the blocks is looked for in the last of them, not cut out of all.
MANY_PLACES = 4 * MATCHES_PER_END


@define(eq=False)
class HeldText:
    """
    A piece of a log, and the places in it that wait.
    """

    data: bytes
    #: Absolute offset of the first byte, and the number of newlines of the log before it.
    base: int
    newlines: int
    #: Where in it the places count from, and these as in `LiteralHits`.
    begin: int
    packed: array[int]
    literal_count: int
    #: The same with what was learnt of its lines, while that is at hand.
    window: LogWindow | None = None
    marks: NewlineMarks | None = None
    #: Literals that may be there, whose places are not known yet; and from where to where these may be.
    unplaced: frozenset[int] = frozenset()
    within: tuple[int, int] = (0, 0)
    #: Patterns that were looked for, as far back as their matches are of interest.
    done: set[str] = field(factory=set)
    _places: Counter[int] | None = field(default=None, init=False)

    @property
    def searched_to(self) -> int:
        """
        Absolute offset behind the last place.
        """
        last = self.packed[-1] // self.literal_count + 1 if self.packed else 0
        return self.base + self.begin + last

    def lines(self, work: WorkBudget) -> LogWindow:
        """
        The text with what was learnt of its lines, or to learn it.
        """
        return self.window or LogWindow(self.data, self.base, work, self.newlines, self.marks)

    def place(self, table: PatternTable, work: WorkBudget) -> None:
        """
        Find the places of those literals that were passed over.
        """
        if not self.unplaced:
            return
        low, high = self.within
        hits = table.candidates(memoryview(self.data)[self.begin : high], work)
        work.late_bytes += high - self.begin - hits.searched_bytes
        count = self.literal_count
        found = [each for each in hits.packed[hits.first_from(low) :] if each % count in self.unplaced]
        self.packed = array("q", sorted((*self.packed, *found)))
        self._places = None
        self.unplaced = frozenset()

    @property
    def places(self) -> Counter[int]:
        """
        How many places each literal has in it.
        """
        if self._places is None:
            self._places = Counter([each % self.literal_count for each in self.packed])
        return self._places

    def literals(self) -> set[int]:
        """
        The literals that have a place in it.
        """
        return self.places.keys() | self.unplaced

    def spots(self, texts: Collection[str], table: PatternTable, work: WorkBudget) -> list[Candidate]:
        """
        The places in order at which one of *texts* may match.
        """
        return [spot for piece in [*self.spots_from_end(texts, table, work)][::-1] for spot in piece]

    def spots_from_end(
        self, texts: Collection[str], table: PatternTable, work: WorkBudget
    ) -> Iterator[list[Candidate]]:
        """
        The same in pieces, the last first; patterns taken out of *texts* meanwhile are in no further piece.
        """
        self.place(table, work)
        literals = self.literals()
        for end in range(len(self.packed), 0, -PIECE_HITS):
            undone = [text for text in texts if text not in self.done] if self.done else texts
            late = {each for each in literals if not _are_disjoint(undone, table.texts(each))}
            piece = self.packed[max(0, end - PIECE_HITS) : end]
            packed = [each for each in piece if each % self.literal_count in late]
            hits = LiteralHits(packed, self.literal_count, 0)
            yield list(find_candidates(self.data, self.begin, hits, table.texts))

    def messages(self, spots: Iterable[Candidate], work: WorkBudget) -> Iterator[HeldText]:
        """
        Each message of *spots* known by its bytes, with its context; its spot is left without patterns.
        """
        count = self.literal_count
        window = self.lines(work)
        for spot in spots:
            if spot.bounds is not None and (around := context_bounds(self.data, *spot.bounds, HEADER_BYTES)):
                start, end = around
                shift = (self.begin - start) * count
                yield HeldText(
                    data=self.data[start:end],
                    base=self.base + start,
                    newlines=window.newlines_before(self.base + start),
                    begin=0,
                    packed=array("q", [each + shift for each in spot.hits]),
                    literal_count=count,
                )
                spot.texts = ()


def _are_disjoint(some: Collection[str], others: Iterable[str]) -> bool:
    """
    Whether none of *others* is of *some*.
    """
    return not any(each in some for each in others)


@define
class HeldTexts:
    """
    What waits, in order: messages, and behind them blocks.
    """

    messages: list[HeldText] = field(factory=list)
    blocks: list[HeldText] = field(factory=list)
    _message_bytes: int = 0
    _block_bytes: int = 0

    def add(self, block: HeldText) -> None:
        """
        Hold another block, if something in it waits.
        """
        if block.packed or block.unplaced:
            self.blocks.append(block)
            self._block_bytes += len(block.data)

    @property
    def has_many_blocks(self) -> bool:
        """
        Whether it is time to look at the blocks.
        """
        return self._block_bytes > MAX_BLOCK_BYTES

    @property
    def has_many_messages(self) -> bool:
        """
        Whether it is time to look at the messages.
        """
        return self._message_bytes > MAX_MESSAGE_BYTES

    def begin_block(self) -> None:
        """
        Keep no more of the blocks than their bytes.
        """
        if self.blocks:
            self.blocks[-1].window = None

    def take(self) -> Iterator[HeldText]:
        """
        All, the last first; none is held any longer.
        """
        blocks, messages = self.take_blocks(), self.take_messages()
        yield from reversed(blocks)
        yield from reversed(messages)

    def take_blocks(self) -> list[HeldText]:
        """
        The blocks; they are held no longer.
        """
        taken, self.blocks, self._block_bytes = self.blocks, [], 0
        return taken

    def take_messages(self) -> list[HeldText]:
        """
        The messages; they are held no longer.
        """
        taken, self.messages, self._message_bytes = self.messages, [], 0
        return taken

    def take_old_blocks(self) -> list[HeldText]:
        """
        The older blocks, which are held no longer.
        """
        taken = 0
        while self.blocks[taken:] and self._block_bytes > _STAYING_SHARE * MAX_BLOCK_BYTES:
            self._block_bytes -= len(self.blocks[taken].data)
            taken += 1
        old, self.blocks = self.blocks[:taken], self.blocks[taken:]
        return old

    def add_message(self, message: HeldText) -> None:
        """
        Hold another message.
        """
        self.messages.append(message)
        self._message_bytes += len(message.data)

    @property
    def base(self) -> int | None:
        """
        Absolute offset of the first byte held; None if there is none.
        """
        return next((each.base for each in (*self.messages[:1], *self.blocks[:1])), None)


def frequent(
    texts: Collection[str], blocks: Iterable[HeldText], table: PatternTable, work: WorkBudget
) -> set[str]:
    """
    Those of the patterns *texts* with many places in *blocks* that were not looked at.
    """
    of_text: Counter[str] = Counter()
    for block in blocks if texts else ():
        if any(not _are_disjoint(texts, table.texts(literal)) for literal in block.unplaced):
            block.place(table, work)
        for literal, number in block.places.items():
            for text in table.texts(literal):
                of_text[text] += 0 if text in block.done else number
    return {text for text in texts if of_text[text] > MANY_PLACES}
