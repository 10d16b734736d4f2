"""
How many newlines a log has before some places of it: each byte is counted once, whoever asks for a line.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

from attrs import define, field

from workerdiag.model.evidence import NEWLINE_PIECE_BYTES, LogChunk

#: So many of the last places are remembered at least, and twice as many at most: some 128 MiB of text.
_LEAST_MARKS = 128 * 2**20 // NEWLINE_PIECE_BYTES


@define
class NewlineMarks:
    """
    Places of one log that is being read, `NEWLINE_PIECE_BYTES` or more apart, and the newlines before each.
    """

    #: Newlines up to the last byte.
    total: int = 0
    _places: array[int] = field(factory=lambda: array("q"), init=False)
    _counts: array[int] = field(factory=lambda: array("q"), init=False)
    _next: int = field(default=0, init=False)

    def add(self, chunk: LogChunk, start: int) -> None:
        """
        Count the next chunk, which begins at place *start*.
        """
        for count in chunk.newline_counts:
            if start >= self._next:
                self._places.append(start)
                self._counts.append(self.total)
                self._next = start + NEWLINE_PIECE_BYTES
            self.total += count
            start += NEWLINE_PIECE_BYTES
        if len(self._places) > 2 * _LEAST_MARKS:
            self._places, self._counts = self._places[_LEAST_MARKS:], self._counts[_LEAST_MARKS:]

    def last_before(self, place: int) -> tuple[int, int]:
        """
        The last mark up to *place*, and the newlines before it; -1 where there is none.
        """
        number = bisect_right(self._places, place) - 1
        return (self._places[number], self._counts[number]) if number >= 0 else (-1, 0)
