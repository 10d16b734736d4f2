"""Messages that certainly match a pattern, by their bytes alone.

Only the last matches of a saturated pattern are wanted. If later text has enough certain matches, earlier
places need no look. None of the certain ones becomes a `Match` yet.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from typing import Any

from attrs import define, evolve, field, frozen

from workerdiag.matching.other_programs import OPENINGS, guesses
from workerdiag.matching.regex import pattern, pattern_set
from workerdiag.matching.scan.candidates import Candidate, find_candidates, single_line_messages
from workerdiag.matching.scan.pattern_sets import is_within_line, is_within_message, kept_within_line
from workerdiag.matching.scan.pattern_table import PatternOwner, PatternTable
from workerdiag.matching.scan.prefilter import LiteralHits
from workerdiag.matching.scan.tail_block import TailBlock
from workerdiag.matching.work_budget import WorkBudget
from workerdiag.model.notes import NOTE_START

#: At most this many patterns are compiled. Matches of others are never certain.
_MAX_TESTS = 64
#: Places per piece.
PIECE_PLACES = 128
#: Bytes of the timestamp before the logger in a usual header.
_TIME_BYTES = len("2026-05-04 11:22:33,444 - ")
#: A message that contains one of these may be code that logs the message, or a note of ours.
_CODE, _NOTE = b"log", NOTE_START.lower().encode()


@frozen
class SureTest:
    """A pattern with the patterns that rule it out. A match is certain if only the first one matches.

    It rejects everything that `LogScan` and `_is_sign` reject, and more.
    """

    text: str
    #: The pattern, the patterns that rule it out, and last those that begin a guess.
    compiled: Any
    #: Numbers of the patterns that begin a guess.
    guessing: frozenset[int]
    in_header: bool
    #: The pattern at the start of every line, the pattern anywhere in every line, and then the others.
    in_lines: Any | None

    def starts(self, block: TailBlock, hits: LiteralHits, work: WorkBudget) -> tuple[list[int], bool]:
        """Return the offsets of the certain matches at *hits* of a block, and whether there can be no others."""
        data, table = block.window.data, block.table
        messages = single_line_messages(data, block.begin, hits)
        if messages is not None and self._all_pass(messages.values()):
            work.spend(sum(map(len, messages.values())), 0, again=True)
            return [block.base + each for each in messages], True
        found: list[int] = []
        is_sure = True
        for each in find_candidates(data, block.begin, hits, table.texts_together):
            work.spend(len(each.message or b""), 0, again=True)
            if each.bounds is not None and self._passes(data, each):
                found.append(block.base + each.bounds[0])
            elif each.message is None or table.matching((self.text,), each.message):
                is_sure = False
        return found, is_sure

    def _all_pass(self, messages: Collection[bytes]) -> bool:
        """Whether all one-line *messages* are matches. They are searched as one text."""
        if self.in_lines is None:
            return False
        text = b"".join([each + b"\n" for each in messages])
        lowered = text.lower()
        if _CODE in lowered or _NOTE in lowered:
            return False
        found = {each - 1 for each in self.in_lines.Match(text) or ()}
        if -1 in found:  # no guess precedes the match
            return found <= {-1, 0, *self.guessing}
        return found == {0}

    def _passes(self, data: bytes, candidate: Candidate) -> bool:
        """Whether the message of a candidate in the block *data* is a certain match."""
        if candidate.message is None or candidate.bounds is None:
            return False
        message = candidate.message.lower()
        if _CODE in message or _NOTE in message:
            return False
        if self.in_header:
            start = candidate.bounds[0] + _TIME_BYTES
            line = data[start : data.index(b"\n", start)].rstrip(b"\r")
            return 0 in (self.compiled.Match(line) or ())
        found = self.compiled.Match(candidate.message) or []
        if len(found) == 1:
            return bool(found[0] == 0)
        return (
            0 in found
            and self.guessing.issuperset(set(found) - {0})
            and not self._is_guess(candidate.message.decode())
        )

    def _is_guess(self, message: str) -> bool:
        """Whether the first match in a message may be part of a guess."""
        found = pattern(self.text).search(message)
        if found is None or message[(at := found.span()[0]) : at + 1].isspace():
            return True
        if not any(guesses(message[:at])):  # the usual case: the match is at the start
            return False
        return any(start <= at < end for start, end in guesses(message))


@define
class SureMatches:
    """The offsets of the last certain matches, by pattern."""

    table: PatternTable
    work: WorkBudget
    _tests: dict[str, SureTest | None] = field(factory=dict, init=False)
    #: Absolute offsets in order, and the offset up to which they are complete.
    _starts: dict[str, list[int]] = field(factory=dict, init=False)
    _searched_to: dict[str, int] = field(factory=dict, init=False)

    def are_enough(self, text: str, blocks: Sequence[TailBlock]) -> bool:
        """Whether *blocks* contain as many certain matches of the pattern *text* as are kept."""
        if not self._may_be_enough(text, blocks):
            return False
        if text not in self._tests:
            may_test = len(self._tests) < _MAX_TESTS
            self._tests[text] = sure_test(text, self.table.owners(text)) if may_test else None
        test = self._tests[text]
        if test is None:
            return False
        known, wanted = self._starts.get(text, []), self.table.kept_per_end(text)
        known = known[bisect_left(known, blocks[0].base + blocks[0].begin) :]
        if len(known) < wanted:
            known = (known + self._new_starts(test, blocks, wanted))[-wanted:]
            self._starts[text], self._searched_to[text] = known, blocks[-1].searched_to
        return len(known) >= wanted

    def _may_be_enough(self, text: str, blocks: Sequence[TailBlock]) -> bool:
        """Whether a pattern has at least as many hits as needed."""
        known = 0
        for block in blocks:
            if any(text in self.table.texts(each) for each in block.unplaced):
                return True
            known += sum(number for each, number in block.places().items() if text in self.table.texts(each))
        return known >= self.table.kept_per_end(text)

    def _new_starts(self, test: SureTest, blocks: Sequence[TailBlock], wanted: int) -> list[int]:
        """Return the offsets of new certain matches, from the end until there are as many as *wanted*."""
        low = self._searched_to.get(test.text, 0)
        found: list[int] = []
        for block in reversed(blocks):
            if block.searched_to <= low:
                break
            hits = block.hits((test.text,), self.work)
            for end in range(len(hits.packed), 0, -PIECE_PLACES):
                if len(found) >= wanted or not self.work.has_time():
                    return [each for each in found if each >= low]
                piece = evolve(hits, packed=hits.packed[max(0, end - PIECE_PLACES) : end])
                starts, _ = test.starts(block, piece, self.work)
                found = [each for each in starts if not found or each < found[0]] + found
        return [each for each in found if each >= low]


def sure_test(text: str, owners: Sequence[PatternOwner]) -> SureTest | None:
    """Return the test for a pattern of these *owners*; None if the bytes alone cannot decide."""
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
    first = 1 + len(ruled_out)
    guessing = frozenset(range(first, first + len(OPENINGS)))
    return SureTest(text, compiled, guessing, in_header, None if in_header else _in_lines(text, others))


def _in_lines(text: str, others: tuple[str, ...]) -> Any | None:
    """Return the set for `SureTest.in_lines`; None if a match may depend on other lines."""
    inside = kept_within_line(text)
    if not is_within_line(inside) or not all(map(is_within_message, others)):
        return None
    each_line = (rf"\A(?:{start}(?:{inside})[^\n]*\n)*\z" for start in (r"[ \t]*", r"[^\n]*"))
    return pattern_set((*each_line, *others))
