"""Recognizes who writes in a log: one of Dask's processes, a platform, or at its end another program.

An all-clear depends on it: a text in which nothing is recognized says nothing about workers. A process that would
report a death may have died with the worker: then the log ends with the words of another program.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from workerdiag.matching.log_lines import ParsedLine, parse_line
from workerdiag.matching.messages import MatchObserver, message_excerpt
from workerdiag.model.diagnosis import RECOGNITION_ROLE, Match
from workerdiag.model.evidence import LogChunk, LogExcerpt
from workerdiag.model.rules import LAST_LINE, LOG_OF_OTHERS
from workerdiag.model.vocabulary import Stream

#: Limits: bytes to read of each log, and bytes of a line.
_MAX_BYTES = 1024 * 1024
_LINE_BYTES = 4 * 1024
#: Lines to read of a text without a logger.
_MAX_SHAPES = 60
#: The logger names of Dask's processes.
_LOGGERS = re.compile(rb"(?:distributed|tornado|dask)[\w.]*")
_OWNER = "log.recognised"


class Recognition:
    """The beginning of one log, and who is recognized in it."""

    def __init__(self) -> None:
        self._like: LogChunk | None = None
        #: Offset, number of the first line, and text of each part without gaps.
        self._parts: list[tuple[int, int, bytearray]] = []
        self._end = 0

    def tee(self, chunks: Iterable[LogChunk]) -> Iterator[LogChunk]:
        """Yield the chunks of the log unchanged."""
        for chunk in chunks:
            self._like = self._like or chunk
            if self._end < _MAX_BYTES:
                if chunk.first_line is not None or not self._parts:
                    self._end += self._end > 0  # a gap counts as one byte
                    self._parts.append((self._end, chunk.first_line or 1, bytearray()))
                data = chunk.data[: _MAX_BYTES - self._end]
                self._parts[-1][-1].extend(data)
                self._end += len(data)
            yield chunk

    def matches(self, observer: MatchObserver | None = None) -> Iterator[Match]:
        """Yield one match for each kind of process that writes in the log: its first line."""
        parts = [LogExcerpt(start, line, bytes(text)) for start, line, text in self._parts]
        for find in (_lines_by_logger, _lines_by_shape):
            found: dict[Stream | None, tuple[int, ParsedLine, LogExcerpt]] = {}
            for part in parts:
                for stream, (at, line) in find(part.data).items():
                    found.setdefault(stream, (at, line, part))
            for stream, (at, line, part) in found.items():
                yield self._match(stream, line, part, at, observer)
            if found:
                return

    def _match(
        self, stream: Stream | None, line: ParsedLine, part: LogExcerpt, at: int, observer: MatchObserver | None
    ) -> Match:
        assert self._like is not None
        at = part.data.rfind(b"\n", 0, at) + 1
        number = part.line + part.data.count(b"\n", 0, at)
        if observer is not None:
            start = part.start + at
            excerpt = message_excerpt(part.data, part.start, start, start, number)
            observer.on_match(self._like.origin, (_OWNER, stream or ""), excerpt)
        return Match(
            owner=_OWNER,
            role=RECOGNITION_ROLE,
            text=line.message.strip()[:600],
            origin=self._like.origin,
            line=number,
            last_line=number,
            stream=stream or self._like.stream,
        )


def _lines_by_logger(head: bytes) -> dict[Stream | None, tuple[int, ParsedLine]]:
    """Return for each stream the first line with a header of one of Dask's loggers."""
    found: dict[Stream | None, tuple[int, ParsedLine]] = {}
    known: set[bytes] = set()
    tried = 0
    for name in _LOGGERS.finditer(head):
        at, word = name.start(), name[0]
        if word in known:
            continue
        line = parse_line(_line_around(head, at))
        if line.is_header and line.logger:
            known.add(word)
            found.setdefault(line.stream, (at, line))
        tried += 1
        if tried >= 200:
            break
    return found


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


