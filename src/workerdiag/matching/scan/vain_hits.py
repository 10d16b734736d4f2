"""
Literals that are frequent in a block where their patterns match nowhere: none of their places is looked at.

The lines with a literal are searched together, which is many times quicker than one by one. A pattern that
cannot reach over a line end matches within one line, if at all: these are searched as they stand. Where each
line is a message, known by its bytes, the messages are searched for any pattern that does not ask where a
text begins or ends; one that has a line end in each match has none in a message of one line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from itertools import compress
from typing import Any

from attrs import evolve, frozen

from workerdiag.matching.messages.line_index import LONGEST_LINE
from workerdiag.matching.regex import Generation, pattern_set
from workerdiag.matching.scan.candidates import single_line_message
from workerdiag.matching.scan.pattern_reach import is_over_lines, is_within_line, is_within_message
from workerdiag.matching.scan.pattern_table import PatternTable
from workerdiag.matching.scan.prefilter import LiteralHits

#: A literal with fewer places in a block is not worth it.
_LEAST_PLACES = 16
#: Lines of several literals are searched once for each, but no more than this times the block.
_MOST_COPIES = 12
#: What a line is read without, or otherwise than it stands, as is what is not ASCII: `parse_line` undoes it.
_RESPELT = (b"&", b"\x1b", b"\\", b"\r")


def without_vain(
    data: bytes, begin: int, hits: LiteralHits, table: PatternTable, unwanted: Collection[str] = ()
) -> LiteralHits:
    """
    The *hits* without those of frequent literals whose patterns match in none of their lines.

    Args:
        data: The block.
        begin: Where in it the places count from.
        hits: Where literals end.
        table: The patterns.
        unwanted: Patterns that nobody looks for any more.
    """
    count = hits.literal_count
    literals = [each % count for each in hits.packed]
    sets = {
        literal: found
        for literal, number in Counter(literals).items()
        if number >= _LEAST_PLACES and (found := _pattern_set(literal, table, unwanted)) is not None
    }
    texts = _LineTexts(data)
    room_bytes = _MOST_COPIES * len(data)
    vain = set()
    for literal, lines in _lines_of(data, begin, hits, sets).items():
        text = texts.of(lines, as_messages=not sets[literal].is_within_line)
        room_bytes -= len(text)
        if room_bytes < 0:
            break
        if text and sets[literal].misses(text):
            vain.add(literal)
    if not vain:
        return hits
    return evolve(hits, packed=list(compress(hits.packed, (each not in vain for each in literals))))


class _LineTexts:
    """
    Some lines of a block as one text. Most literals of a message that is repeated have the same lines.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._known: list[tuple[bool, Sequence[tuple[int, int]], bytes]] = []
        #: The messages of lines, by where the lines begin.
        self._messages: dict[int, bytes | None] = {}

    def of(self, lines: Sequence[tuple[int, int]], *, as_messages: bool) -> bytes:
        """
        The *lines*, or their messages; empty if one of them may be read otherwise than it stands.
        """
        for messages, others, text in self._known:
            if messages is as_messages and others == lines:
                return text
        text = self._joined_messages(lines) if as_messages else self._joined(lines)
        self._known.append((as_messages, lines, text))
        return text

    def _joined(self, lines: Iterable[tuple[int, int]]) -> bytes:
        text = b"".join([self._data[start:end] for start, end in lines])
        return text if text.isascii() and not any(each in text for each in _RESPELT) else b""

    def _joined_messages(self, lines: Iterable[tuple[int, int]]) -> bytes:
        found = []
        for start, _ in lines:
            if start not in self._messages:
                self._messages[start] = single_line_message(self._data, start)
            if (message := self._messages[start]) is None:
                return b""
            found.append(message)
        return b"\n".join(found)


def _lines_of(
    data: bytes, begin: int, hits: LiteralHits, literals: Iterable[int]
) -> dict[int, list[tuple[int, int]]]:
    """
    For each of *literals* where its lines begin and end, but not of those that have one too long to be read.
    """
    count = hits.literal_count
    lines: dict[int, list[tuple[int, int]]] = {literal: [] for literal in literals}
    line = (0, 0)
    for each in hits.packed:
        own = lines.get(each % count)
        if own is None:
            continue
        at = begin + each // count
        if at >= line[1]:
            start = data.rfind(b"\n", max(0, at - LONGEST_LINE), at) + 1
            end = data.find(b"\n", at, at + LONGEST_LINE) + 1
            if not end or end - start > LONGEST_LINE + 1:
                del lines[each % count]
                continue
            line = start, end
        if not own or own[-1] is not line:
            own.append(line)
    return lines


@frozen
class _PatternSet:
    """
    Patterns as one, and last one that always matches.
    """

    compiled: Any
    count: int
    #: Whether each match is within one line, and is one among whatever other lines.
    is_within_line: bool

    def misses(self, text: bytes) -> bool:
        """
        Whether none of the patterns matches in *text*.
        """
        return bool(self.compiled.Match(text) == [self.count])


def _pattern_set(literal: int, table: PatternTable, unwanted: Collection[str]) -> _PatternSet | None:
    """
    The wanted patterns of a literal as one; None if one of them asks where a text or header begins or ends.
    """
    texts = tuple(each for each in table.texts(literal) if each not in unwanted)
    if any(table.wanted(text)[0].in_header for text in texts):
        return None
    return _together(texts)


@lru_cache(maxsize=64)  # of a megabyte each
def _together(texts: tuple[str, ...]) -> _PatternSet | None:
    """
    The patterns as one, compiled once in a generation.
    """
    stay = all(map(is_within_line, texts))
    if not stay:  # then the lines are searched as messages
        texts = tuple(text for text in texts if not is_over_lines(text))
        if not all(map(is_within_message, texts)):
            return None
    compiled = pattern_set((*texts, ""))
    return None if compiled is None else _PatternSet(compiled, len(texts), stay)


Generation.forget.append(_together.cache_clear)
