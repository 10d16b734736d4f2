"""
A log that was read to its end, and how less and less of it is kept where there are many.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator

from attrs import define, field

from workerdiag.bundle.retention.kept_evidence import KeptLog, LogPart
from workerdiag.model.evidence import LogChunk, LogExcerpt

#: Bytes kept of the beginning, of the end and of messages, from the roomiest to nothing at all.
SIZES = (
    (32 * 1024, 256 * 1024, 1024 * 1024),
    (4 * 1024, 32 * 1024, 128 * 1024),
    (1024, 4 * 1024, 32 * 1024),
    (0, 1024, 8 * 1024),
    (0, 0, 0),
)
_NUMBER_BYTES = 8


def head_excerpt(excerpt: LogExcerpt, size: int) -> LogExcerpt:
    """
    At most the first *size* bytes.
    """
    if len(excerpt.data) <= size:
        return excerpt
    newline = excerpt.data.rfind(b"\n", 0, size)
    return excerpt.part(0, newline + 1 if newline >= 0 else size)


def tail_excerpt(excerpt: LogExcerpt, size: int) -> LogExcerpt:
    """
    At most the last *size* bytes.
    """
    length = len(excerpt.data)
    if length <= size:
        return excerpt
    newline = excerpt.data.find(b"\n", length - size - 1, length - 1)
    return excerpt.part(newline + 1 if newline >= 0 else length - size, length)


def merge_excerpts(excerpts: Iterable[LogExcerpt]) -> Iterator[LogExcerpt]:
    """
    The excerpts of one log in its order; those that overlap or follow each other as one.
    """
    joined: list[bytes] = []
    start = line = end = 0
    for each in sorted(excerpts):
        if not each.data or (joined and each.end <= end):
            continue
        if joined and each.start <= end:
            joined.append(each.data[end - each.start :])
        else:
            if joined:
                yield LogExcerpt(start, line, b"".join(joined))
            joined, start, line = [each.data], each.start, each.line
        end = each.end
    if joined:
        yield LogExcerpt(start, line, b"".join(joined))


@define
class ClosedLog:
    """
    The excerpts of a log that was read to its end.
    """

    like: LogChunk
    read_bytes: int
    excerpts: tuple[LogExcerpt, ...]
    #: Messages that show a sign, the most telling first: for each its start, its end and its line.
    messages: array[int]
    #: Index into `SIZES` of the last shrinking.
    _size: int = field(default=-1, init=False)

    @property
    def size_bytes(self) -> int:
        """
        Memory that it takes.
        """
        return sum(len(each.data) for each in self.excerpts) + len(self.messages) * _NUMBER_BYTES

    def shrink(self) -> None:
        """
        Keep less of it, if there is anything left.
        """
        if self._size + 1 >= len(SIZES) or not self.excerpts:
            return
        self._size += 1
        head, tail, messages = SIZES[self._size]
        ends = head_excerpt(self.excerpts[0], head), tail_excerpt(self.excerpts[-1], tail)
        self.excerpts = tuple(merge_excerpts((*self._messages(messages), *ends)))
        if not messages:
            self.messages = array("q")

    def kept_evidence(self) -> KeptLog:
        """
        The log as it is handed on.
        """
        return KeptLog(
            origin=self.like.origin,
            stream=self.like.stream,
            identity=self.like.identity,
            read_bytes=self.read_bytes,
            parts=tuple(LogPart(first_line=each.line, data=each.data) for each in self.excerpts),
        )

    def _messages(self, room_bytes: int) -> Iterator[LogExcerpt]:
        """
        The most telling messages, as far as there is room.
        """
        starts = [each.start for each in self.excerpts]
        for start, end, line in zip(*(self.messages[number::3] for number in range(3)), strict=True):
            holder = self.excerpts[max(0, bisect_right(starts, start) - 1)]
            if not holder.start <= start <= end <= holder.end:
                continue
            room_bytes -= end - start
            if room_bytes < 0:
                return
            yield LogExcerpt(start, line, holder.data[start - holder.start : end - holder.start])
