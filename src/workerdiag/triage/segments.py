"""Cut the text of a part into overlapping segments. Searching them finds what searching the whole would find."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf
from typing import Final

from attrs import frozen

from workerdiag.matching.messages import REACH_AHEAD, REACH_BEHIND
from workerdiag.triage.parts import ALIGNMENT, MIB

#: How far a message may reach before and after a place in it, in bytes, rounded up to `ALIGNMENT`.
OVERLAP: Final = -(-max(REACH_BEHIND, REACH_AHEAD) // ALIGNMENT) * ALIGNMENT
#: Bytes that are searched closely around the end of a process.
_SEGMENT_BYTES = 8 * MIB


@frozen
class Segment:
    """Bytes of a text, with enough context to see whole messages."""

    #: Offset of *data* in the text, and the range of bytes that count.
    base: int
    first: int
    end: int
    data: bytes
    #: Newlines between the beginning of the part and the base; negative if the part begins after the base.
    newlines_before: int
    #: Whether it is the whole text. A short whole text is repaired.
    is_whole: bool = False


def cut_into_segments(first: int, blocks: Iterable[tuple[int, bytes]]) -> Iterator[Segment]:
    """Yield the text in overlapping segments, aligned so that they are searched as the whole text would be.

    Args:
        first: The first byte that counts.
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
        if not data:  # the rest is overlap
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
