"""Recognizes who writes in a log: which of Dask's processes, or which platform.

An all-clear depends on it: a text in which nothing is recognized says nothing about workers.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from operator import itemgetter

from workerdiag.matching.messages.log_record import MatchObserver, message_excerpt
from workerdiag.matching.text.line_parser import ParsedLine, parse_line
from workerdiag.model.diagnosis import RECOGNITION_ROLE, Match
from workerdiag.model.evidence import LogChunk
from workerdiag.model.vocabulary import Stream

#: Limits: bytes to read of each log, and bytes of a line.
_MAX_BYTES = 1024 * 1024
_LINE_BYTES = 4 * 1024
#: Lines to read of a text without a logger.
_MAX_SHAPES = 60
#: Beginnings of the logger names of Dask's processes, and the text behind a name.
_BEGINNINGS = (b"distributed", b"tornado", b"dask")
_REST = re.compile(rb"[\w.]*")
_OWNER = "log.recognised"
#: Limit of the words to try that look like loggers.
_MAX_TRIED = 200


class Recognition:
    """The beginning of one log, and who is recognized in it."""

    def __init__(self) -> None:
        self._like: LogChunk | None = None
        self._head = bytearray()
        #: Offsets of gaps in the text, with the number of the line behind each.
        self._jumps = [(-1, 1)]

    def tee(self, chunks: Iterable[LogChunk]) -> Iterator[LogChunk]:
        """Yield the chunks of the log unchanged."""
        for chunk in chunks:
            self._like = self._like or chunk
            if (missing := _MAX_BYTES - len(self._head)) > 0:
                if chunk.first_line is not None:
                    self._jumps.append((len(self._head) if self._head else -1, chunk.first_line))
                    self._head += b"\n" if self._head else b""
                self._head += chunk.data[:missing]
            yield chunk

    def matches(self, observer: MatchObserver | None = None) -> Iterator[Match]:
        """Yield one match for each kind of process that writes in the log: its first line."""
        if self._like is None:
            return
        head = bytes(self._head)
        found = _lines_by_logger(head) or _lines_by_shape(head)
        for stream, (at, line) in found.items():
            begin, end, first_line = self._run_at(at)
            start = head.rfind(b"\n", begin, at) + 1 or begin
            number = first_line + head.count(b"\n", begin, start)
            if observer is not None:
                excerpt = message_excerpt(head[begin:end], begin, start, start, number)
                observer.on_match(self._like.origin, (_OWNER, stream or ""), excerpt)
            yield Match(
                owner=_OWNER,
                role=RECOGNITION_ROLE,
                text=line.message.strip()[:600],
                origin=self._like.origin,
                line=number,
                last_line=number,
                stream=stream or self._like.stream,
            )

    def _run_at(self, at: int) -> tuple[int, int, int]:
        """Return the bounds of the text without gaps around *at*, and the number of its first line."""
        place = bisect_right(self._jumps, at, key=itemgetter(0))
        jump, first_line = self._jumps[place - 1]
        end = self._jumps[place][0] if place < len(self._jumps) else len(self._head)
        return jump + 1, end, first_line


def _lines_by_logger(head: bytes) -> dict[Stream | None, tuple[int, ParsedLine]]:
    """Return for each stream the first line with a header of one of Dask's loggers."""
    found: dict[Stream | None, tuple[int, ParsedLine]] = {}
    known: set[bytes] = set()
    tried = 0
    for at, word in _logger_words(head):
        if word in known:
            continue
        line = parse_line(_line_around(head, at))
        if line.is_header and line.logger:
            known.add(word)
            found.setdefault(line.stream, (at, line))
        tried += 1
        if tried >= _MAX_TRIED:
            break
    return found


def _logger_words(head: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield words that look like such loggers, with their offsets, in order."""
    end = 0
    for at in sorted(at for each in _BEGINNINGS for at in _places(head, each)):
        if at >= end:
            word = _REST.match(head, at)
            assert word is not None  # it may be empty
            end = word.end()
            yield at, word[0]


def _places(head: bytes, text: bytes) -> Iterator[int]:
    at = head.find(text)
    while at >= 0:
        yield at
        at = head.find(text, at + 1)


def _lines_by_shape(head: bytes) -> dict[Stream | None, tuple[int, ParsedLine]]:
    """Return the same by the forms of lines that kernels, batch systems and Kubernetes write."""
    found: dict[Stream | None, tuple[int, ParsedLine]] = {}
    at = 0
    for raw in head.split(b"\n", _MAX_SHAPES)[:_MAX_SHAPES]:
        line = parse_line(raw[:_LINE_BYTES])
        if line.stream:
            found.setdefault(line.stream, (at, line))
        at += len(raw) + 1
    return found


def _line_around(head: bytes, at: int) -> bytes:
    begin = head.rfind(b"\n", max(0, at - _LINE_BYTES), at) + 1 or max(0, at - _LINE_BYTES)
    end = head.find(b"\n", at, at + _LINE_BYTES)
    return head[begin : end if end >= 0 else at + _LINE_BYTES]
