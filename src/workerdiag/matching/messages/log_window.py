"""A window on the bytes of a log that finds the message around a place.

A message is a header line with the text up to the next header: a traceback, a faulthandler dump, a table. Its
bounds depend only on bytes within fixed distances, so they do not depend on how the log is cut into chunks.
Text without headers and overlong lines are read in overlapping tiles, so no byte is in more than `MAX_COPIES`
messages.
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

#: Bytes to read before and after the line or tile of a candidate.
BEFORE_BYTES = 8 * 1024
AFTER_BYTES = 16 * 1024
#: Size of the tiles of text without headers.
TILE_BYTES = 8 * 1024
#: Size of the clips of an overlong line; each is read with as much text before and behind it.
CLIP_BYTES = 4 * 1024
#: A byte is in the message of its header, and in at most this many tiles or clips.
MAX_COPIES = 1 + -(-(BEFORE_BYTES + TILE_BYTES + AFTER_BYTES) // TILE_BYTES)
#: Maximum reach of a message before and after a candidate, in bytes.
REACH_BEHIND = BEFORE_BYTES + TILE_BYTES + 3 * LONGEST_LINE
REACH_AHEAD = BEFORE_BYTES + TILE_BYTES + AFTER_BYTES + LONGEST_LINE
#: Between once and twice this many marks are kept: at least some 128 MiB of text.
_LEAST_MARKS = 128 * 2**20 // NEWLINE_PIECE_BYTES


@define
class NewlineMarks:
    """Offsets in one log, at least `NEWLINE_PIECE_BYTES` apart, with the number of newlines before each."""

    #: Newlines up to the last byte.
    total: int = 0
    _places: array[int] = field(factory=lambda: array("q"), init=False)
    _counts: array[int] = field(factory=lambda: array("q"), init=False)
    _next: int = field(default=0, init=False)

    def add(self, chunk: LogChunk, start: int) -> None:
        """Count the next chunk, which begins at offset *start*."""
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
        """Return the last mark up to *place*, and the newlines before it; -1 if there is none."""
        number = bisect_right(self._places, place) - 1
        return (self._places[number], self._counts[number]) if number >= 0 else (-1, 0)


class LogWindow:
    """Bytes of a log, with enough around them for whole messages."""

    def __init__(
        self,
        data: bytes,
        base: int,
        work: WorkBudget,
        newlines: int = 0,
        marks: NewlineMarks | None = None,
    ) -> None:
        self.data = data
        #: Absolute offset of the first byte, and the number of newlines before it.
        self.base = base
        self.newlines = newlines
        self._marks = marks or NewlineMarks()
        #: The last offset requested, and the newlines before it.
        self._counted = base, newlines
        self._work = work
        self._index = LineIndex(data, work)
        self._records: dict[tuple[int, str, int | None], LogRecord] = {}
        self._clips: dict[int, LogRecord] = {}
        #: The range of offsets with the last message requested, and that message.
        self._from = self._to = 0
        self._last: LogRecord | None = None
        #: Its lines that begin in this range belong to it as well.
        self._same_from = self._same_before = 0

    def forget_lines(self) -> None:
        """Drop everything but the bytes."""
        self._index = LineIndex(self.data, self._work)
        self._records = {}
        self._clips = {}
        self._from = self._to = self._same_from = self._same_before = 0
        self._last = None

    def line_number(self, offset: int) -> int:
        """Return the number of the line at an absolute offset, counted from 1."""
        return 1 + self.newlines_before(offset)

    def newlines_before(self, offset: int) -> int:
        """Return the number of newlines in the log before an absolute offset in the window."""
        known = self._counted if self._counted[0] <= offset else (self.base, self.newlines)
        place, newlines = max(self._marks.last_before(offset), known)
        newlines += self.data.count(b"\n", place - self.base, offset - self.base)
        self._counted = offset, newlines
        return newlines

    def record_of_line(self, start: int, end: int) -> LogRecord:
        """Return the one-line message from *start* to *end*, as `record_at` finds it."""
        key = (-1, "", start)
        if key not in self._records:
            self._add_one_line(key, start, self._index.line_between(start, end))
        return self._records[key]

    def _add_one_line(self, key: tuple[int, str, int | None], start: int, line: ParsedLine) -> LogRecord:
        record = self._records[key] = LogRecord(line, line.message, (self.base + start,), (0,), (line,), self)
        self._work.gather(len(record.text), 1)
        return record

    def record_at(self, offset: int) -> LogRecord:
        """Return the message around the byte at *offset*, relative to this block."""
        if not self.holds(offset):
            bounds = self._index.bounds(offset)
            found = self._clip(offset) if bounds is None else (*bounds, self._record_of_line(bounds[0]))
            self._from, self._to, self._last = found
        assert self._last is not None
        return self._last

    def holds(self, offset: int) -> bool:
        """Whether the last message requested is the one around *offset*."""
        return self._from <= offset < self._to or self._goes_on_at(offset)

    def _goes_on_at(self, offset: int) -> bool:
        """Whether *offset* is in another line of the last message requested."""
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
            low, first = above + 1, max(begin, above + BEFORE_BYTES + 1)  # nearer lines belong to that header
        self._same_from, self._same_before = first, begin + TILE_BYTES
        return self._assemble_record((tile, forwarder, above), start, low, begin + TILE_BYTES + AFTER_BYTES)

    def _assemble_record(
        self, key: tuple[int, str, int | None], start: int, low: int, ceiling: int
    ) -> LogRecord:
        """Assemble the lines of one forwarder from *low* to *ceiling* or its next header."""
        if key in self._records:
            return self._records[key]
        starts = self._index.lines_of(start, key[1], low, ceiling)
        if len(starts) == 1 and (line := self._index.line(starts[0])).is_header:  # the usual case
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
        """Return the clip of an overlong line around *offset* as a message, with the range of its offsets."""
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
