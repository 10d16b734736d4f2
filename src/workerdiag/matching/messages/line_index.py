"""The lines of a block of bytes, parsed on demand, each once.

Lines of several processes may be mixed in one text. They are indexed by forwarder, so that the lines of one
forwarder are found without visiting the others.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator

from workerdiag.matching.text.line_parser import ParsedLine, parse_line
from workerdiag.matching.work_budget import WorkBudget

#: A longer line is not parsed as a whole, only the text around a candidate.
LONGEST_LINE = 8 * 1024
#: Lines are indexed by offset, in drawers of this many bytes.
_DRAWER_BYTES = 2 * 1024
#: Limits of the cache of equal short lines: bytes of a line, and lines.
_SHORT_BYTES, _MAX_SHORT = 256, 4096
#: A blank line.
_BLANK = parse_line(b"")

_StartsByForwarder = dict[tuple[str, int], list[int]]


class LineIndex:
    """The lines of *data* by offset. Each is parsed at most once."""

    def __init__(self, data: bytes, work: WorkBudget) -> None:
        self.data = data
        self._work = work
        #: Parsed lines, except blank ones, which can be very many.
        self._lines: dict[int, ParsedLine] = {}
        self._short: dict[bytes, ParsedLine] = {}
        self._all: _StartsByForwarder = {}
        self._headers: _StartsByForwarder = {}
        #: Runs of parsed lines: where each begins, and where it ends.
        self._from: list[int] = []
        self._to: list[int] = []
        self._behind_overlong: list[int] = []

    def bounds(self, offset: int) -> tuple[int, int] | None:
        """Return the bounds of the line around *offset*; None if it is longer than `LONGEST_LINE`."""
        newline = self.data.rfind(b"\n", max(0, offset - LONGEST_LINE), offset)
        if newline < 0 and offset > LONGEST_LINE:
            return None
        start = newline + 1
        end = self.data.find(b"\n", offset, start + LONGEST_LINE + 1)
        if end < 0:
            end = len(self.data)
        return (start, end) if end - start <= LONGEST_LINE else None

    def line(self, start: int) -> ParsedLine:
        """Return the line that begins at *start*."""
        if start not in self._lines:
            self._run_of(start)
        return self._known(start)

    def line_between(self, start: int, end: int) -> ParsedLine:
        """Return the line from *start* to *end*, without parsing the lines around it."""
        if start not in self._lines:
            self._work.line_bytes += end - start
            self._lines[start] = self._parse(self.data[start:end])
        return self._lines[start]

    def _known(self, start: int) -> ParsedLine:
        return self._lines.get(start, _BLANK)

    def header_before(self, start: int, forwarder: str, floor: int) -> int | None:
        """Return the last header of *forwarder* from *floor* to the line at *start*; None if there is none."""
        number = self._run_of(start)
        floor = max(floor, self.barrier(start))
        begun = start
        while True:
            low = self._from[number]
            found = _last_start(self._headers, forwarder, max(low, floor), begun)
            if found is not None or low <= floor or not self._can_go_back(number):
                return found
            begun = low
            number = self._go_back(number, forwarder, floor)

    def lines_of(self, start: int, forwarder: str, low: int, ceiling: int) -> list[int]:
        """Return the lines of *forwarder* from *low* to *ceiling* or the first header behind *start*.

        `header_before` has already parsed the lines from *low* to *start*.
        """
        number = self._run_of(start)
        if low == start and self._stands_alone(start, number, forwarder):
            return [start]
        low = max(low, self._from[number], self.barrier(start))
        begun = start
        while True:
            end = min(self._to[number], ceiling)
            header = _first_start(self._headers, forwarder, begun + 1, end)
            if header is not None:
                return list(_starts_between(self._all, forwarder, low, header))
            if end >= ceiling or end >= len(self.data):
                return list(_starts_between(self._all, forwarder, low, end))
            begun = end - 1
            number = self._go_on(number, forwarder, ceiling)

    def _stands_alone(self, start: int, number: int, forwarder: str) -> bool:
        """Whether a header follows the line at *start*, as it usually does."""
        behind = self.data.find(b"\n", start) + 1 or len(self.data) + 1
        if behind not in self._lines:
            if behind != self._to[number] or behind >= len(self.data):
                return False
            self._to[number] = self._parse_at(behind)
            self._merged(number)
        line = self._known(behind)
        return line.is_header and line.forwarder == forwarder

    def _run_of(self, start: int) -> int:
        """Return the index of the run with the line at *start*, which may be new."""
        number = bisect_right(self._from, start) - 1
        if number >= 0 and start < self._to[number]:
            return number
        self._from.insert(number + 1, start)
        self._to.insert(number + 1, self._parse_at(start))
        return self._merged(number + 1)

    def _merged(self, number: int) -> int:
        """Merge the run with adjacent runs, and return its index."""
        if number + 1 < len(self._from) and self._to[number] == self._from[number + 1]:
            self._to[number] = self._to.pop(number + 1)
            del self._from[number + 1]
        if number and self._to[number - 1] == self._from[number]:
            self._to[number - 1] = self._to.pop(number)
            del self._from[number]
            return number - 1
        return number

    def barrier(self, start: int) -> int:
        """Return the end of the last overlong line before *start*: the search stops there."""
        place = bisect_right(self._behind_overlong, start)
        return self._behind_overlong[place - 1] if place else 0

    def _can_go_back(self, number: int) -> bool:
        low = self._from[number]
        return low > 0 and self._line_before(low) is not None

    def _line_before(self, start: int) -> int | None:
        """Return the start of the line before the one at *start*; None if it is overlong."""
        newline = self.data.rfind(b"\n", max(0, start - 1 - LONGEST_LINE), start - 1)
        return None if newline < 0 and start - 1 > LONGEST_LINE else newline + 1

    def _go_back(self, number: int, forwarder: str, floor: int) -> int:
        """Parse the lines before a run, up to a header, another run or *floor*."""
        low = self._from[number]
        before = self._to[number - 1] if number else 0
        while low > max(before, floor):
            start = self._line_before(low)
            if start is None:
                break
            low = start
            self._parse_at(low)
            line = self._known(low)
            if line.is_header and line.forwarder == forwarder:
                break
        self._from[number] = low
        return self._merged(number)

    def _go_on(self, number: int, forwarder: str, ceiling: int) -> int:
        """Parse the lines behind a run, up to a header, another run or *ceiling*."""
        high = self._to[number]
        behind = self._from[number + 1] if number + 1 < len(self._from) else len(self.data)
        while high < min(behind, ceiling):
            start, high = high, self._parse_at(high)
            line = self._known(start)
            if line.is_header and line.forwarder == forwarder:
                break
        self._to[number] = high
        return self._merged(number)

    def _parse_at(self, start: int) -> int:
        """Parse the line at *start*, or only its beginning, and index it. Returns the start of the next line."""
        end = self.data.find(b"\n", start, start + LONGEST_LINE + 1)
        following = end + 1
        if end < 0:
            end = min(len(self.data), start + LONGEST_LINE)
            following = self.data.find(b"\n", end) + 1 or len(self.data) + 1
            if end - start == LONGEST_LINE and end < len(self.data):
                insort(self._behind_overlong, following)
        line = self.line_between(start, end) if end > start else _BLANK
        drawer = (line.forwarder, start // _DRAWER_BYTES)
        _insert_start(self._all, drawer, start)
        if line.is_header:
            _insert_start(self._headers, drawer, start)
        return following

    def _parse(self, raw: bytes) -> ParsedLine:
        if len(raw) > _SHORT_BYTES:
            return parse_line(raw)
        line = self._short.get(raw)
        if line is None:
            line = parse_line(raw)
            if len(self._short) < _MAX_SHORT:
                self._short[raw] = line
        return line


def _insert_start(drawers: _StartsByForwarder, drawer: tuple[str, int], start: int) -> None:
    filed = drawers.setdefault(drawer, [])
    if not filed or filed[-1] < start:
        filed.append(start)
    else:
        filed.insert(bisect_right(filed, start), start)


def _last_start(drawers: _StartsByForwarder, forwarder: str, low: int, high: int) -> int | None:
    """Return the last offset from *low* to *high*, both included."""
    for number in range(high // _DRAWER_BYTES, low // _DRAWER_BYTES - 1, -1):
        filed = drawers.get((forwarder, number))
        place = bisect_right(filed, high) if filed else 0
        if filed and place:
            return filed[place - 1] if filed[place - 1] >= low else None
    return None


def _first_start(drawers: _StartsByForwarder, forwarder: str, low: int, end: int) -> int | None:
    """Return the first offset from *low* on, before *end*."""
    return next(_starts_between(drawers, forwarder, low, end), None)


def _starts_between(drawers: _StartsByForwarder, forwarder: str, low: int, end: int) -> Iterator[int]:
    """Yield the offsets from *low* on, before *end*, in order."""
    for number in range(low // _DRAWER_BYTES, (end - 1) // _DRAWER_BYTES + 1):
        filed = drawers.get((forwarder, number), ())
        if filed and low <= filed[0] and filed[-1] < end:
            yield from filed
        else:
            yield from (each for each in filed if low <= each < end)
