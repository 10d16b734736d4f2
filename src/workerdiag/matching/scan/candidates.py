"""
Places in a block that are worth a closer look, with the patterns to try there.

Most lines that distributed writes are a message each, and most that have the literals of some patterns match
none of them. Such a line is known by its bytes alone, and so is the report of a failed task: the message is
searched without being put together.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from attrs import define

from workerdiag.matching.messages.line_index import LONGEST_LINE
from workerdiag.matching.messages.log_record import LogRecord
from workerdiag.matching.messages.log_window import LogWindow
from workerdiag.matching.scan.pattern_reach import is_over_lines
from workerdiag.matching.scan.prefilter import LiteralHits

#: A header just as distributed writes it since 2022.3.0, with a date that there is: `parse_line` agrees.
_DATE = (
    rb"[12]\d{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])"
    rb"|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))"
)
_TIME = rb"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d,\d{3}"
_HEADER = _DATE + b" " + _TIME + rb" - [!-%'-~]+ - (?:DEBUG|INFO|WARNING|ERROR|CRITICAL) - "
#: So much of the next line is looked at; a header with a longer logger is left to a closer look.
HEADER_BYTES = 300
#: Text that is read as it stands: ASCII without entities.
_PLAIN = rb"[ -%'-~\t]*"
#: Lines that go on with the report of a failed task (distributed: worker.py) or a traceback.
_MORE_START = rb"(?:(?:Key|State|Task|Function|args|kwargs|Exception|Traceback): |  File \")"
_MORE = _MORE_START + _PLAIN + rb"\n"
#: A line that begins otherwise is in no message that is known by its bytes.
_LINE_START = re.compile(rb"([12]\d{3}-\d\d-\d\d )|" + _MORE_START)
#: A line with a header and plain text, with such lines behind it, before another header.
_MESSAGE = re.compile(rb"%b(%b)(\r*\n)((?:%b)*)(?=%b)" % (_HEADER, _PLAIN, _MORE, _HEADER))
#: A line with a header and plain text, and none of its message behind it.
_SINGLE_LINE = re.compile(rb"%b(%b)\r*\n(?=%b|\Z)" % (_HEADER, _PLAIN, _HEADER))
#: Without the name of a logger no line is a header: each shape that `parse_line` knows has one.
_LOGGERS = (b"distributed", b"tornado", b"dask", b"asyncio", b"bokeh", b"coiled", b"py.warnings", b"root")
_NEWLINE = ord("\n")
#: A message that is known by its bytes has at most so many lines behind its header.
_MAX_MORE = 12


@define(eq=False)
class Candidate:
    """
    A place worth a closer look.
    """

    #: Offset in the block.
    at: int
    #: Patterns to try there.
    texts: tuple[str, ...]
    #: The places of literals that it stands for, as in `LiteralHits`.
    hits: Sequence[int] = ()
    #: Where the message and the lines it is in begin and end in the block, where that is known.
    bounds: tuple[int, int] | None = None
    #: Where the message begins and ends, where it is known to be one line.
    line: tuple[int, int] | None = None
    #: That message, where it was not searched yet.
    message: bytes | None = None

    def record_in(self, block: LogWindow) -> LogRecord:
        """
        The message there.
        """
        return block.record_of_line(*self.line) if self.line else block.record_at(self.at)


def find_candidates(
    data: bytes, begin: int, hits: LiteralHits, texts_of: Callable[[int], tuple[str, ...]], low: int = 0
) -> Iterator[Candidate]:
    """
    One spot for each message that is known by its bytes, and one for each hit in another.

    Args:
        data: The block.
        begin: Where in it the places count from.
        hits: Where literals end.
        texts_of: The patterns of a literal.
        low: Number of the first hit to look at.
    """
    known: dict[tuple[bool, tuple[int, ...]], tuple[str, ...]] = {}
    unclear = -1
    packed, count = hits.packed, hits.literal_count
    total = len(packed)
    while low < total:
        at = begin + packed[low] // count
        start, line, end, message = _known_message(data, at, unclear)
        unclear = start if message is None else -1
        bounds = None if message is None else (start, end)
        high = low + 1 if message is None else bisect_left(packed, (end - begin) * count, low)
        those, low = packed[low:high], high
        key = line is not None, tuple([each % count for each in those])
        if key not in known:
            texts = dict.fromkeys(text for each in key[1] for text in texts_of(each))
            known[key] = tuple(text for text in texts if line is None or not is_over_lines(text))
        yield Candidate(at, known[key], those, bounds, line, message)


def line_start(data: bytes, at: int) -> int:
    """
    Where the line begins that byte *at* is in; -1 if that is further away than a line is long.
    """
    low = max(0, at - LONGEST_LINE)
    start = data.rfind(b"\n", low, at) + 1
    return start if start or not low else -1


def single_line_message(data: bytes, start: int) -> bytes | None:
    """
    The message of the line that begins at *start*, where its bytes show that it is that line alone.
    """
    found = _SINGLE_LINE.match(data, start, start + LONGEST_LINE + HEADER_BYTES)
    return found[1] if found is not None and found.end() - start <= LONGEST_LINE else None


def _known_message(
    data: bytes, at: int, unclear: int
) -> tuple[int, tuple[int, int] | None, int, bytes | None]:
    """
    Where the message begins that byte *at* is in, its one line, its end and its text, if it is known.

    Of others, of which only a closer look can tell, it is where the line begins. So it is known to be of the
    line that begins at *unclear*: a line of many hits is read once.
    """
    low = max(0, at - LONGEST_LINE)
    line = start = data.rfind(b"\n", low, at) + 1 or low
    if line == unclear:
        return line, None, 0, None
    found = None
    if not line or data[line - 1] == _NEWLINE:  # most messages are one line
        found = _MESSAGE.match(data, line, line + LONGEST_LINE + HEADER_BYTES)
    if found is None and (start := _header_before(data, line, low)) >= 0 and start < line:
        found = _MESSAGE.match(data, start, start + LONGEST_LINE + HEADER_BYTES)
    if found is None or found.end() - start > LONGEST_LINE or found.end() <= at:
        return line, None, 0, None
    first, end, more = found[1], found[2], found[3]
    if not more:
        return line, (start, found.end(1)), found.end(), first
    lowered = more.lower()
    if b"\r" in end or any(logger in lowered for logger in _LOGGERS):
        return line, None, 0, None
    return start, None, found.end(), first + b"\n" + more[:-1]


def _header_before(data: bytes, line: int, low: int) -> int:
    """
    Where the header begins, from *low* on, that the line at *line* may go on with; -1 if there is none.
    """
    start = line
    for _ in range(_MAX_MORE + 1):
        begun = _LINE_START.match(data, start)
        if begun is None:
            return -1
        if begun[1]:
            return start if not start or data[start - 1 : start] == b"\n" else -1
        if start <= low:
            return -1
        start = data.rfind(b"\n", low, start - 1) + 1 or low
    return -1
