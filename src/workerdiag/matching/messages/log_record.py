"""One message of a log: its text, its lines, and the text around a place in it."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Protocol

from attrs import define, field

from workerdiag.matching.other_programs import guesses
from workerdiag.matching.regex import pattern
from workerdiag.matching.text.line_parser import ParsedLine
from workerdiag.model.evidence import LogExcerpt
from workerdiag.model.notes import NOTE_LINES, NOTE_START

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


class TextAround(Protocol):
    """The bytes of the log around a message."""

    data: bytes
    base: int

    def line_number(self, offset: int) -> int:
        """Return the number of the line at *offset*, counted from 1."""


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
    window: TextAround
    #: Patterns already run on it.
    tried: set[str] = field(factory=set)
    _shown: dict[str, bool] = field(factory=dict, init=False)
    _calls: list[tuple[int, int]] | None = field(default=None, init=False)
    _guesses: tuple[tuple[int, int], ...] | None = field(default=None, init=False)
    _has_own_note: bool | None = field(default=None, init=False)
    #: Line numbers, counted from 1, once they were requested.
    numbers: Sequence[int] = field(default=(), init=False)
    _excerpts: dict[tuple[int, int], LogExcerpt] = field(factory=dict, init=False)

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
        if self._has_own_note is None:
            self._has_own_note = NOTE_START in self.text
        if not self._has_own_note:
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
            first = window.line_number(self.line_offsets[0])
            if len(self.lines) == 1:
                self.numbers = (first,)
                return
            places = (each - window.base for each in self.line_offsets)
            between = (window.data.count(b"\n", one, two) for one, two in pairwise(places))
            self.numbers = array("q", accumulate(between, initial=first))

    def excerpt(self, first: int, last: int) -> LogExcerpt:
        """Return its numbered lines *first* to *last*, with a few lines of the log before and after them."""
        key = (first, last)
        if key not in self._excerpts:
            window, line = self.window, self.numbers[first]
            places = self.line_offsets[first], self.line_offsets[last]
            self._excerpts[key] = message_excerpt(window.data, window.base, *places, line)
        return self._excerpts[key]


def follows(data: bytes, at: int, text: bytes) -> bool:
    """Whether the three lines above the line at offset *at* contain *text*, which is in lower case."""
    return text in data[_context_start(data, at) : at].lower()


def message_excerpt(data: bytes, base: int, first: int, last: int, line: int) -> LogExcerpt:
    """Return a message with a few lines before and after it.

    Args:
        data: Bytes of the log.
        base: Absolute offset of the first byte.
        first: Absolute offset of the first line of the message.
        last: Absolute offset of its last line.
        line: Number of its first line.
    """
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


def context_bounds(data: bytes, start: int, end: int, least: int) -> tuple[int, int] | None:
    """Return the bounds of a message to cut out so that its excerpt stays the same; None if impossible.

    Args:
        data: Bytes of the log.
        start: Offset of its first line.
        end: Offset behind its last line.
        least: At least this many bytes behind it stay.
    """
    behind = end
    for _ in range(_CONTEXT_LINES):
        behind = data.find(b"\n", behind, end + _CONTEXT_BYTES) + 1
        if not behind:
            return None
    return _context_start(data, start), max(behind, min(end + least, len(data)))
