"""Candidates: places in a block that deserve a closer look, with the patterns to try there.

Most lines that distributed writes are complete messages, and most with a pattern's literal do not match. The bytes
alone identify such a line, and the report of a failed task: it is searched without assembling the message.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from attrs import define, evolve

from workerdiag.matching.messages import LONGEST_LINE, LogRecord, LogWindow
from workerdiag.matching.prefilter import LiteralHits, LogPrefilter

if TYPE_CHECKING:
    from workerdiag.matching.patterns import PatternTable
    from workerdiag.matching.regex import SearchWork

#: A header as distributed has written it since 2022.3.0, with a valid date. `parse_line` agrees with it.
_DATE = (
    rb"[12]\d{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])"
    rb"|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))"
)
_TIME = rb"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d,\d{3}"
_HEADER = _DATE + b" " + _TIME + rb" - [!-%'-~]+ - (?:DEBUG|INFO|WARNING|ERROR|CRITICAL) - "
#: Bytes of the next line to read. A header with a longer logger name needs a closer look.
_HEADER_BYTES = 300
#: Text that needs no decoding: ASCII without HTML entities.
_PLAIN = rb"[ -%'-~\t]*"
#: Lines that continue the report of a failed task (distributed: worker.py) or a traceback.
_MORE_START = rb"(?:(?:Key|State|Task|Function|args|kwargs|Exception|Traceback): |  File \")"
_MORE = _MORE_START + _PLAIN + rb"\n"
#: A line with another beginning needs a closer look.
_LINE_START = re.compile(rb"([12]\d{3}-\d\d-\d\d )|" + _MORE_START)
#: A message: header, plain text, continuation lines, and another header or the end of the log behind it.
_MESSAGE = re.compile(rb"%b(%b)(\r*\n)((?:%b)*)(?=%b|\Z)" % (_HEADER, _PLAIN, _MORE, _HEADER))
#: Every header that `parse_line` knows names one of these loggers.
_LOGGERS = (b"distributed", b"tornado", b"dask", b"asyncio", b"bokeh", b"coiled", b"py.warnings", b"root")
#: Hits per piece. After each piece, more patterns may be saturated.
_PIECE_HITS = 1024
#: From this many candidates with the same patterns on, they are searched together first: most do not match.
_LEAST_TOGETHER = 16


@define(eq=False)
class Candidate:
    """A place that deserves a closer look."""

    #: Offset in the block.
    at: int
    #: Patterns to try there.
    texts: tuple[str, ...]
    #: The text of the message, if its bytes identify it, and where it begins if it has a header.
    message: bytes | None
    start: int | None
    #: Whether it is known to be one line.
    is_line: bool

    def record_in(self, block: LogWindow) -> LogRecord:
        """Return the message at this place."""
        if not self.is_line or self.start is None:
            return block.record_at(self.at)
        return block.record_of_line(self.start)

    def narrow(self, table: PatternTable, work: SearchWork) -> tuple[str, ...]:
        """Return the patterns to try. If the text is known, those that do not match are left out."""
        if self.message is None:
            return self.texts
        work.count_run(len(self.message) * len(self.texts))
        return table.matching(self.texts, self.message.decode())


def find_candidates(
    window: LogWindow, begin: int, hits: LiteralHits, texts_of: Callable[[tuple[int, ...], bool], tuple[str, ...]]
) -> Iterator[Candidate]:
    """Yield a candidate for each message that its bytes identify, and one for each hit in other messages.

    The hits count from *begin* in the *window*. *texts_of* returns the patterns to try for a set of literals, in a
    one-line message or another.
    """
    unclear = unclear_to = -1
    data, packed, count = window.data, hits.packed, hits.literal_count
    low, total = 0, len(packed)
    while low < total:
        at = begin + packed[low] // count
        line, is_line, end, message = _known_message(data, at, unclear)
        unclear, start = (line, None) if message is None else (-1, line)
        if message is None and at >= unclear_to and (not line or data[line - 1] == ord("\n")):
            end, message = window.plain_tile(line)
            unclear_to = end
        high = low + 1 if message is None else bisect_left(packed, (end - begin) * count, low)
        those, low = packed[low:high], high
        if texts := texts_of(tuple([each % count for each in those]), is_line):
            yield Candidate(at, texts, message, start, is_line)


def _known_message(data: bytes, at: int, unclear: int) -> tuple[int, bool, int, bytes | None]:
    """Return start, whether it is one line, end and text of the message at byte *at*, if its bytes identify it.

    Otherwise the start is that of the line. *unclear* is the start of a line that is known to need a closer
    look, so a line with many hits is read once.
    """
    low = max(0, at - LONGEST_LINE)
    line = start = data.rfind(b"\n", low, at) + 1 or low
    if line == unclear:
        return line, False, 0, None
    found = None
    if not line or data[line - 1] == ord("\n"):  # most messages are one line
        found = _MESSAGE.match(data, line, line + LONGEST_LINE + _HEADER_BYTES)
    if found is None and (start := _header_before(data, line, low)) >= 0 and start < line:
        found = _MESSAGE.match(data, start, start + LONGEST_LINE + _HEADER_BYTES)
    if found is None or (end := found.end()) - start > LONGEST_LINE or end <= at:
        return line, False, 0, None
    first, line_end, more = found.groups()
    if not more:
        return line, True, end, first
    lowered = more.lower()
    if b"\r" in line_end or any(logger in lowered for logger in _LOGGERS):
        return line, False, 0, None
    return start, False, end, first + b"\n" + more[:-1]


def _header_before(data: bytes, line: int, low: int) -> int:
    """Return the offset, from *low* on, of the header that the line at *line* may continue; -1 if there is none."""
    start = line
    for _ in range(13):
        begun = _LINE_START.match(data, start)
        if begun is None:
            return -1
        if begun[1]:
            return start if not start or data[start - 1 : start] == b"\n" else -1
        if start <= low:
            return -1
        start = data.rfind(b"\n", low, start - 1) + 1 or low
    return -1


def fresh_candidates(
    window: LogWindow, begin: int, hits: LiteralHits, table: PatternTable, prefilter: LogPrefilter
) -> Iterator[Candidate]:
    """Yield the candidates of *hits*, without saturated patterns and without most of those that do not match."""

    def wanted_texts(literals: tuple[int, ...], is_one_line: bool) -> tuple[str, ...]:  # noqa: FBT001
        return prefilter.unsaturated(table.texts_together(literals, is_one_line))

    hits = prefilter.fresh(hits)
    while hits.packed:
        known = len(prefilter.saturated)
        piece, hits = (evolve(hits, packed=each) for each in (hits.packed[:_PIECE_HITS], hits.packed[_PIECE_HITS:]))
        candidates = list(find_candidates(window, begin, piece, wanted_texts))
        _narrow_together(candidates, table)
        yield from candidates
        if len(prefilter.saturated) > known:
            hits = prefilter.fresh(hits)


def _narrow_together(candidates: Iterable[Candidate], table: PatternTable) -> None:
    """Search similar candidates together, and keep only the patterns that match one of them."""
    alike: defaultdict[tuple[bool, tuple[str, ...]], list[Candidate]] = defaultdict(list)
    for each in candidates:
        if each.message is not None and each.start is not None:
            alike[each.is_line, each.texts].append(each)
    for (_, texts), group in alike.items():
        if len(group) >= _LEAST_TOGETHER:
            text = b"\n".join([each.message for each in group if each.message is not None])
            likely = table.matching_any(texts, text.decode("ascii"))
            for each in group:
                each.texts = likely
