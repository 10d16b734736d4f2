"""
Candidates: places in a block that are worth a closer look, with the patterns to try there.

Most lines that distributed writes are a message each, and most that have the literals of some patterns match
none of them. Such a line is known by its bytes alone, and so is the report of a failed task: the message is
searched without being put together.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress
from typing import TYPE_CHECKING

from attrs import define, evolve

from workerdiag.matching.messages.line_index import LONGEST_LINE
from workerdiag.matching.messages.log_record import LogRecord
from workerdiag.matching.messages.log_window import LogWindow
from workerdiag.matching.scan.prefilter import LiteralHits, LogPrefilter

if TYPE_CHECKING:
    from workerdiag.matching.scan.pattern_table import PatternTable
    from workerdiag.matching.work_budget import WorkBudget

#: A header just as distributed writes it since 2022.3.0, with a date that there is: `parse_line` agrees.
_DATE = (
    rb"[12]\d{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])"
    rb"|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))"
)
_TIME = rb"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d,\d{3}"
_HEADER = _DATE + b" " + _TIME + rb" - [!-%'-~]+ - (?:DEBUG|INFO|WARNING|ERROR|CRITICAL) - "
#: This much of the next line is looked at; a header with a longer logger is left to a closer look.
HEADER_BYTES = 300
#: Text that is read as it stands: ASCII without entities.
_PLAIN = rb"[ -%'-~\t]*"
#: Lines that go on with the report of a failed task (distributed: worker.py) or a traceback.
_MORE_START = rb"(?:(?:Key|State|Task|Function|args|kwargs|Exception|Traceback): |  File \")"
_MORE = _MORE_START + _PLAIN + rb"\n"
#: A line that begins otherwise is in no message that is known by its bytes.
_LINE_START = re.compile(rb"([12]\d{3}-\d\d-\d\d )|" + _MORE_START)
#: A line with a header and plain text, and none of its message behind it.
_SINGLE_LINE = re.compile(rb"%b(%b)\r*\n(?=%b|\Z)" % (_HEADER, _PLAIN, _HEADER))
#: A line with a header and plain text, with such lines behind it, before another header.
_MESSAGE = re.compile(rb"%b(%b)(\r*\n)((?:%b)*)(?=%b)" % (_HEADER, _PLAIN, _MORE, _HEADER))
#: Without the name of a logger no line is a header: each shape that `parse_line` knows has one.
_LOGGERS = (b"distributed", b"tornado", b"dask", b"asyncio", b"bokeh", b"coiled", b"py.warnings", b"root")
_NEWLINE = ord("\n")
#: Hits are looked at in pieces of this many: behind each, some patterns may be saturated.
_PIECE_HITS = 1024
#: This many candidates with the same patterns are searched together first: most are in vain.
_LEAST_TOGETHER = 16
#: The lines of a literal with this many places in a block are searched before they are looked at one by one.
_MANY_PLACES = 128
#: What a line is read without, or otherwise than it stands, as is what is not ASCII: `parse_line` undoes it.
_RESPELT = (b"&", b"\x1b", b"\\", b"\r")
#: A message that is known by its bytes has at most this many lines behind its header.
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
    #: Its text, where the message is known by its bytes.
    message: bytes | None = None

    def record_in(self, block: LogWindow) -> LogRecord:
        """
        The message there.
        """
        return block.record_of_line(*self.line) if self.line else block.record_at(self.at)

    def narrow(self, table: PatternTable, work: WorkBudget, *, again: bool) -> tuple[str, ...]:
        """
        The patterns to try; where the message is known, only those that match there, and maybe others.
        """
        if self.message is None:
            return self.texts
        work.spend(len(self.message), 0, again=again)
        return table.matching(self.texts, self.message)


def find_candidates(
    data: bytes, begin: int, hits: LiteralHits, texts_of: Callable[[tuple[int, ...], bool], tuple[str, ...]]
) -> Iterator[Candidate]:
    """
    One spot for each message that is known by its bytes, and one for each hit in another, if it has patterns.

    Args:
        data: The block.
        begin: Where in it the places count from.
        hits: Where literals end.
        texts_of: The patterns to try where all of some literals stand, in a message of one line or another.
    """
    unclear = -1
    packed, count = hits.packed, hits.literal_count
    low, total = 0, len(packed)
    while low < total:
        at = begin + packed[low] // count
        start, line, end, message = _known_message(data, at, unclear)
        unclear = start if message is None else -1
        bounds = None if message is None else (start, end)
        high = low + 1 if message is None else bisect_left(packed, (end - begin) * count, low)
        those, low = packed[low:high], high
        if texts := texts_of(tuple([each % count for each in those]), line is not None):
            yield Candidate(at, texts, those, bounds, line, message)


def single_line_messages(data: bytes, begin: int, hits: LiteralHits) -> dict[int, bytes] | None:
    """
    The messages of the lines that *hits* are in, by where they begin; None if one is more than its line.
    """
    found: dict[int, bytes] = {}
    for at, _ in hits:
        start = data.rfind(b"\n", max(0, begin + at - LONGEST_LINE), begin + at) + 1
        if start in found:
            continue
        line = _SINGLE_LINE.match(data, start, start + LONGEST_LINE + HEADER_BYTES)
        if line is None or line.end() - start > LONGEST_LINE:
            return None
        found[start] = line[1]
    return found


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
    if found is None or (end := found.end()) - start > LONGEST_LINE or end <= at:
        return line, None, 0, None
    first, line_end, more = found.groups()
    if not more:
        return line, (start, end - len(line_end)), end, first
    lowered = more.lower()
    if b"\r" in line_end or any(logger in lowered for logger in _LOGGERS):
        return line, None, 0, None
    return start, None, end, first + b"\n" + more[:-1]


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


def fresh_candidates(
    data: bytes, begin: int, hits: LiteralHits, table: PatternTable, prefilter: LogPrefilter
) -> Iterator[Candidate]:
    """
    The candidates of *hits* but for most of those in vain; no pattern that is saturated by then is tried.
    """

    def wanted_texts(literals: tuple[int, ...], is_one_line: bool) -> tuple[str, ...]:  # noqa: FBT001
        return prefilter.unsaturated(table.texts_together(literals, is_one_line))

    packed = prefilter.fresh(hits.packed)
    prefilter.count_stale(len(hits.packed) - len(packed))
    packed = _without_vain(packed, data, begin, table, prefilter)
    while packed:
        known = len(prefilter.saturated)
        piece = evolve(hits, packed=packed[:_PIECE_HITS])
        packed = packed[_PIECE_HITS:]
        candidates = list(find_candidates(data, begin, piece, wanted_texts))
        _narrow_together(candidates, table)
        yield from candidates
        if len(prefilter.saturated) > known:
            packed = _without_vain(prefilter.fresh(packed), data, begin, table, prefilter)


def _without_vain(
    packed: list[int], data: bytes, begin: int, table: PatternTable, prefilter: LogPrefilter
) -> list[int]:
    """
    The *packed* hits but for those of frequent literals whose patterns match in none of their lines.
    """
    count = len(table.literals.texts)
    literals = [each % count for each in packed]
    vain = set()
    for literal, number in Counter(literals).items():
        texts = prefilter.unsaturated(table.texts(literal))
        if number >= _MANY_PLACES and table.are_within_line(texts):
            places = (each // count for each, one in zip(packed, literals, strict=True) if one == literal)
            text = _plain_lines(data, begin, places)
            if text and not table.matching_any(texts, text):
                vain.add(literal)
    return packed if not vain else list(compress(packed, (each not in vain for each in literals)))


def _narrow_together(candidates: Iterable[Candidate], table: PatternTable) -> None:
    """
    Leave candidates that are alike only the patterns that match in one of them: most are in vain.
    """
    alike: defaultdict[tuple[bool, tuple[str, ...]], list[Candidate]] = defaultdict(list)
    for each in candidates:
        if each.message is not None:
            alike[each.line is None, each.texts].append(each)
    for (_, texts), group in alike.items():
        if len(group) >= _LEAST_TOGETHER:
            text = b"\n".join([each.message for each in group if each.message is not None])
            likely = table.matching_any(texts, text)
            for each in group:
                each.texts = likely


def _plain_lines(data: bytes, begin: int, places: Iterable[int]) -> bytes:
    """
    The lines of *data* that the *places*, counted from *begin*, are in, as one text.

    Empty where a line is too long to be read, or may be read otherwise than it stands.
    """
    lines = []
    end = 0
    for place in places:
        if (at := begin + place) >= end:
            start = data.rfind(b"\n", max(0, at - LONGEST_LINE), at) + 1
            end = data.find(b"\n", at, at + LONGEST_LINE) + 1
            if not end or end - start > LONGEST_LINE + 1:
                return b""
            lines.append(data[start:end])
    text = b"".join(lines)
    return text if text.isascii() and not any(each in text for each in _RESPELT) else b""
