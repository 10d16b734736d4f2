"""
The text of a part in segments that overlap, each searched as the whole would be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf
from typing import Final

from attrs import frozen

from workerdiag.matching.messages.log_window import REACH_AHEAD, REACH_BEHIND
from workerdiag.triage.parts import ALIGNMENT, MIB

#: How far before and behind a place its message may reach, rounded up to where parts may begin.
OVERLAP: Final = -(-max(REACH_BEHIND, REACH_AHEAD) // ALIGNMENT) * ALIGNMENT
#: Around the end of a process, this many bytes are searched closely.
_SEGMENT_BYTES = 8 * MIB


@frozen
class Segment:
    """
    Bytes of a text with enough around them to see whole messages.
    """

    #: Where the bytes begin in the text, and which of them count.
    base: int
    first: int
    end: int
    data: bytes
    #: Ends of lines before the base, from the beginning of the part on; negative if that lies behind it.
    newlines_before: int
    #: Whether it is all of the text, which is mended then, if it is short.
    is_whole: bool = False


def cut_into_segments(first: int, blocks: Iterable[tuple[int, bytes]]) -> Iterator[Segment]:
    """
    The text in segments that overlap, aligned so that they are searched as the whole would be.

    Args:
        first: Where what counts begins.
        blocks: Each with its place in the text; the first may lie before *first*, and those behind what
            counts are marked by an empty block.
    """
    held, base, own, end = bytearray(), max(0, first - OVERLAP), first, inf
    newlines: int | None = None
    problem: Exception | None = None
    pieces = iter(blocks)
    while True:
        try:
            place, data = next(pieces, (-1, b""))
        except Exception as raised:  # noqa: BLE001  what was read before it counts
            problem = raised
            break
        if place < 0:
            break
        if not data:  # what follows is only looked at
            end = place
        held += data
        if newlines is None and base + len(held) > own:
            newlines = -held.count(b"\n", 0, own - base)
        if len(held) >= _SEGMENT_BYTES + 2 * OVERLAP and newlines is not None:
            stop = int(min(end, (base + len(held) - OVERLAP) // ALIGNMENT * ALIGNMENT))
            yield Segment(base, own, stop, bytes(held), newlines)
            keep = max(0, stop - OVERLAP - base) // ALIGNMENT * ALIGNMENT
            newlines += held.count(b"\n", 0, keep)
            del held[:keep]
            base, own = base + keep, stop
    stop = int(min(end, base + len(held)))
    if stop > own and newlines is not None:
        is_whole = base == own == 0 and end == inf
        yield Segment(base, own, stop, bytes(held), newlines, is_whole)
    if problem is not None:
        raise problem
