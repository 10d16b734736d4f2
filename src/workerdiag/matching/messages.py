"""The messages of a log: lines parsed on demand, each once, and assembled around a place.

A message is a header line with the text up to the next header: a traceback, a faulthandler dump, a table. Lines
of several forwarders may be mixed; one message is of one of them. The bounds of a message depend only on bytes
within fixed distances, so they do not depend on how the log is cut into chunks. Text without headers and overlong
lines are read in overlapping tiles, so no byte is in more than `MAX_COPIES` messages.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Protocol

from attrs import define, field

from workerdiag.matching.log_lines import ParsedLine, guesses, is_plain, parse_line
from workerdiag.matching.regex import SearchWork, pattern
from workerdiag.model.evidence import LogExcerpt
from workerdiag.model.vocabulary import NOTE_LINES, NOTE_START

#: A longer line is not parsed as a whole, only the text around a candidate.
LONGEST_LINE = 8 * 1024
#: Limits of the cache of equal short lines: bytes of a line, and lines.
_SHORT_BYTES, _MAX_SHORT = 256, 4096
_BLANK = parse_line(b"")


class LineIndex:
    """The lines of *data* by offset. Each is parsed at most once."""

    def __init__(self, data: bytes, work: SearchWork) -> None:
        self.data = data
        self._work = work
        #: Parsed lines, except blank ones, which can be very many.
        self._lines: dict[int, ParsedLine] = {}
        self._short: dict[bytes, ParsedLine] = {}
        #: Where the lines begin, from the first to the last, between which a forwarder is known to have no header.
        self._headerless: dict[str, tuple[int, int]] = {}

    def start_of(self, offset: int) -> int | None:
        """Return where the line around *offset* begins; None if it is longer than `LONGEST_LINE`."""
        newline = self.data.rfind(b"\n", max(0, offset - LONGEST_LINE), offset)
        if newline < 0 and offset > LONGEST_LINE:
            return None
        start = newline + 1
        end = self.data.find(b"\n", offset, start + LONGEST_LINE + 1)
        if end < 0:
            end = len(self.data)
        return start if end - start <= LONGEST_LINE else None

    def line(self, start: int) -> ParsedLine:
        """Return the line that begins at *start*; of an overlong one, its beginning."""
        known = self._lines.get(start)
        if known is not None:
            return known
        end = self.data.find(b"\n", start, start + LONGEST_LINE + 1)
        end = end if end >= 0 else min(len(self.data), start + LONGEST_LINE)
        if end == start:
            return _BLANK
        self._work.line_bytes += end - start
        line = self._lines[start] = self._parse(self.data[start:end])
        return line

    def header_before(self, start: int, forwarder: str, floor: int) -> int | None:
        """Return the last header of *forwarder* from *floor* to the line at *start*; None if there is none."""
        low, high = self._headerless.get(forwarder, (0, -1))
        place, lowest, known_to = start, start + 1, start
        while place >= floor:
            if low <= place <= high:
                place, known_to = low, max(start, high)
            elif (line := self.line(place)).is_header and line.forwarder == forwarder:
                break
            lowest, before = place, self._line_before(place)
            place = -1 if before is None else before
        self._headerless[forwarder] = lowest, known_to
        return place if place >= floor else None

    def lines_of(self, start: int, forwarder: str, low: int, ceiling: int) -> list[int]:
        """Return the lines of *forwarder* around *start*, at most from *low* to *ceiling* or the next header."""
        starts: list[int] = []
        place: int | None = start
        while place is not None and place >= low:
            if self.line(place).forwarder == forwarder:
                starts.append(place)
            place = self._line_before(place)
        starts.reverse()
        behind, end = start, min(ceiling, len(self.data))
        while 0 < (behind := self.data.find(b"\n", behind, end) + 1) < end:
            line = self.line(behind)
            if line.forwarder == forwarder:
                if line.is_header:
                    break
                starts.append(behind)
        return starts

    def _line_before(self, start: int) -> int | None:
        """Return the start of the line before the one at *start*; None if there is none, or it is overlong."""
        newline = self.data.rfind(b"\n", max(0, start - 2 - LONGEST_LINE), start - 1) if start else -1
        return None if newline < 0 and (not start or start - 1 > LONGEST_LINE) else newline + 1

    def _parse(self, raw: bytes) -> ParsedLine:
        if len(raw) > _SHORT_BYTES:
            return parse_line(raw)
        line = self._short.get(raw)
        if line is None:
            line = parse_line(raw)
            if len(self._short) < _MAX_SHORT:
                self._short[raw] = line
        return line


#: Code that would log a message: an excerpt of code is not a log.
_WOULD_WRITE = re.compile(
    r"\blog(?:ger|ging)?\.(?:debug|info|warn(?:ing)?|error|exception|critical)\(", re.IGNORECASE
)
#: Limits of the context before and after a message: lines and bytes.
_CONTEXT_LINES = 3
_CONTEXT_BYTES = 2 * 1024
#: Bytes to keep of a last line without a line end.
_LINE_BYTES = 8 * 1024


class MatchObserver(Protocol):
    """Receives the text around each match."""

    def on_match(self, origin: str, sign: tuple[str, str], message: LogExcerpt) -> None:
        """Receive a message of the log *origin* that shows *sign* (owner and name)."""


@define(eq=False)
class LogRecord:
    """One message, with the offsets of its lines."""

    header: ParsedLine | None
    #: Message text, lines joined by newlines.
    text: str
    #: Absolute byte offset of each line, and its offset in ``text``. There can be thousands.
    line_offsets: Sequence[int]
    text_starts: Sequence[int]
    lines: tuple[ParsedLine, ...]
    #: The block that it is from.
    window: LogWindow
    #: Patterns already run on it.
    tried: set[str] = field(factory=set)
    _shown: dict[str, bool] = field(factory=dict, init=False)
    _calls: list[tuple[int, int]] | None = field(default=None, init=False)
    _guesses: tuple[tuple[int, int], ...] | None = field(default=None, init=False)
    #: Line numbers, counted from 1, once they were requested.
    numbers: Sequence[int] = field(default=(), init=False)

    @property
    def heading(self) -> str:
        """Its header line without the time, as distributed writes it; empty without a header."""
        return f"{self.header.logger} - {self.header.level} - {self.header.message}" if self.header else ""

    def line_at(self, position: int) -> int:
        """Return the index of the line at *position* of the text."""
        return max(0, bisect_right(self.text_starts, position) - 1)

    def shows(self, text: str) -> bool:
        """Whether the pattern *text* matches anywhere in the message."""
        if text not in self._shown:
            self._shown[text] = pattern(text).search(self.text) is not None
        return self._shown[text]

    def is_code(self, position: int) -> bool:
        """Whether the line calls a logging function before *position*."""
        if self._calls is None:
            found_calls = _WOULD_WRITE.finditer(self.text) if "log" in self.text.lower() else ()
            self._calls = [(found.end(), found.start()) for found in found_calls]
        if not self._calls:
            return False
        place = bisect_right(self._calls, (position, len(self.text)))
        return place > 0 and self._calls[place - 1][1] >= self.text_starts[self.line_at(position)]

    def is_guess(self, position: int) -> bool:
        """Whether the sentence says before *position* that it is a guess."""
        if not position:  # nothing precedes it
            return False
        if self._guesses is None:
            self._guesses = tuple(guesses(self.text))
        return any(start <= position < end for start, end in self._guesses)

    def is_own_note(self, at: int) -> bool:
        """Whether line *at* is part of a note of ours in an exception, which is not evidence."""
        if NOTE_START not in self.text:
            return False
        note = self.lines[max(at - NOTE_LINES + 1, 0) : at + 1]
        return any(line.message.lstrip().startswith(NOTE_START) for line in note)

    def follows(self, at: int, text: bytes) -> bool:
        """Whether the lines above line *at* contain *text*, which is in lower case."""
        return follows(self.window.data, self.line_offsets[at] - self.window.base, text)

    def number_lines(self) -> None:
        """Number its lines."""
        if not self.numbers:
            window = self.window
            first = 1 + window.newlines_before(self.line_offsets[0])
            if len(self.lines) == 1:
                self.numbers = (first,)
                return
            places = (each - window.base for each in self.line_offsets)
            between = (window.data.count(b"\n", one, two) for one, two in pairwise(places))
            self.numbers = array("q", accumulate(between, initial=first))

    def excerpt(self, first: int, last: int) -> LogExcerpt:
        """Return its numbered lines *first* to *last*, with a few lines of the log before and after them."""
        places = self.line_offsets[first], self.line_offsets[last]
        return message_excerpt(self.window.data, self.window.base, *places, self.numbers[first])


def follows(data: bytes, at: int, text: bytes) -> bool:
    """Whether the three lines above the line at offset *at* contain *text*, which is in lower case."""
    return text in data[_context_start(data, at) : at].lower()


def message_excerpt(data: bytes, base: int, first: int, last: int, line: int) -> LogExcerpt:
    """Return a message, whose lines begin at *first* to *last* of the log, with a few lines around it."""
    begin = _context_start(data, first - base)
    end = _context_end(data, last - base)
    return LogExcerpt(base + begin, line - data.count(b"\n", begin, first - base), data[begin:end])


def _context_start(data: bytes, at: int) -> int:
    reach = max(0, at - _CONTEXT_BYTES)
    for _ in range(_CONTEXT_LINES):
        newline = data.rfind(b"\n", reach, max(reach, at - 1))
        if newline < 0:
            return at if reach else 0
        at = newline + 1
    return at


def _context_end(data: bytes, at: int) -> int:
    newline = data.find(b"\n", at, at + _LINE_BYTES)
    if newline < 0:
        return at + _LINE_BYTES
    at = newline + 1
    reach = at + _CONTEXT_BYTES
    for _ in range(_CONTEXT_LINES):
        newline = data.find(b"\n", at, reach)
        if newline < 0:
            return len(data) if reach >= len(data) else at
        at = newline + 1
    return at


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


class LogWindow:
    """Bytes of a log, with enough around them for whole messages."""

    def __init__(self, data: bytes, base: int, work: SearchWork, newlines: int = 0) -> None:
        self.data = data
        #: Absolute offset of the first byte.
        self.base = base
        #: The last offset requested, and the newlines before it.
        self._counted = base, newlines
        self._work = work
        self._index = LineIndex(data, work)
        self._records: dict[tuple[int, str, int | None], LogRecord] = {}
        self._clips: dict[int, LogRecord] = {}

    def forget_lines(self) -> None:
        """Drop everything but the bytes."""
        self._index = LineIndex(self.data, self._work)
        self._records.clear()
        self._clips.clear()

    def newlines_before(self, offset: int) -> int:
        """Return the number of newlines in the log before an absolute offset in the window."""
        known, newlines = self._counted
        low, high = sorted((known - self.base, offset - self.base))
        between = self.data.count(b"\n", low, high)
        self._counted = offset, newlines + (between if known <= offset else -between)
        return self._counted[1]

    def record_of_line(self, start: int, forwarder: str = "") -> LogRecord:
        """Return the one-line message that begins at *start*, as `record_at` finds it."""
        key = (-1, forwarder, start)
        if key not in self._records:
            line = self._index.line(start)
            self._records[key] = LogRecord(line, line.message, (self.base + start,), (0,), (line,), self)
            self._work.gather(len(line.message), 1)
        return self._records[key]

    def record_at(self, offset: int) -> LogRecord:
        """Return the message around the byte at *offset*, relative to this block."""
        start = self._index.start_of(offset)
        if start is None:
            return self._clip(offset)
        forwarder = self._index.line(start).forwarder
        header = self._index.header_before(start, forwarder, max(0, start - BEFORE_BYTES))
        if header is not None:
            ceiling = header + BEFORE_BYTES + AFTER_BYTES
            return self._assemble_record((-1, forwarder, header), header, header, ceiling)
        tile = (self.base + start) // TILE_BYTES
        begin = tile * TILE_BYTES - self.base
        low = max(0, begin - BEFORE_BYTES)
        above = self._index.header_before(start, forwarder, low)
        if above is not None:
            low = above + 1
        return self._assemble_record((tile, forwarder, above), start, low, begin + TILE_BYTES + AFTER_BYTES)

    def plain_tile(self, start: int) -> tuple[int, bytes | None]:
        """Return the end of the tile around the line at *start*, and its text if `record_at` surely finds that.

        That is text without headers, in plain lines.
        """
        data, begin = self.data, (self.base + start) // TILE_BYTES * TILE_BYTES - self.base
        end = data.find(b"\n", begin + TILE_BYTES - 1) + 1 or len(data)
        low, high = begin - BEFORE_BYTES, begin + TILE_BYTES + AFTER_BYTES
        first = data.find(b"\n", low - 1) + 1 if low > 0 else 0
        last = (
            len(data) - data.endswith(b"\n")
            if high > len(data)
            else data.find(b"\n", high - 1, high + LONGEST_LINE)
        )
        text = data[first:last]
        needs_decoding = not text.isascii() or any(each in text for each in (b"\r", b"&", b"\x1b"))
        is_message = last >= 0 and not needs_decoding and not _has_overlong_line(text) and is_plain(text.decode())
        return end, text if is_message else None

    def _assemble_record(self, key: tuple[int, str, int | None], start: int, low: int, ceiling: int) -> LogRecord:
        if key in self._records:
            return self._records[key]
        starts = self._index.lines_of(start, key[1], low, ceiling)
        if len(starts) == 1 and self._index.line(starts[0]).is_header:  # the usual case
            return self.record_of_line(starts[0], key[1])
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

    def _clip(self, offset: int) -> LogRecord:
        """Return the clip of an overlong line around *offset* as a message."""
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
        return self._clips[start]


def _has_overlong_line(text: bytes) -> bool:
    at = 0
    while len(text) - at > LONGEST_LINE:
        at = text.rfind(b"\n", at, at + LONGEST_LINE + 1) + 1
        if not at:
            return True
    return False
