"""
Places in a block that are worth a closer look, with the patterns to try there.

Most lines that distributed writes are a message each, and most that have the literals of some patterns match
none of them. Such a line is known by its bytes alone: its message is searched without being put together.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator

from attrs import define

from workerdiag.matching.scan.line_index import LONGEST_LINE
from workerdiag.matching.scan.literal_scan import LiteralHits
from workerdiag.matching.scan.records import LogRecord

#: A header just as distributed writes it since 2022.3.0, with a date that there is: `parse_line` agrees.
_DATE = (
    rb"[12]\d{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])"
    rb"|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))"
)
_TIME = rb"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d,\d{3}"
_HEADER = _DATE + b" " + _TIME + rb" - [!-%'-~]+ - (?:DEBUG|INFO|WARNING|ERROR|CRITICAL) - "
#: So much of the next line is looked at; a header with a longer logger is left to a closer look.
_HEADER_BYTES = 300
#: A line with one and a message that is read as it stands (ASCII without entities), before another header.
_ONE_LINE = re.compile(rb"%b([ -%%'-~\t]*)\r*\n(?=%b)" % (_HEADER, _HEADER))


@define(eq=False)
class Candidate:
    """
    A place worth a closer look.
    """

    #: Offset in the block.
    at: int
    #: Patterns to try there.
    texts: tuple[str, ...]
    #: The whole message at that place, where it is known and was not searched yet.
    message: bytes | None = None
    #: What is there, where somebody looked.
    record: LogRecord | None = None


def find_candidates(
    data: bytes, begin: int, hits: LiteralHits, texts_of: Callable[[int], tuple[str, ...]], low: int = 0
) -> Iterator[Candidate]:
    """
    One spot for each line that is a message, and one for each hit in another.

    Args:
        data: The block.
        begin: Where in it the places count from.
        hits: Where literals end.
        texts_of: The patterns of a literal.
        low: Number of the first hit to look at.
    """
    known: dict[tuple[int, ...], tuple[str, ...]] = {}
    unclear = -1
    packed, count = hits.packed, hits.literal_count
    total = len(packed)
    while low < total:
        at = begin + packed[low] // count
        start, end, message = _one_line_message(data, at, unclear)
        unclear = start if message is None else -1
        high = low + 1 if message is None else bisect_left(packed, (end - begin) * count, low)
        literals = tuple([each % count for each in packed[low:high]])
        low = high
        if literals not in known:
            known[literals] = tuple(dict.fromkeys(text for each in literals for text in texts_of(each)))
        yield Candidate(at, known[literals], message)


def _one_line_message(data: bytes, at: int, unclear: int) -> tuple[int, int, bytes | None]:
    """
    Where the line begins and ends that byte *at* is in, and its message.

    The end is 0 and the message None if only a closer look can tell, as it is known to be of the line that
    begins at *unclear*: a line of many hits is read once.
    """
    low = max(0, at - LONGEST_LINE)
    start = data.rfind(b"\n", low, at) + 1 or low
    if start == unclear or (start and data[start - 1 : start] != b"\n"):
        return start, 0, None
    found = _ONE_LINE.match(data, start, start + LONGEST_LINE + _HEADER_BYTES)
    if found is None or found.end() - start > LONGEST_LINE or found.end() <= at:
        return start, 0, None
    return start, found.end(), found[1]
