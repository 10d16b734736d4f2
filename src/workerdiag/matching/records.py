"""
Which lines around a place in a log make up one message.

A message is its header line and what follows up to the next header: a traceback, a
faulthandler dump, a table. Its bounds depend only on the bytes within fixed distances, so
they are the same however the log was cut into chunks.
"""

from __future__ import annotations

from bisect import bisect_right

from attrs import frozen

from workerdiag.matching.lines import Line, take_apart

#: Bytes looked at before and after the line that a candidate is in.
BEFORE_BYTES = 8 * 1024
AFTER_BYTES = 16 * 1024
#: Of one line, at most this much is kept on each side of the candidate.
LINE_BYTES = 4 * 1024


@frozen(kw_only=True)
class Record:
    """
    One message, with where its lines begin.
    """

    header: Line | None
    #: Message text, lines joined by newlines.
    text: str
    #: Absolute byte offset of each line, and where its text begins in ``text``.
    line_offsets: tuple[int, ...]
    text_starts: tuple[int, ...]
    lines: tuple[Line, ...]

    @property
    def heading(self) -> str:
        """
        Its first line as distributed writes it, without the time; empty where there is no header.
        """
        return f"{self.header.logger} - {self.header.level} - {self.header.message}" if self.header else ""

    def line_at(self, position: int) -> int:
        """
        Index of the line in which *position* of the text lies.
        """
        return max(0, bisect_right(self.text_starts, position) - 1)

    def lines_of(self, start: int, end: int) -> tuple[int, int]:
        """
        Indexes of the first and the last line of the text from *start* to *end*.
        """
        return self.line_at(start), self.line_at(max(start, end - 1))


class Block:
    """
    Bytes of a log with enough around them to see whole messages.
    """

    def __init__(self, data: bytes, base: int) -> None:
        self.data = data
        #: Absolute offset of the first byte.
        self.base = base
        self._lines: dict[int, tuple[Line, int]] = {}
        self._records: dict[int, Record] = {}

    def record_at(self, offset: int) -> Record:
        """
        The message around the byte at *offset* (relative to this block).
        """
        start = self._line_start(offset)
        if self._is_overlong(start, offset):
            return self._clipped(start, offset)
        header = self._header_of(start)
        if header is None:  # text without headers: what lies around it
            first = self._line_start(max(0, start - BEFORE_BYTES))
            return self._gathered(first, start + AFTER_BYTES, self._line(start)[0].passed_by)
        if header not in self._records:
            passed_by = self._line(header)[0].passed_by
            self._records[header] = self._gathered(header, header + BEFORE_BYTES + AFTER_BYTES, passed_by)
        return self._records[header]

    def _line_start(self, offset: int) -> int:
        """
        Where the line begins that *offset* is in; of a very long line, somewhat before it.
        """
        floor = max(0, offset - LINE_BYTES)
        start = self.data.rfind(b"\n", floor, max(0, offset)) + 1
        return start or floor

    def _is_overlong(self, start: int, offset: int) -> bool:
        """
        Whether the line reaches further from *offset* than `LINE_BYTES`, on either side.
        """
        begins = self.base + start == 0 or self.data[start - 1 : start] == b"\n"
        ends = self.data.find(b"\n", offset, offset + LINE_BYTES) >= 0 or offset + LINE_BYTES >= len(
            self.data
        )
        return not (begins and ends)

    def _clipped(self, start: int, offset: int) -> Record:
        """
        Of an overlong line, what stands around *offset*, as a message of its own.
        """
        end = self.data.find(b"\n", offset, offset + LINE_BYTES)
        line = take_apart(self.data[start : end if end >= 0 else offset + LINE_BYTES])
        return Record(
            header=None, text=line.text, line_offsets=(self.base + start,), text_starts=(0,), lines=(line,)
        )

    def _line(self, start: int) -> tuple[Line, int]:
        """
        The line that begins at *start*, and where the next one begins.
        """
        if start not in self._lines:
            end = self.data.find(b"\n", start, start + 2 * LINE_BYTES)
            if end < 0:
                end = min(len(self.data), start + 2 * LINE_BYTES)
            self._lines[start] = (take_apart(self.data[start:end]), end + 1)
        return self._lines[start]

    def _header_of(self, start: int) -> int | None:
        """
        Where the header is of the message that the line at *start* is of, if within reach.
        """
        wanted, _ = self._line(start)
        at, line = start, wanted
        while not (line.is_header and line.passed_by == wanted.passed_by):
            if at <= max(0, start - BEFORE_BYTES):
                return None
            at = self._line_start(at - 1)
            line, _ = self._line(at)
        return at

    def _gathered(self, first: int, ceiling: int, passed_by: str) -> Record:
        lines: list[Line] = []
        offsets: list[int] = []
        at = first
        while at < min(len(self.data), ceiling):
            line, following = self._line(at)
            if line.passed_by == passed_by:
                if line.is_header and lines:
                    break
                lines.append(line)
                offsets.append(self.base + at)
            at = following
        starts, length, texts = [], 0, []
        for line in lines:
            starts.append(length)
            texts.append(line.message)
            length += len(texts[-1]) + 1
        return Record(
            header=lines[0] if lines[0].is_header else None,
            text="\n".join(texts),
            line_offsets=tuple(offsets),
            text_starts=tuple(starts),
            lines=tuple(lines),
        )
