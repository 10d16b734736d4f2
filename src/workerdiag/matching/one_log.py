"""
One log on its way through the matcher: where to look closer, and what to keep.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

from attrs import define, evolve, field, frozen

from workerdiag.matching.lines import Line
from workerdiag.matching.records import AFTER_BYTES, BEFORE_BYTES, LINE_BYTES, Block, Record
from workerdiag.matching.regex import BadPatternError, pattern
from workerdiag.matching.years import in_year, year_of
from workerdiag.model.diagnosis import Match
from workerdiag.model.evidence import Identity, LogChunk

#: Bytes before and after a candidate that its message may reach.
_BEHIND = 2 * BEFORE_BYTES + 4 * LINE_BYTES
_AHEAD = BEFORE_BYTES + AFTER_BYTES + 4 * LINE_BYTES
#: A literal that straddles two looks is found again in the second, from so far back.
LONGEST_LITERAL = 256
#: Of one sign in one log, so many matches are kept from the start, and as many from the end.
KEPT_EACH_END = 400
#: How worker.py reports a failed task, in every release.
_TASK_FAILED = "compute failed"
#: A line of a program that would write the message: an excerpt of code is no log.
_WOULD_WRITE = re.compile(
    r"\blog(?:ger|ging)?\.(?:debug|info|warn(?:ing)?|error|exception|critical)\(", re.IGNORECASE
)
#: Characters of a message that a match quotes.
QUOTED_CHARS = 600


@frozen(kw_only=True)
class Wanted:
    """
    A pattern and whose sign it is.
    """

    owner: str
    sign: str
    role: str
    pattern: str
    unless: str | None
    streams: tuple[str, ...]
    #: Captures that the message implies.
    implied: tuple[tuple[str, str], ...] = ()
    #: Whether the pattern is for ``logger - LEVEL - message``.
    in_header: bool = False


class Patterns(Protocol):
    """
    What a log needs to know of the matcher.
    """

    def candidates(self, block: bytes) -> list[tuple[int, list[str]]]:
        """
        Places worth a closer look, in order, with the patterns to try there.
        """

    def wanted(self, text: str) -> list[Wanted]:
        """
        Whose signs the pattern *text* is.
        """

    def leave_out(self, text: str, problem: Exception) -> None:
        """
        Note that the pattern *text* cannot be used.
        """


class Witness(Protocol):
    """
    Somebody who wants to know where in a log something was found.

    Bytes are counted from 0 over all that was given of the log, lines from 1.
    """

    def matched(self, origin: str, sign: tuple[str, str], first: int, last: int, line: int) -> None:
        """
        A message shows *sign* (whose it is, and its name).

        Its first line begins at byte *first* and is number *line*; its last one begins at *last*.
        """

    def reached(self, origin: str, at: int, line: int) -> None:
        """
        Byte *at* lies in line number *line*.
        """


@define
class _Kept:
    """
    The first and the last matches of one sign, in bounded memory.
    """

    first: list[tuple[int, Match]] = field(factory=list)
    last: deque[tuple[int, Match]] = field(factory=lambda: deque(maxlen=KEPT_EACH_END))

    def add(self, at: int, match: Match) -> None:
        if len(self.first) < KEPT_EACH_END:
            self.first.append((at, match))
        else:
            self.last.append((at, match))


class Log:
    """
    One log on its way through the matcher.
    """

    def __init__(self, matcher: Patterns, like: LogChunk, witness: Witness | None = None) -> None:
        self._matcher = matcher
        self._witness = witness
        self.like = evolve(like, data=b"")
        self._data = b""
        #: Absolute offset of the first byte held, and of the first not yet looked at.
        self._base = 0
        self._done = 0
        #: An absolute offset and the number of newlines before it.
        self._counted = (0, 0)
        self._seen: set[tuple[int, str, str]] = set()
        self._kept: dict[tuple[str, str], _Kept] = {}
        #: Places whose time has no year; the log's other lines may tell it.
        self._year_assumed: set[int] = set()

    def feed(self, data: bytes) -> None:
        """
        Take the next bytes; look at all that have enough text behind them.
        """
        self._data += data
        self._look(up_to=self._base + len(self._data) - _AHEAD)

    def skip_to(self, line: int) -> None:
        """
        Go on with line number *line*: what lies between was left out.
        """
        end = self._base + len(self._data)
        self._look(up_to=end)
        self._data = b"\n" if end else b""  # so that what follows begins a line
        self._base = end - len(self._data)
        self._counted = (end, line - 1)

    def finished(self) -> Iterator[Match]:
        """
        Look at the rest, and give all matches in order.
        """
        self._look(up_to=self._base + len(self._data))
        kept = [found for each in self._kept.values() for found in (*each.first, *each.last)]
        kept.sort(key=lambda found: (found[0], found[1].owner, found[1].sign))
        year = next(
            (year_of(match.when) for at, match in kept if match.when and at not in self._year_assumed), None
        )
        for at, match in kept:
            if at not in self._year_assumed:
                yield match
            elif year is None:
                yield evolve(match, year_assumed=True)
            else:
                yield evolve(match, when=in_year(match.when, year))

    def _look(self, *, up_to: int) -> None:
        if up_to <= self._done:
            return
        block = Block(self._data, self._base)
        begin = max(0, self._done - self._base - LONGEST_LITERAL)
        window = self._data[begin : up_to - self._base]
        places: dict[str, list[int]] = {}
        for at, texts in self._matcher.candidates(window):
            if self._base + begin + at >= self._done:
                for text in texts:
                    places.setdefault(text, []).append(begin + at)
        for text, offsets in places.items():
            self._try(text, offsets, block)
        self._done = up_to
        self._forget(max(0, up_to - self._base - _BEHIND))

    def _forget(self, count: int) -> None:
        """
        Let go of the first *count* bytes held.
        """
        line = self._line_number(self._base + count)
        self._data = self._data[count:]
        self._base += count
        if self._witness is not None:
            self._witness.reached(self.like.origin, self._base, line)
        self._seen = {each for each in self._seen if each[0] >= self._base}
        if (
            len(self._year_assumed) > 100 * KEPT_EACH_END
        ):  # a long log with many such lines: keep those that still matter
            self._year_assumed &= {at for each in self._kept.values() for at, _ in (*each.first, *each.last)}

    def _line_number(self, offset: int) -> int:
        """
        Number, from 1, of the line at an absolute offset that is still held.
        """
        since, newlines = self._counted
        low, high = sorted((since - self._base, offset - self._base))
        between = self._data.count(b"\n", low, high)
        self._counted = (offset, newlines + between if offset >= since else newlines - between)
        return self._counted[1] + 1

    def _try(self, text: str, offsets: list[int], block: Block) -> None:
        """
        Look closer at all places of one pattern.

        Where plenty are known already, only from the end backwards, and no further than needed.
        """
        wanted = self._matcher.wanted(text)
        keys = [(each.owner, each.sign) for each in wanted]
        plenty = all(key in self._kept and len(self._kept[key].first) >= KEPT_EACH_END for key in keys)
        found: list[tuple[int, Wanted, Callable[[], Match]]] = []
        tried: set[int] = set()
        for offset in reversed(offsets) if plenty else offsets:
            record = block.record_at(offset)
            if record.line_offsets[0] not in tried:
                tried.add(record.line_offsets[0])
                try:
                    found += self._confirmed(text, record)
                except BadPatternError as problem:
                    self._matcher.leave_out(text, problem)
                    return
            if plenty and len(found) >= KEPT_EACH_END * len(keys):
                break
        for at, each, match in sorted(found, key=lambda one: one[0]):
            self._kept.setdefault((each.owner, each.sign), _Kept()).add(at, match())

    def _confirmed(self, text: str, record: Record) -> Iterator[tuple[int, Wanted, Callable[[], Match]]]:
        in_header = self._matcher.wanted(text)[0].in_header
        for found in pattern(text).finditer(record.heading if in_header else record.text):
            first, last = (0, 0) if in_header else record.lines_of(found.start(), found.end())
            at = record.line_offsets[first] + found.start() - record.text_starts[first]
            if _WOULD_WRITE.search(record.text[record.text_starts[first] : found.start()]):
                continue
            for wanted in self._matcher.wanted(text):
                key = (at, wanted.owner, wanted.sign)
                if key in self._seen or not _fits(wanted, record, first, self.like.stream):
                    continue
                self._seen.add(key)
                if record.lines[first].year_assumed:
                    self._year_assumed.add(at)
                yield at, wanted, partial(self._match, wanted, record, found.groupdict(), first, last)

    def _match(
        self, wanted: Wanted, record: Record, groups: dict[str, str | None], first: int, last: int
    ) -> Match:
        captures = dict(wanted.implied) | {key: value for key, value in groups.items() if value}
        line = record.header or record.lines[first]
        number = self._line_number(record.line_offsets[first])
        self._tell(wanted, record, first, last)
        return Match(
            owner=wanted.owner,
            sign=wanted.sign,
            role=wanted.role,
            text=_quote(record, first),
            captures=captures,
            origin=self.like.origin,
            line=number,
            last_line=max(number, self._line_number(record.line_offsets[last])),
            message_line=self._line_number(record.line_offsets[0]) if record.header else 0,
            stream=_stream(record, first, self.like.stream),
            when=record.lines[first].when or line.when,
            whose=_whose(captures, line, self.like.whose),
            in_task=record.header is not None and record.text[:20].lstrip().lower().startswith(_TASK_FAILED),
        )

    def _tell(self, wanted: Wanted, record: Record, first: int, last: int) -> None:
        """
        Say where the message is; in text without headers, where the lines are that match.
        """
        if self._witness is None:
            return
        offsets = record.line_offsets if record.header else record.line_offsets[first : last + 1]
        line = self._line_number(offsets[0])
        self._witness.matched(self.like.origin, (wanted.owner, wanted.sign), offsets[0], offsets[-1], line)


def _fits(wanted: Wanted, record: Record, first: int, given: str | None) -> bool:
    if wanted.unless and pattern(wanted.unless).search(record.text):
        return False
    stream = _stream(record, first, given)
    return not wanted.streams or stream is None or stream in wanted.streams


def _stream(record: Record, first: int, given: str | None) -> str | None:
    """
    Who wrote it: as its logger or shape tells, else as the caller said.
    """
    return (record.header and record.header.stream) or record.lines[first].stream or given


def _quote(record: Record, first: int) -> str:
    """
    The line in which the pattern begins, and the message's first line if that is another.
    """
    line = record.lines[first].message.strip()
    top = record.lines[0].message.strip() if record.header and first else ""
    return f"{top} … {line}"[:QUOTED_CHARS] if top else line[:QUOTED_CHARS]


def _whose(captures: dict[str, str], line: Line, given: Identity) -> Identity:
    pid = captures.get("pid", "")
    said = Identity(
        worker=captures.get("worker"),
        pid=int(pid) if pid.isdigit() else line.pid,
        nanny=captures.get("nanny"),
        name=captures.get("name"),
        host=captures.get("host") or line.host,
        container=captures.get("container"),
    )
    return said.joined(given)
