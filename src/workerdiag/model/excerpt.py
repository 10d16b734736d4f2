"""
Consecutive bytes of a log with their place in it.
"""

from __future__ import annotations

from typing import NamedTuple


class LogExcerpt(NamedTuple):
    """
    Consecutive bytes of a log.

    Places are counted in bytes over all that was given of the log; where text was left out counts as one.
    """

    #: Place of the first byte.
    start: int
    #: Number of its line, from 1.
    line: int
    data: bytes

    @property
    def end(self) -> int:
        """
        Place behind the last byte.
        """
        return self.start + len(self.data)

    def part(self, begin: int, end: int) -> LogExcerpt:
        """
        The bytes *begin* to *end*, counted within the excerpt.
        """
        line = self.line + self.data.count(b"\n", 0, begin)
        return LogExcerpt(self.start + begin, line, self.data[begin:end])
