"""
A pattern at a place in a message: whether it is a match, and what that says.
"""

from __future__ import annotations

from typing import NamedTuple

from workerdiag.matching.messages.log_record import LogRecord
from workerdiag.matching.regex import pattern
from workerdiag.matching.scan.pattern_table import PatternOwner
from workerdiag.matching.text.line_parser import ParsedLine
from workerdiag.model.diagnosis import Match
from workerdiag.model.evidence import LogChunk
from workerdiag.model.identity import NO_IDENTITY, Identity
from workerdiag.model.normalize import whole
from workerdiag.model.vocabulary import Stream

#: How worker.py reports a failed task, in every release.
_TASK_FAILED = "compute failed"
#: Lines of a traceback that do not say what happened.
_OF_A_STACK = ('File "', "Traceback (most recent call last)")
#: Characters of a message that a match quotes.
QUOTED_CHARS = 600


class PatternHit(NamedTuple):
    """
    Where a pattern matched: a match in the making, as most are never asked for.
    """

    #: Absolute offset, in bytes.
    at: int
    wanted: PatternOwner
    record: LogRecord
    groups: dict[str, str | None]
    #: Indices of the first and the last line of the record that it is in.
    first: int
    last: int

    def match(self, like: LogChunk) -> Match:
        """
        The match, in a log like *like*; the lines of its record were numbered.
        """
        record, wanted, first = self.record, self.wanted, self.first
        captures = dict(wanted.implied)
        if self.groups:
            captures |= {key: value for key, value in self.groups.items() if value}
        line = record.header or record.lines[first]
        return Match(
            owner=wanted.owner,
            sign=wanted.sign,
            role=wanted.role,
            text=_quoted_text(record, first, self.last),
            captures=captures,
            origin=like.origin,
            line=record.numbers[first],
            offset=self.at,
            last_line=record.numbers[self.last],
            message_line=record.numbers[0] if record.header else 0,
            stream=_stream_of(record, first, like.stream),
            when=record.lines[first].when or line.when,
            identity=_process_identity(captures, line, like.identity),
            in_task=record.header is not None and record.text[:20].lstrip().lower().startswith(_TASK_FAILED),
        )

    def lines(self) -> tuple[int, int]:
        """
        Indices of the first and the last line of the message; without a header, of the lines that match.
        """
        return (0, len(self.record.lines) - 1) if self.record.header else (self.first, self.last)


def is_sign(
    wanted: PatternOwner, record: LogRecord, first: int, last: int, log_stream: Stream | None
) -> bool:
    """
    Whether a pattern that matches is the sign: by what else the message says, and by who wrote it.
    """
    if wanted.unless and record.shows(wanted.unless):
        return False
    if wanted.unless_in_line:
        denial = pattern(wanted.unless_in_line)
        if any(denial.search(each.message) for each in record.lines[first : last + 1]):
            return False
    if record.is_own_note(first):
        return False
    stream = _stream_of(record, first, log_stream)
    return not wanted.streams or stream is None or stream in wanted.streams


def _stream_of(record: LogRecord, first: int, log_stream: Stream | None) -> Stream | None:
    """
    Who wrote it: as its logger or shape tells, else as the caller said.
    """
    return (record.header and record.header.stream) or record.lines[first].stream or log_stream


def _quoted_text(record: LogRecord, first: int, last: int) -> str:
    """
    The first line of the message and of what matches, and the last of what matches, where these differ.

    Frames of a stack and the line above them are left out beside anything else: they say not what happened.
    """
    if first == last and not (record.header and first):  # as most are
        return record.lines[first].message.strip()[:QUOTED_CHARS]
    shown = dict.fromkeys((0, first, last) if record.header else (first, last))
    parts = [part for at in shown if (part := record.lines[at].message.strip())]
    parts = [part for part in parts if not part.startswith(_OF_A_STACK)] or parts[:1]
    return " … ".join(part[: QUOTED_CHARS // len(parts)] for part in parts)


def _process_identity(captures: dict[str, str], line: ParsedLine, log_identity: Identity) -> Identity:
    if not captures and line.pid is None and not line.host:
        return log_identity
    pid = whole(captures.get("pid"))
    captured = Identity(
        worker=captures.get("worker"),
        pid=line.pid if pid is None else pid,
        nanny=captures.get("nanny"),
        name=captures.get("name"),
        host=captures.get("host") or line.host,
        container=captures.get("container"),
    )
    return captured if log_identity == NO_IDENTITY else captured.merged_with(log_identity)
