"""
What is kept of one log while it passes by, in bounded memory.

A small log is kept whole. Of a large one stay its beginning, its end, and every message in which
something was found, with a few lines around it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator

from attrs import define, field

from workerdiag.bundle.retention.closed_log import SIZES, ClosedLog
from workerdiag.bundle.retention.excerpts import LogExcerpt, MessageSpan, head_excerpt, merge_excerpts
from workerdiag.model.evidence import LogChunk

#: The matcher may find something in the last so many bytes that it was given (it holds back up to
#: 1280 KiB of a log, and looks ahead and behind).
_UNSETTLED_BYTES = 1408 * 1024
#: Bytes gathered before those that are settled are let go of.
_STEP_BYTES = 1024 * 1024
#: Of one sign, so many messages from the start of the log, and as many from its end (as the matcher does).
_EACH_END = 400
#: Messages that are remembered of a log that has passed.
_MAX_MARKS = 1000
#: A line that the end of a log begins with is looked for in so many bytes more.
_LINE_BYTES = 8 * 1024


@define
class _OutermostMessages:
    """
    The first and the last messages with one sign.
    """

    first: list[MessageSpan] = field(factory=list)
    last: deque[MessageSpan] = field(factory=lambda: deque(maxlen=_EACH_END))

    def add(self, mark: MessageSpan) -> None:
        (self.first if len(self.first) < _EACH_END else self.last).append(mark)

    def ranked(self) -> Iterator[tuple[int, MessageSpan]]:
        """
        Each with its distance from the nearest end: the outermost tell most.
        """
        both = (*self.first, *self.last)
        for index, mark in enumerate(both):
            yield min(index, len(both) - 1 - index), mark


class OpenLog:
    """
    One log, while its chunks pass by.
    """

    def __init__(self, like: LogChunk) -> None:
        self.origin = like.origin
        self._like = like
        self._chunks: list[bytes] = []
        #: Where in the log the held chunks begin, and where they end.
        self._base = self._end = 0
        self._beginning: LogExcerpt | None = None
        self._cut: dict[int, LogExcerpt] = {}
        self._cut_bytes = 0
        self._signs: dict[tuple[str, str], _OutermostMessages] = {}
        self._pending: dict[int, MessageSpan] = {}
        #: A place and the number of the line that it is in; places behind which a known line begins.
        self._known = (0, 1)
        self._jumps: dict[int, int] = {0: 1}
        #: These places, in order.
        self._starts: list[int] = [0]

    def take(self, chunk: LogChunk) -> None:
        """
        Take the next bytes; let go of those that nothing was found in.
        """
        if self._end - self._base > _UNSETTLED_BYTES + _STEP_BYTES:
            self._drop_before(self._end - _UNSETTLED_BYTES)
        if chunk.first_line is not None:
            if self._end not in self._jumps:
                self._starts.append(self._end)
            self._jumps[self._end] = chunk.first_line
        self._chunks.append(chunk.data)
        self._end += len(chunk.data)

    def on_match(self, sign: tuple[str, str], mark: MessageSpan) -> None:
        """
        Something was found in a message.
        """
        outermost = self._signs.get(sign)
        if outermost is None:
            outermost = self._signs[sign] = _OutermostMessages()
        outermost.add(mark)
        self._pending[mark.first] = mark

    def on_progress(self, at: int, line: int) -> None:
        """
        Byte *at* lies in line number *line*.
        """
        self._known = (at, line)

    def close(self) -> ClosedLog:
        """
        The log, after its end.
        """
        runs = list(self._runs(0 if self._base == 0 else self._tail_start()))
        if self._base:
            self._cut_excerpts(self._end)
            runs = [*self._cut.values(), *runs] + ([self._beginning] if self._beginning else [])
        whole = ClosedLog(
            like=self._like,
            read_bytes=self._end,
            pieces=tuple(merge_excerpts(runs, apart=tuple(self._jumps))),
            marks=_pack_spans(self._ranked()),
            jumps=tuple(self._jumps),
        )
        head, tail, _ = SIZES[0]
        if self._end > head + tail:
            whole.shrink()
        return whole

    def _drop_before(self, up_to: int) -> None:
        if self._beginning is None:
            self._beginning = head_excerpt(next(self._runs(0)), SIZES[0][0])
        self._cut_excerpts(up_to)
        data = self._data()
        self._chunks = [data[up_to - self._base :]]
        self._base = up_to

    def _cut_excerpts(self, up_to: int) -> None:
        """
        Cut out the messages that begin before *up_to*.
        """
        due = [mark for mark in self._pending.values() if mark.first < up_to]
        if not due:
            return
        held = LogExcerpt(self._base, 0, self._data())
        for mark in due:
            del self._pending[mark.first]
            if not self._base <= mark.first <= mark.last < self._end:
                continue
            about = held.around(mark, *self._run_at(mark.first))
            self._cut[mark.first] = about
            self._cut_bytes += len(about.data)
        if self._cut_bytes > 2 * SIZES[0][2]:
            self._drop_inner()

    def _drop_inner(self) -> None:
        """
        Keep those messages that are at an end of what was found of their sign.
        """
        excerpts: dict[int, LogExcerpt] = {}
        size = 0
        for mark in self._ranked():
            piece = self._cut.get(mark.first)
            if piece is None:
                continue
            size += len(piece.data)
            if size > SIZES[0][2]:
                break
            excerpts[mark.first] = piece
        self._cut, self._cut_bytes = excerpts, sum(len(each.data) for each in excerpts.values())

    def _ranked(self) -> list[MessageSpan]:
        """
        The messages, each once, those first that stand at an end for one of their signs.
        """
        ranked = sorted(each for ends in self._signs.values() for each in ends.ranked())
        return list(dict.fromkeys(mark for _, mark in ranked))

    def _data(self) -> bytes:
        if len(self._chunks) != 1:
            self._chunks = [b"".join(self._chunks)]
        return self._chunks[0]

    def _run_at(self, at: int) -> tuple[int, int]:
        """
        From where to where the text around *at* is held without a jump in it.
        """
        place = bisect_right(self._starts, at)
        start = self._starts[place - 1] if place else self._base
        end = self._starts[place] if place < len(self._starts) else self._end
        return max(self._base, start), min(self._end, end)

    def _runs(self, from_: int) -> Iterator[LogExcerpt]:
        """
        What is held from *from_* on, cut where it jumps.
        """
        starts = sorted({from_, *(jump for jump in self._jumps if from_ < jump < self._end)})
        data = self._data()
        for start, end in zip(starts, (*starts[1:], self._end), strict=True):
            yield LogExcerpt(start, self._line_at(start), data[start - self._base : end - self._base])

    def _tail_start(self) -> int:
        return max(self._base, self._end - SIZES[0][1] - _LINE_BYTES)

    def _line_at(self, at: int) -> int:
        """
        Number of the line in which byte *at* lies, counted from the nearest place that is known.
        """
        if at in self._jumps:
            return self._jumps[at]
        jump = self._starts[bisect_right(self._starts, at) - 1]
        known = (jump, self._jumps[jump]) if jump >= self._base else self._known
        low, high = sorted((at, known[0]))
        between = self._data().count(b"\n", low - self._base, high - self._base)
        return known[1] + between if known[0] <= at else known[1] - between


def _pack_spans(marks: list[MessageSpan]) -> array[int]:
    return array("q", (number for mark in marks[:_MAX_MARKS] for number in mark))
