"""
Places of a sign that surely are matches, by the bytes of their messages alone.

Of a sign of which there is plenty only the last matches are of interest. Where so many are sure in later
text, no place before needs a look, and none of the sure ones is made a match yet.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from attrs import define, field, frozen

from workerdiag.matching.regex import pattern, pattern_set
from workerdiag.matching.scan.candidates import Candidate, find_candidates, line_start, single_line_message
from workerdiag.matching.scan.kept_matches import MATCHES_PER_END
from workerdiag.matching.scan.pattern_reach import is_within_line, is_within_message, kept_within_line
from workerdiag.matching.scan.pattern_table import PatternOwner, PatternTable
from workerdiag.matching.scan.prefilter import LiteralHits
from workerdiag.matching.scan.tail_buffer import HeldText
from workerdiag.matching.text.guesses import OPENINGS, guesses
from workerdiag.matching.work_budget import WorkBudget
from workerdiag.model.notes import NOTE_START

#: So many patterns are compiled for this; of others no match is sure.
_MAX_TESTS = 64
#: So many places are looked at together.
_GROUP = 128
#: Bytes of the time before the logger, in a header that is known by its bytes.
_TIME_BYTES = len("2026-05-04 11:22:33,444 - ")
#: A message with one of these in it may be code that would write the message, or a note of ours.
_CODE, _NOTE = b"log", NOTE_START.lower().encode()


@frozen
class SureTest:
    """
    A pattern, and what rules it out: sure where the one matches and the other does not.

    It leaves out all that `LogScan` and `is_sign` leave out when they run the pattern, and more.
    """

    text: str
    #: The pattern, what rules it out, and last what begins a guess.
    compiled: Any
    #: The numbers of those that begin a guess.
    guessing: tuple[int, ...]
    in_header: bool
    #: The pattern at the start of each of some lines, the pattern in each of them, and then the others.
    in_lines: Any | None

    def all_pass(self, messages: Collection[bytes | None]) -> bool:
        """
        Whether all *messages*, of a line each, are matches; they are searched as one.
        """
        if self.in_lines is None or None in messages:
            return False
        text = b"".join([each + b"\n" for each in messages if each is not None])
        lowered = text.lower()
        if _CODE in lowered or _NOTE in lowered:
            return False
        found = {each - 1 for each in self.in_lines.Match(text) or ()}
        if -1 in found:  # nothing before it guesses
            return found <= {-1, 0, *self.guessing}
        return found == {0}

    def passes(self, data: bytes, spot: Candidate) -> bool:
        """
        Whether the message there, of the block *data*, is a match.
        """
        if spot.message is None or spot.bounds is None:
            return False
        message = spot.message.lower()
        if _CODE in message or _NOTE in message:
            return False
        if self.in_header:
            start = spot.bounds[0] + _TIME_BYTES
            line = data[start : data.index(b"\n", start)].rstrip(b"\r")
            return 0 in (self.compiled.Match(line) or ())
        found = set(self.compiled.Match(spot.message) or ())
        if 0 not in found or not found <= {0, *self.guessing}:
            return False
        return len(found) == 1 or not self._is_guess(spot.message.decode("ascii"))

    def _is_guess(self, message: str) -> bool:
        """
        Whether the first place in *message*, which has guesses in it, may be in one.
        """
        found = pattern(self.text).search(message)
        if found is None or message[(at := found.span()[0]) : at + 1].isspace():
            return True
        if not any(guesses(message[:at])):  # as of most, which begin with what the pattern is about
            return False
        return any(start <= at < end for start, end in guesses(message))


@define
class SureMatches:
    """
    Of each pattern, where the last messages begin that it surely matches.
    """

    table: PatternTable
    work: WorkBudget
    _tests: dict[str, SureTest | None] = field(factory=dict, init=False)
    #: Absolute offsets in order; from the first of them to the other place they are complete.
    _starts: dict[str, list[int]] = field(factory=dict, init=False)
    _searched_to: dict[str, int] = field(factory=dict, init=False)

    def enough(self, texts: Iterable[str], blocks: Sequence[HeldText]) -> set[str]:
        """
        Those of the patterns *texts* that surely match in as many messages of *blocks* as are kept.
        """
        return {text for text in texts if self._may_be(text, blocks) and self._are_enough(text, blocks)}

    def _may_be(self, text: str, blocks: Iterable[HeldText]) -> bool:
        """
        Whether a pattern has so many places.
        """
        known = 0
        for block in blocks:
            if any(text in self.table.texts(each) for each in block.unplaced):
                return True
            known += sum(number for each, number in block.places.items() if text in self.table.texts(each))
        return known >= MATCHES_PER_END

    def _are_enough(self, text: str, blocks: Sequence[HeldText]) -> bool:
        """
        Whether as many messages surely match one pattern.
        """
        if text not in self._tests:
            wanted = len(self._tests) < _MAX_TESTS
            self._tests[text] = sure_test(text, self.table.wanted(text)) if wanted else None
        test = self._tests[text]
        if test is None or not blocks:
            return False
        known = self._starts.get(text, [])
        known = known[bisect_left(known, blocks[0].base + blocks[0].begin) :]
        if len(known) >= MATCHES_PER_END:
            return True
        found = self._new_starts(text, test, blocks, MATCHES_PER_END)
        self._starts[text] = (known + found)[-MATCHES_PER_END:]
        self._searched_to[text] = blocks[-1].searched_to
        return len(self._starts[text]) >= MATCHES_PER_END

    def _new_starts(self, text: str, test: SureTest, blocks: Sequence[HeldText], most: int) -> list[int]:
        """
        Where the last messages begin that match, of those not searched before; *most* or some more.
        """
        low = self._searched_to.get(text, 0)
        found: list[int] = []
        for block in reversed(blocks):
            if len(found) >= most or not self.work.has_time():
                break
            block.place(self.table, self.work)
            if block.searched_to <= low:
                break
            for hits in self._last_hits(block, text):
                starts = [block.base + each for each in self._starts_of(test, block, hits)]
                found = [each for each in dict.fromkeys(starts) if not found or each < found[0]] + found
                if len(found) >= most:
                    break
        return [each for each in found if each >= low]

    def _starts_of(self, test: SureTest, block: HeldText, hits: LiteralHits) -> list[int]:
        """
        Where in a block the messages begin, of those at *hits*, that match.
        """
        data = block.data
        starts = dict.fromkeys(line_start(data, block.begin + at) for at, _ in hits)
        messages = [single_line_message(data, start) for start in starts if start >= 0]
        self.work.spend(sum(len(each or b"") for each in messages), 0, again=True)
        if len(messages) == len(starts) and test.all_pass(messages):
            return list(starts)
        spots = find_candidates(data, block.begin, hits, self.table.texts)
        return [spot.bounds[0] for spot in spots if spot.bounds is not None and test.passes(data, spot)]

    def _last_hits(self, block: HeldText, text: str) -> Iterator[LiteralHits]:
        """
        The places of a pattern in a block, the last first, in groups that are in order.
        """
        count = block.literal_count
        own = {each for each in block.literals() if text in self.table.texts(each)}
        packed = [each for each in block.packed if each % count in own]
        for end in range(len(packed), 0, -_GROUP):
            yield LiteralHits(packed[max(0, end - _GROUP) : end], count, 0)


def sure_test(text: str, owners: Sequence[PatternOwner]) -> SureTest | None:
    """
    The test for a pattern of these *owners*; None where bytes alone cannot tell.
    """
    unless = {each.unless for each in owners}
    in_header = owners[0].in_header
    if (
        len(unless) > 1
        or any(each.streams or each.unless_in_line for each in owners)
        or (in_header and unless != {None})
    ):
        return None
    ruled_out = tuple(each for each in unless if each)
    others = (*ruled_out, *OPENINGS)
    compiled = pattern_set((text, *others))
    if compiled is None:
        return None
    guessing = tuple(range(1 + len(ruled_out), 1 + len(others)))
    in_lines = None if in_header else _in_lines(text, others)
    return SureTest(text, compiled, guessing, in_header, in_lines)


def _in_lines(text: str, others: tuple[str, ...]) -> Any | None:
    """
    A pattern at the start of each line, in each line, and *others* anywhere; None if they may reach further.
    """
    inside = kept_within_line(text)
    if not is_within_line(inside) or not all(map(is_within_message, others)):
        return None
    each_line = (rf"\A(?:{start}(?:{inside})[^\n]*\n)*\z" for start in (r"[ \t]*", r"[^\n]*"))
    return pattern_set((*each_line, *others))
