"""
Literals that are frequent in a block where their patterns match nowhere: none of their places is looked at.

A pattern that cannot reach over a line end matches within one line, if at all. So the lines with its literal
are searched together, as they stand, which is many times quicker than finding the message of each.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from itertools import compress
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as sre_parser  # type: ignore[attr-defined]
from typing import Any

from attrs import evolve

from workerdiag.matching.regex import Generation, pattern_set
from workerdiag.matching.scan.line_index import LONGEST_LINE
from workerdiag.matching.scan.literal_scan import LiteralHits
from workerdiag.matching.scan.patterns import PatternTable

#: A literal with fewer places in a block is not worth it.
_LEAST_PLACES = 16
#: Lines of several literals are searched once for each, but no more than this times the block.
_MOST_COPIES = 2
#: What a line is read without or otherwise than it stands: `parse_line` undoes it.
_RESPELT = re.compile(rb"[\x80-\xff&\x1b\\\r]")
#: Lets a dot stand for a line end.
_DOT_ALL = re.compile(r"\(\?[a-zA-Z]*s")
#: What is so in one line and among others alike: an end of a line, not of the text, and an end of a word.
_LINE_END = "(?m:$)"
_ANYWHERE = (sre.AT_BOUNDARY, sre.AT_END)
#: Classes with a line end in them.
_WITH_NEWLINE = (sre.CATEGORY_SPACE, sre.CATEGORY_NOT_WORD, sre.CATEGORY_NOT_DIGIT)
_NEWLINE = ord("\n")


def without_vain(data: bytes, begin: int, hits: LiteralHits, table: PatternTable) -> LiteralHits:
    """
    The *hits* without those of frequent literals whose patterns match in none of their lines.

    Args:
        data: The block.
        begin: Where in it the places count from.
        hits: Where literals end.
        table: The patterns.
    """
    count = hits.literal_count
    room_bytes = _MOST_COPIES * len(data)
    vain = set()
    literals = [each % count for each in hits.packed]
    for literal, number in Counter(literals).items():
        if number < _LEAST_PLACES or (together := _line_set(literal, table)) is None:
            continue
        places = (begin + each // count for each in compress(hits.packed, map(literal.__eq__, literals)))
        lines = _lines_at(data, places, room_bytes)
        room_bytes -= len(lines or b"")
        if lines and _RESPELT.search(lines) is None and together.Match(lines) == [len(table.texts(literal))]:
            vain.add(literal)
    if not vain:
        return hits
    return evolve(hits, packed=list(compress(hits.packed, (each not in vain for each in literals))))


def _lines_at(data: bytes, places: Iterable[int], room_bytes: int) -> bytes | None:
    """
    The lines of *places*, which are in order; None if one is too long to be read as one, or all are.
    """
    lines = []
    end = -1
    for at in places:
        if at <= end:
            continue
        start = data.rfind(b"\n", max(0, at - LONGEST_LINE), at) + 1
        end = data.find(b"\n", at, at + LONGEST_LINE)
        room_bytes -= end - start
        if end < 0 or end - start > LONGEST_LINE or room_bytes < 0:
            return None
        lines.append(data[start : end + 1])
    return b"".join(lines)


def _line_set(literal: int, table: PatternTable) -> Any | None:
    """
    The patterns of a literal as one; None if one of them may reach over a line end.
    """
    texts = table.texts(literal)
    if any(table.wanted(text)[0].in_header for text in texts):
        return None
    return _together(texts, Generation.now)


@lru_cache(maxsize=64)
def _together(texts: tuple[str, ...], _generation: int) -> Any | None:
    """
    The patterns as one, and last one that always matches, compiled in one generation.
    """
    return pattern_set((*texts, "")) if all(map(_is_within_line, texts)) else None


def _is_within_line(text: str) -> bool:
    """
    Whether each match is within one line, and is one among whatever other lines.
    """
    if _DOT_ALL.search(text) or text.count("$") > text.count(_LINE_END):
        return False
    try:
        return not _may_have_newline(sre_parser.parse(text, re.IGNORECASE))
    except re.error:
        return False


def _may_have_newline(items: Iterable[tuple[object, Any]]) -> bool:
    return any(_may_reach_out(*item) for item in items)


def _may_reach_out(op: object, value: Any) -> bool:
    if op is sre.LITERAL or op is sre.NOT_LITERAL:
        return bool(value == _NEWLINE) is (op is sre.LITERAL)
    if op is sre.IN:
        is_negated = value[0][0] is sre.NEGATE
        return is_negated != any(_holds_newline(kind, one) for kind, one in value)
    if op in (sre.SUBPATTERN, sre.MAX_REPEAT, sre.MIN_REPEAT):
        return _may_have_newline(value[-1])
    if op is sre.BRANCH:
        return any(map(_may_have_newline, value[1]))
    return op is not sre.ANY and (op is not sre.AT or value not in _ANYWHERE)


def _holds_newline(kind: object, one: Any) -> bool:
    if kind is sre.LITERAL:
        return bool(one == _NEWLINE)
    if kind is sre.RANGE:
        return bool(one[0] <= _NEWLINE <= one[1])
    return kind is sre.CATEGORY and one in _WITH_NEWLINE
