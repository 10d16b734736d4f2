"""
Cutting out of a log what is worth keeping: whole lines, with the number of the first of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

#: Lines kept before and after a message, and the bytes that they may have.
_CONTEXT_LINES = 3
_CONTEXT_BYTES = 2 * 1024
#: Of a line without an end, so much behind the place where something was found.
_LINE_BYTES = 8 * 1024


class MessageSpan(NamedTuple):
    """
    A message that something was found in.
    """

    #: Byte of its first line in the log, and of its last one.
    first: int
    last: int
    #: Number of its first line.
    line: int


class LogExcerpt(NamedTuple):
    """
    Bytes of a log that follow each other.
    """

    #: Where they begin in the log.
    start: int
    #: Number of their first line.
    line: int
    data: bytes

    @property
    def end(self) -> int:
        """
        Where the byte behind them is in the log.
        """
        return self.start + len(self.data)

    def part(self, start: int, end: int) -> LogExcerpt:
        """
        The bytes from *start* to *end* of the log; both are within the piece.
        """
        low = start - self.start
        line = self.line + self.data.count(b"\n", 0, low)
        return LogExcerpt(start, line, self.data[low : end - self.start])

    def around(self, mark: MessageSpan, start: int, end: int) -> LogExcerpt:
        """
        The message at *mark* with a few lines before and behind it, between *start* and *end*.

        Its line number is reckoned from that of the mark.
        """
        begin = _lines_before(self.data, mark.first - self.start, start - self.start)
        stop = _lines_behind(self.data, mark.last - self.start, end - self.start)
        line = mark.line - self.data.count(b"\n", begin, mark.first - self.start)
        return LogExcerpt(self.start + begin, line, self.data[begin:stop])


def _lines_before(data: bytes, at: int, floor: int) -> int:
    reach = max(floor, at - _CONTEXT_BYTES)
    for _ in range(_CONTEXT_LINES):
        newline = data.rfind(b"\n", reach, max(reach, at - 1))
        if newline < 0:
            return floor if reach == floor else at
        at = newline + 1
    return at


def _lines_behind(data: bytes, at: int, ceiling: int) -> int:
    newline = data.find(b"\n", at, min(ceiling, at + _LINE_BYTES))
    if newline < 0:
        return min(ceiling, at + _LINE_BYTES)
    at = newline + 1
    reach = min(ceiling, at + _CONTEXT_BYTES)
    for _ in range(_CONTEXT_LINES):
        newline = data.find(b"\n", at, reach)
        if newline < 0:
            return ceiling if reach == ceiling else at
        at = newline + 1
    return at


def head_excerpt(piece: LogExcerpt, size: int) -> LogExcerpt:
    """
    About the first *size* bytes of a piece: whole lines where there are line ends.
    """
    if len(piece.data) <= size:
        return piece
    newline = piece.data.rfind(b"\n", 0, size)
    return piece.part(piece.start, piece.start + (newline + 1 if newline >= 0 else size))


def tail_excerpt(piece: LogExcerpt, size: int) -> LogExcerpt:
    """
    About the last *size* bytes of a piece: whole lines where there are line ends.
    """
    if len(piece.data) <= size:
        return piece
    from_ = len(piece.data) - size
    newline = piece.data.find(b"\n", from_ - 1, len(piece.data) - 1)
    return piece.part(piece.start + (newline + 1 if newline >= 0 else from_), piece.end)


def merge_excerpts(pieces: Iterable[LogExcerpt], *, apart: Iterable[int] = ()) -> Iterator[LogExcerpt]:
    """
    The pieces in the order of the log; those that overlap or follow each other as one.

    Args:
        pieces: Of one log, in any order.
        apart: Places at which text had been left out already: none is joined across these.
    """
    current: list[bytes] = []
    start = line = end = 0
    apart = frozenset(apart)
    for each in sorted(pieces):
        if not each.data or (current and each.end <= end):
            continue
        if current and each.start <= end and not (each.start == end and end in apart):
            current.append(each.data[end - each.start :])
        else:
            if current:
                yield LogExcerpt(start, line, b"".join(current))
            current, start, line = [each.data], each.start, each.line
        end = each.end
    if current:
        yield LogExcerpt(start, line, b"".join(current))