#: Bytes to keep of the end of a log.
_TAIL_BYTES = 32 * 1024
#: Continuation lines, tables, YARN's file trailers, progress bars, Python's exceptions and warnings,
#: conditions and denials: other rules judge those.
_ORDINARY = re.compile(
    r"[\s|^~@+=-]|\S+ {2,}\S+ {2,}\S|End of LogType"
    r"|(?i:(?:if|when) |(?:no|0) [^\n]{0,60}(?:kill|died|crash|fail|error|lost))"
    r"|[^\n]*\d ?%|\[[#= >.]*\]"
    r"|(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Warning|Interrupt|Exit)\b"
    r"|[^\n]*\b(?:\w+Warning: |docs\.dask\.org/)"
)
#: Words of programs that continue or have finished; and words of an end, which outweigh the former.
_WELL = re.compile(
    r"\b(?:done|finish\w*|complete\w*|ok|okay|ready|reading|start(?:ed|ing)?|running|load(?:ed|ing)?|wrote"
    r"|writ(?:ing|ten)|sav(?:ed|ing)|process(?:ed|ing)|comput(?:ed|ing)|(?:down|up)load(?:ed|ing)?"
    r"|open(?:ed|ing)?|clos(?:ed|ing) file|connected|registered|joined|created|renewed|epoch|steps?"
    r"|iter(?:ation)?s?|batch(?:es)?|loss|rows|chunks?|tiles?|elapsed|took|seconds|success\w*|healthy|well"
    r"|(?:code|value|status):? 0)\b",
    re.IGNORECASE,
)
_ILL = re.compile(
    r"\b(?:dead|die[ds]?|lost|gone|out of|end(?:ed|s)?|reset|shut|down|oom|fatal|panic|signal|limit|quota"
    r"|core|hung)\b|kill|stop|exit(?!(?:ed)?(?: with)? (?:code|value|status):? 0)|fail|terminat|abort|crash"
    r"|evict|preempt|expir|exceed|reboot|suspend|withdr|reclaim|time.?out|timed out|drain|cancel|refus"
    r"|unreach|disconnect|exhaust|releas|remov|interrupt|unhealthy|not |n't ",
    re.IGNORECASE,
)
_FAILED = re.compile(
    rf"{_ILL.pattern}|\b(?:denied|unauthori[sz]ed|forbidden|no such|not found|no route|cannot)\b", re.IGNORECASE
)
#: ... and Python exceptions, wherever they are quoted.
_JUDGED = re.compile(rf"{_ORDINARY.pattern}|[^\n]*[a-z]Error\b")
_NOT_IN_WORDS = re.compile(r"[^A-Za-z,.:;!?()'\"-]")


class LastLine:
    """The end of one log."""

    def __init__(self) -> None:
        self._like: LogChunk | None = None
        self._tail = b""
        self._newlines = 0

    def tee(self, chunks: Iterable[LogChunk]) -> Iterator[LogChunk]:
        """Yield the chunks of the log unchanged."""
        for chunk in chunks:
            self._like = chunk
            if chunk.first_line is not None:
                self._newlines, self._tail = chunk.first_line - 1, b""
            self._tail = (self._tail + chunk.data[-_TAIL_BYTES:])[-_TAIL_BYTES:]
            self._newlines += chunk.newline_count
            yield chunk

    def matches(self) -> Iterator[Match]:
        """Yield a match for the last line, if Dask did not write it and no similar line is above it."""
        tail = self._tail.rstrip()
        if self._like is None:
            return
        last = self._newlines + 1 - self._tail.count(b"\n", len(tail))
        strange, alarming = strange_last_line(tail), alarming_line(tail)
        found = [(LAST_LINE, last, strange)] if strange is not None else []
        if alarming is not None:
            found.append((LOG_OF_OTHERS, last - alarming[0], alarming[1]))
        for owner, line, text in found:
            yield Match(
                owner=owner,
                role=RECOGNITION_ROLE,
                text=text[:600],
                origin=self._like.origin,
                line=line,
                last_line=line,
                stream=self._like.stream,
            )


def strange_last_line(tail: bytes) -> str | None:
    """Return the last line of *tail* if it is below a message of Dask's, not part of it, and of a new kind."""
    *above, last = tail.split(b"\n")
    line = parse_line(last[:_LINE_BYTES])
    if line.logger or line.stream or line.host or not line.message.strip() or _ORDINARY.match(line.message):
        return None
    if _WELL.search(line.message) and not _ILL.search(line.message):
        return None
    kind = _kind(line.message)
    is_below_dask = False
    for raw in reversed(above[-200:]):
        other = parse_line(raw[:_LINE_BYTES])
        if other.logger is None:
            if _kind(other.message) == kind:
                return None
        elif not is_below_dask:
            is_below_dask = True
            if other.level in ("ERROR", "CRITICAL") or other.message.startswith("Compute Failed"):
                return None
    return line.message.strip() if is_below_dask else None


def alarming_line(tail: bytes) -> tuple[int, str] | None:
    """Find the last line of *tail* with a word of an end or a failure, if neither Dask nor a platform wrote it.

    Returns:
        The number of lines below it, and its text.
    """
    texts: list[str] = []
    for raw in reversed(tail.split(b"\n")[-20:]):
        line = parse_line(raw[:_LINE_BYTES])
        if line.logger or line.stream or line.host:
            return None
        texts.append(line.message.strip())
    lines = enumerate(texts)
    return next(((at, text) for at, text in lines if _FAILED.search(text) and not _JUDGED.match(text)), None)


def _kind(text: str) -> str:
    """Return *text* without the parts that vary: numbers, paths, names."""
    return " ".join("#" if _NOT_IN_WORDS.search(word) else word.lower() for word in text.split())
