"""Confirmation: whether a pattern matches a message, whether the match is the sign, and which matches are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from attrs import define, field

from workerdiag.matching.log_lines import ParsedLine
from workerdiag.matching.messages import LogRecord
from workerdiag.matching.patterns import PatternOwner, PatternTable, left_out_note
from workerdiag.matching.regex import BadPatternError, RegexMatch, SearchWork, pattern
from workerdiag.model.diagnosis import Match
from workerdiag.model.evidence import LogChunk, LogExcerpt
from workerdiag.model.identity import NO_IDENTITY, Identity
from workerdiag.model.normalize import whole
from workerdiag.model.vocabulary import Stream

#: Lines of a traceback that do not say what happened.
_OF_A_STACK = ('File "', "Traceback (most recent call last)")
#: Characters of a message that a match quotes.
QUOTED_CHARS = 600


class PatternHit(NamedTuple):
    """A place where a pattern matched. It becomes a `Match` only if it is kept."""

    #: Absolute offset, in bytes.
    at: int
    wanted: PatternOwner
    record: LogRecord
    groups: dict[str, str | None]
    #: Indices of its first and last line in the record.
    first: int
    last: int
    #: Whether it is below the text of `PatternOwner.follows`.
    follows: bool

    def match(self, like: LogChunk) -> Match:
        """Return the match, with origin and identity of *like*. The lines of its record must be numbered."""
        record, wanted, first = self.record, self.wanted, self.first
        captures = dict(wanted.implied)
        if self.groups:
            captures |= {key: value for key, value in self.groups.items() if value}
        if self.follows:
            captures["follows"] = wanted.follows.decode()
        line = record.header or record.lines[first]
        timed = record.lines[first] if record.lines[first].when else line
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
            when=timed.when,
            year_assumed=timed.year_assumed,
            identity=_process_identity(captures, line, like.identity),
            in_task=record.header is not None and record.text[:20].lstrip().lower().startswith("compute failed"),
        )

    def excerpt(self) -> LogExcerpt:
        """Return the message, or the matching lines if it has no header, with a few lines around them."""
        record = self.record
        first, last = (0, len(record.lines) - 1) if record.header else (self.first, self.last)
        return record.excerpt(first, last)


@define
class KeptMatches:
    """The first and last matches of one sign with their offsets, in bounded memory; or all of them."""

    #: How many are kept from the start and from the end; None: all.
    per_end: int | None
    first: list[tuple[int, Match]] = field(factory=list)
    last: list[tuple[int, Match]] = field(factory=list)
    #: New last hits. Only those that are kept become matches.
    _new: list[PatternHit] = field(factory=list)

    @property
    def is_saturated(self) -> bool:
        """Whether enough first matches are known, so that only the last ones are still wanted."""
        return self.per_end is not None and len(self.first) >= self.per_end

    def add(self, hit: PatternHit, make_match: Callable[[PatternHit], Match]) -> None:
        """Add a hit. Until the sign is saturated, hits come in order."""
        if self.is_saturated:
            self._new.append(hit)
        else:
            self.first.append((hit.at, make_match(hit)))

    def settle(self, make_match: Callable[[PatternHit], Match]) -> None:
        """Turn the new hits that are kept into matches, in the order of the text."""
        if not self._new or self.per_end is None:
            return
        places = sorted((*(at for at, _ in self.last), *(hit.at for hit in self._new)))
        least = places[-self.per_end :][0]
        new = sorted((hit for hit in self._new if hit.at >= least), key=lambda hit: hit.at)
        self._new = []
        self.last = [each for each in self.last if each[0] >= least]
        self.last += [(hit.at, make_match(hit)) for hit in new]


@define
class Confirmation:
    """Runs patterns on the messages of one log."""

    table: PatternTable
    work: SearchWork
    #: Who wrote the log, if known.
    log_stream: Stream | None
    #: The signs found so far, by offset.
    _seen: set[tuple[int, tuple[str, str]]] = field(factory=set, init=False)

    def forget_before(self, place: int) -> None:
        """Forget the signs found before an absolute offset."""
        self._seen = {each for each in self._seen if each[0] >= place}

    def run(self, text: str, record: LogRecord) -> list[PatternHit]:
        """Return the new hits of the pattern *text* in a message."""
        record.tried.add(text)
        owners = self.table.owners(text)
        searched = record.heading if owners[0].in_header else record.text
        hits: list[PatternHit] = []
        try:
            for found in pattern(text).finditer(searched):
                self._add_hits(hits, found, searched, owners, record)
        except BadPatternError as problem:
            notes = (left_out_note(each.owner, each.sign, problem) for each in owners)
            self.work.left_out.update(dict.fromkeys(notes))
        self.work.count_run(len(record.text))
        return hits

    def _add_hits(
        self,
        hits: list[PatternHit],
        found: RegexMatch,
        searched: str,
        owners: Sequence[PatternOwner],
        record: LogRecord,
    ) -> None:
        start, end = found.span()
        if searched[start : start + 1].isspace():  # leading blank lines are not part of the match
            start = end - len(searched[start:end].lstrip())
        first = last = 0
        if not owners[0].in_header:
            if record.is_code(start) or record.is_guess(start):
                return
            if len(record.lines) > 1:
                first = record.line_at(start)
                last = record.line_at(end - 1) if "\n" in searched[start:end] else first
        at = record.line_offsets[first] + start - record.text_starts[first]
        groups: dict[str, str | None] | None = None
        for owner in owners:
            key = (at, owner.key)
            if key not in self._seen and _is_sign(owner, record, first, last, self.log_stream):
                self._seen.add(key)
                groups = found.groupdict() if groups is None else groups
                follows = bool(owner.follows) and record.follows(first, owner.follows)
                hits.append(PatternHit(at, owner, record, groups, first, last, follows))


def _is_sign(wanted: PatternOwner, record: LogRecord, first: int, last: int, log_stream: Stream | None) -> bool:
    """Whether a match is the sign, by the rest of the message and by its writer."""
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
    """Return who wrote a line, by its logger or its form, else as the caller said."""
    return (record.header and record.header.stream) or record.lines[first].stream or log_stream


def _quoted_text(record: LogRecord, first: int, last: int) -> str:
    """Return the first line of the message, and first and last line of the match, each once, without frames."""
    if first == last and not (record.header and first):  # the usual case
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
