"""
A log that has passed by, and how less and less of it is kept where there are many.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator

from attrs import define, field

from workerdiag.bundle.retention.excerpts import (
    LogExcerpt,
    MessageSpan,
    head_excerpt,
    merge_excerpts,
    tail_excerpt,
)
from workerdiag.bundle.retention.kept_evidence import KeptLog, LogPart
from workerdiag.model.evidence import LogChunk

#: Bytes kept of the beginning, of the end and of messages, from the roomiest to nothing at all.
SIZES = (
    (32 * 1024, 256 * 1024, 1024 * 1024),
    (4 * 1024, 32 * 1024, 128 * 1024),
    (1024, 4 * 1024, 32 * 1024),
    (0, 1024, 8 * 1024),
    (0, 0, 0),
)
_MARK_BYTES = 24


def _empty_chunk(chunk: LogChunk) -> LogChunk:
    return LogChunk(origin=chunk.origin, data=b"", stream=chunk.stream, identity=chunk.identity)


@define
class ClosedLog:
    """
    A log that has passed: what is kept of it, and how that can be made less.
    """

    like: LogChunk = field(converter=_empty_chunk)
    read_bytes: int
    pieces: tuple[LogExcerpt, ...]
    #: Messages in which something was found, the most telling ones first; three numbers each.
    marks: array[int]
    #: Places at which text had been left out already.
    jumps: tuple[int, ...]
    #: Index into `SIZES` of how roomy it is.
    _size: int = -1

    @property
    def size_bytes(self) -> int:
        """
        Bytes that it takes.
        """
        return sum(len(each.data) for each in self.pieces) + len(self.marks) // 3 * _MARK_BYTES

    def shrink(self) -> bool:
        """
        Keep less of it; False: there is nothing left that could go.
        """
        if self._size + 1 >= len(SIZES):
            return False
        self._size += 1
        head, tail, about = SIZES[self._size]
        pieces: list[LogExcerpt] = []
        if self.pieces:
            pieces += [
                *self._around(about),
                head_excerpt(self.pieces[0], head),
                tail_excerpt(self.pieces[-1], tail),
            ]
        self.pieces = tuple(merge_excerpts(pieces, apart=self.jumps))
        if not about:
            self.marks = array("q")
        return True

    def kept_evidence(self) -> KeptLog:
        """
        The log as it is handed on.
        """
        return KeptLog(
            origin=self.like.origin,
            stream=self.like.stream,
            identity=self.like.identity,
            read_bytes=self.read_bytes,
            parts=tuple(LogPart(first_line=each.line, data=each.data) for each in self.pieces),
        )

    def _around(self, most_bytes: int) -> Iterator[LogExcerpt]:
        """
        The messages that were marked, up to so many bytes.
        """
        starts = [each.start for each in self.pieces]
        for at in range(0, len(self.marks), 3):
            mark = MessageSpan(*self.marks[at : at + 3])
            holder = self.pieces[max(0, bisect_right(starts, mark.first) - 1)]
            if not holder.start <= mark.first <= mark.last < holder.end:
                continue
            piece = holder.around(mark, holder.start, holder.end)
            most_bytes -= len(piece.data)
            if most_bytes < 0:
                return
            yield piece
