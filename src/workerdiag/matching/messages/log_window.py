"""
Which lines around a place in a log make up one message.

A message is its header line and what follows up to the next header: a traceback, a
faulthandler dump, a table. Its bounds depend only on the bytes within fixed distances, so
they are the same however the log was cut into chunks. Text without headers, and lines that are
too long, are read by tiles that overlap: so no byte is in more than `MAX_COPIES` messages,
whatever the text.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from itertools import accumulate

from attrs import define, field

from workerdiag.matching.messages.line_index import LONGEST_LINE, LineIndex
from workerdiag.matching.messages.log_record import LogRecord
from workerdiag.matching.text.line_parser import ParsedLine, parse_line
from workerdiag.matching.work_budget import WorkBudget
from workerdiag.model.evidence import NEWLINE_PIECE_BYTES, LogChunk

#: Bytes looked at before and after the line, or the tile, that a candidate is in.
BEFORE_BYTES = 8 * 1024
AFTER_BYTES = 16 * 1024
#: Text without headers is read by tiles of this size.
TILE_BYTES = 8 * 1024
#: Of an overlong line, tiles of this size are read, each with as much before and behind it.
CLIP_BYTES = 4 * 1024
#: A byte is in the message of its header, in those of this many tiles, or in those of this many clips.
MAX_COPIES = 1 + -(-(BEFORE_BYTES + TILE_BYTES + AFTER_BYTES) // TILE_BYTES)
#: Bytes before and after a candidate that its message may reach.
REACH_BEHIND = BEFORE_BYTES + TILE_BYTES + 3 * LONGEST_LINE
REACH_AHEAD = BEFORE_BYTES + TILE_BYTES + AFTER_BYTES + LONGEST_LINE
#: This many of the last places are remembered at least, and twice as many at most: some 128 MiB of text.
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


class LogWindow:
    """
    Bytes of a log with enough around them to see whole messages.
    """

    def __init__(
        self,
        data: bytes,
        base: int,
        work: WorkBudget,
        newlines: int = 0,
        marks: NewlineMarks | None = None,
    ) -> None:
        self.data = data
        #: Absolute offset of the first byte, and the number of newlines of the log before it.
        self.base = base
        self.newlines = newlines
        self._marks = marks or NewlineMarks()
        #: The last place that was asked for, and the newlines before it.
        self._counted = base, newlines
        self._work = work
        self._index = LineIndex(data, work)
        self._records: dict[tuple[int, str, int | None], LogRecord] = {}
        self._clips: dict[int, LogRecord] = {}
        #: From where to where the message that was asked for last is the answer, and that message.
        self._from = self._to = 0
        self._last: LogRecord | None = None
        #: Lines of that message that begin between these places have it for an answer as well.
        self._same_from = self._same_before = 0

    def forget_lines(self) -> None:
        """
        Keep no more than the bytes.
        """
        self._index = LineIndex(self.data, self._work)
        self._records = {}
        self._clips = {}
        self._from = self._to = self._same_from = self._same_before = 0
        self._last = None

    def line_number(self, offset: int) -> int:
        """
        Number, from 1, of the line at an absolute offset.
        """
        return 1 + self.newlines_before(offset)

    def newlines_before(self, offset: int) -> int:
        """
        Newlines of the log before an absolute offset in the window.
        """
        known = self._counted if self._counted[0] <= offset else (self.base, self.newlines)
        place, newlines = max(self._marks.last_before(offset), known)
        newlines += self.data.count(b"\n", place - self.base, offset - self.base)
        self._counted = offset, newlines
        return newlines

    def record_of_line(self, start: int, end: int) -> LogRecord:
        """
        The message that the line from *start* to *end* is, just as `record_at` finds it.
        """
        key = (-1, "", start)
        if key not in self._records:
            self._add_one_line(key, start, self._index.line_between(start, end))
        return self._records[key]

    def _add_one_line(self, key: tuple[int, str, int | None], start: int, line: ParsedLine) -> LogRecord:
        record = self._records[key] = LogRecord(line, line.message, (self.base + start,), (0,), (line,), self)
        self._work.gather(len(record.text), 1)
        return record

    def record_at(self, offset: int) -> LogRecord:
        """
        The message around the byte at *offset* (relative to this block).
        """
        if not self.holds(offset):
            bounds = self._index.bounds(offset)
            found = self._clip(offset) if bounds is None else (*bounds, self._record_of_line(bounds[0]))
            self._from, self._to, self._last = found
        assert self._last is not None
        return self._last

    def holds(self, offset: int) -> bool:
        """
        Whether the message that was asked for last is the one around *offset*.
        """
        return self._from <= offset < self._to or self._goes_on_at(offset)

    def _goes_on_at(self, offset: int) -> bool:
        """
        Whether *offset* is in another line of the message that was asked for last.
        """
        if self._last is None or self.base + offset < (offsets := self._last.line_offsets)[0]:
            return False
        start = offsets[bisect_right(offsets, self.base + offset) - 1] - self.base
        if not self._same_from <= start < self._same_before:
            return False
        if self._index.barrier(max(start, self._from)) > min(start, self._from):
            return False
        end = self.data.find(b"\n", start, start + LONGEST_LINE + 1)
        if end < offset:
            return False
        self._from, self._to = start, end
        return True

    def _record_of_line(self, start: int) -> LogRecord:
        line = self._index.line(start)
        forwarder = line.forwarder
        header = (
            start
            if line.is_header
            else self._index.header_before(start, forwarder, max(0, start - BEFORE_BYTES))
        )
        if header is not None:
            ceiling = header + BEFORE_BYTES + AFTER_BYTES
            self._same_from, self._same_before = header, header + BEFORE_BYTES + 1
            return self._assemble_record((-1, forwarder, header), header, header, ceiling)
        tile = (self.base + start) // TILE_BYTES
        begin = tile * TILE_BYTES - self.base
        low = max(0, begin - BEFORE_BYTES)
        above = self._index.header_before(start, forwarder, low)
        first = max(begin, low)
        if above is not None:
            low, first = above + 1, max(begin, above + BEFORE_BYTES + 1)  # nearer lines are of that header
        self._same_from, self._same_before = first, begin + TILE_BYTES
        return self._assemble_record((tile, forwarder, above), start, low, begin + TILE_BYTES + AFTER_BYTES)

    def _assemble_record(
        self, key: tuple[int, str, int | None], start: int, low: int, ceiling: int
    ) -> LogRecord:
        """
        The lines of one passer from *low* to *ceiling* or its next header, as a message.
        """
        if key in self._records:
            return self._records[key]
        starts = self._index.lines_of(start, key[1], low, ceiling)
        if len(starts) == 1 and (line := self._index.line(starts[0])).is_header:  # as most are
            return self._add_one_line(key, starts[0], line)
        lines = [self._index.line(each) for each in starts]
        texts = [line.message for line in lines]
        text = "\n".join(texts)
        self._work.gather(len(text), len(texts))
        record = self._records[key] = LogRecord(
            header=lines[0] if lines[0].is_header else None,
            text=text,
            line_offsets=array("q", (self.base + each for each in starts)),
            text_starts=array("l", accumulate((len(each) + 1 for each in texts[:-1]), initial=0)),
            lines=tuple(lines),
            window=self,
        )
        return record

    def _clip(self, offset: int) -> tuple[int, int, LogRecord]:
        """
        Of an overlong line, what stands around *offset*, as a message of its own; and for which places.
        """
        self._same_from = self._same_before = 0
        begin = (self.base + offset) // CLIP_BYTES * CLIP_BYTES - self.base
        low, high = max(0, begin - CLIP_BYTES), min(len(self.data), begin + 2 * CLIP_BYTES)
        start = self.data.rfind(b"\n", low, offset) + 1 or low
        end = self.data.find(b"\n", offset, high)
        end = end if end >= 0 else high
        if start not in self._clips:
            line = parse_line(self.data[start:end])
            self._work.gather(len(line.text), 1)
            self._clips[start] = LogRecord(
                header=None,
                text=line.text,
                line_offsets=(self.base + start,),
                text_starts=(0,),
                lines=(line,),
                window=self,
            )
        return max(start, begin), min(end, begin + CLIP_BYTES), self._clips[start]
