"""Reads recorded deaths from files, even damaged ones, and selects the relevant ones, in bounded memory.

The scheduler's recorder appends its records as JSON lines; black boxes add their reports.
"""

from __future__ import annotations

import heapq
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import count
from typing import NamedTuple

from workerdiag.errors import describe_error
from workerdiag.guard import guarded
from workerdiag.model.evidence import Evidence, Gap
from workerdiag.model.process_end import RECENT_S
from workerdiag.model.vocabulary import GapReason
from workerdiag.sources.recorder.death_evidence import death_evidence
from workerdiag.wire import MESSAGE_SCHEMA, RECORDER
from workerdiag.wire.messages import (
    DEATH_KINDS,
    DeathMessage,
    DeathReport,
    RemovalRecord,
    RescueAct,
    decode_message,
)
from workerdiag.wire.recorded_death import RecordedDeath, merge_messages


class RecordCollection:
    """Collects records and reports in any order, and yields their evidence once all are read.

    *about* are addresses of the workers in question, *tasks* keys of the tasks that Dask gave up on. Without either
    the last death, and those in the quarter of an hour before, are selected.
    """

    def __init__(self, about: Collection[str] = (), tasks: Collection[str] = ()) -> None:
        self._about = frozenset(about)
        self._tasks = frozenset(tasks)
        self._numbers = count()
        #: The least important first: by rank, time and order of arrival.
        self._heap: list[tuple[int, float, int, ParsedRecord]] = []
        self._bytes = self._dropped_count = 0

    def add(self, record: ParsedRecord) -> None:
        """Keep a record; if there is no room, drop the least important one."""
        death = RecordedDeath.of(record.message)
        rank = 2 if self._is_in_question(death) else int(not death.is_expected)
        heapq.heappush(self._heap, (rank, death.time, next(self._numbers), record))
        self._bytes += record.size_bytes
        while self._bytes > 4 * 2**20 and len(self._heap) > 1:  # parsed, they take a multiple
            self._bytes -= heapq.heappop(self._heap)[-1].size_bytes
            self._dropped_count += 1

    def evidence(self) -> Iterator[Evidence]:
        """Yield the evidence of the selected deaths; nothing without records."""
        if not self._heap:
            return
        messages = [record.message for *_, record in sorted(self._heap, key=lambda each: each[1])]
        self._heap = []
        selected = select_archived(merge_messages(messages), about=self._about, tasks=self._tasks)
        if not selected and (self._about or self._tasks):
            who = ", ".join(sorted(self._about)[:5]) or "that task"
            yield self._gap("never-recorded", f"the records that were read do not mention {who}")
        most = sorted(selected, key=lambda each: (self._is_in_question(each), each.time))[-32:]
        with guarded("reading recorded deaths") as reading:  # files are untrusted
            yield from death_evidence(sorted(most, key=lambda each: each.time))
        if reading.problem is not None:
            yield self._gap("malformed", f"a record could not be used: {describe_error(reading.problem)}")
        if len(selected) > len(most):
            more = len(selected) - len(most)
            yield self._gap("timed-out", f"{more} more deaths are recorded, too many to report at once")
        if self._dropped_count:
            detail = f"{self._dropped_count} records were dropped: there were too many to keep"
            yield self._gap("timed-out", detail)

    def _is_in_question(self, death: RecordedDeath) -> bool:
        return death.identity.worker in self._about or death.has_task(self._tasks)

    @staticmethod
    def _gap(reason: GapReason, detail: str) -> Gap:
        remedy = "name the file of the time in question alone, or give the exception: explain(exc, logs=...)"
        return Gap(source=RECORDER, reason=reason, detail=detail[:500], remedy=remedy)


def select_archived(
    deaths: Iterable[RecordedDeath], *, about: Collection[str], tasks: Collection[str]
) -> list[RecordedDeath]:
    """Select the relevant deaths from an archive, which many schedulers may have written; oldest first.

    Without workers or tasks they are the last unexpected death and those in the quarter of an hour before, or
    the last death if all were expected. Addresses and keys may be reused, so deaths more than a day before
    belong to another cluster.
    """
    known = sorted(deaths, key=lambda each: each.time)
    in_question = [each for each in known if each.identity.worker in about or each.has_task(tasks)]
    if not known or ((about or tasks) and not in_question):
        return []
    unexpected = [each for each in known if not each.is_expected]
    last = (in_question or unexpected or known)[-1].time
    return [
        each
        for each in known
        if -60.0 <= last - each.time <= (24 * 3600.0 if each in in_question else RECENT_S)
        and (each in in_question or not each.is_expected or not (in_question or unexpected))
    ]


#: Maximum length of a line: the scheduler's records are below 300 KiB, nannies' messages below 64 KiB.
_MAX_LINE_BYTES = 2**20
_MAX_NAMED = 5
_RECORD_BEGINNING = re.compile(
    rb'\s{0,99}\{(?=[\s\S]*"schema"\s*:\s*\d)(?=[\s\S]*"kind"\s*:\s*"(?:removal|nanny-report|box-found)")'
)


class ParsedRecord(NamedTuple):
    """One parsed line."""

    message: DeathMessage
    size_bytes: int
    #: Paths of unknown fields.
    dropped: tuple[str, ...] = ()


class BadLineError(ValueError):
    """A line is not a record that this release can use; the text says in what way."""

    def __init__(self, why: str, *, is_other_schema: bool = False) -> None:
        super().__init__(why)
        self.is_other_schema = is_other_schema


def is_record_file(head: bytes) -> bool:
    """Whether a file that begins with *head* holds records: its first object has ``schema`` and ``kind``."""
    line, end, _ = head.lstrip().partition(b"\n")
    if not line.startswith(b"{"):
        return False
    if end:  # else the rest of the line was not read
        with suppress(BadLineError):
            fields = _parse_line(line)
            return "schema" in fields and fields.get("kind") in DEATH_KINDS
    return _RECORD_BEGINNING.match(line) is not None


def parse_record(line: bytes) -> ParsedRecord:
    """Return the record in a line; raises BadLineError if it is not a usable one."""
    fields = _parse_line(line)
    schema = fields.get("schema")
    if schema is None or fields.get("kind") not in DEATH_KINDS:
        raise BadLineError("not records")
    if schema != MESSAGE_SCHEMA or isinstance(schema, bool):
        raise BadLineError(f"of an unknown schema ({str(schema)[:20]})", is_other_schema=True)
    dropped: list[str] = []
    message = decode_message(fields, dropped)
    if not isinstance(message, RemovalRecord | DeathReport | RescueAct):
        raise BadLineError("not records")
    return ParsedRecord(message, len(line), tuple(dropped[:_MAX_NAMED]))


def _parse_line(line: bytes) -> Mapping[str, object]:
    try:
        text = line.decode("utf-8", "replace")
        fields = json.loads(text)
        if "\\ud" in text.lower():  # a lone surrogate cannot be printed or searched
            fields = json.loads(json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace").decode())
    except (ValueError, RecursionError):
        raise BadLineError("not JSON, or truncated") from None
    if not isinstance(fields, dict):
        raise BadLineError("not records")
    return fields


class RecordParser:
    """Parses the records of one file from its blocks, in bounded memory."""

    def __init__(self) -> None:
        self._rest = b""
        self._number = 0
        self._too_long = False
        #: Line numbers by problem.
        self._bad: dict[str, list[int]] = {}
        self._bad_count = 0
        self._has_other_schema = False
        #: Unknown fields of good lines.
        self._dropped: dict[str, None] = {}

    def take(self, data: bytes) -> Iterator[ParsedRecord]:
        """Yield the records that *data* completes."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        for line in whole:
            yield from self._read(line)
        if len(self._rest) > _MAX_LINE_BYTES:
            self._rest, self._too_long = b"", True

    def end(self) -> Iterator[ParsedRecord]:
        """Yield the last record, if it has no line end."""
        line, self._rest = self._rest, b""
        if line or self._too_long:
            yield from self._read(line)

    def gap(self, origin: str) -> Gap | None:
        """Return the gap of unusable lines, or None if all were usable."""
        parts = []
        if self._bad_count:
            counted = "1 line was" if self._bad_count == 1 else f"{self._bad_count} lines were"
            problems = (f"{_line_numbers(lines)}: {why}" for why, lines in self._bad.items())
            parts.append(f"{counted} skipped ({'; '.join(problems)})")
        if self._dropped:
            parts.append(f"unknown fields: {', '.join(self._dropped)}")
        if not parts:
            return None
        newer = bool(self._dropped) or self._has_other_schema
        remedy = "upgrade workerdiag, or use the version that wrote it" if newer else "copy it again"
        detail = "; ".join(parts)[:500]
        return Gap(source=origin, place="log", reason="malformed", detail=detail, remedy=remedy)

    def _read(self, line: bytes) -> Iterator[ParsedRecord]:
        self._number += 1
        too_long, self._too_long = self._too_long or len(line) > _MAX_LINE_BYTES, False
        if not line.strip() and not too_long:
            return
        try:
            record = parse_record(b"" if too_long else line)
        except BadLineError as problem:
            why = "too long" if too_long else str(problem)
            self._bad_count += 1
            self._has_other_schema |= problem.is_other_schema
            if why in self._bad or len(self._bad) < _MAX_NAMED:
                self._bad[why] = [*self._bad.get(why, ()), self._number][: _MAX_NAMED + 1]
        else:
            self._dropped = dict.fromkeys([*self._dropped, *record.dropped][:_MAX_NAMED])
            yield record


def _line_numbers(numbers: list[int]) -> str:
    named = ", ".join(map(str, numbers[:_MAX_NAMED]))
    return f"line{'' if len(numbers) == 1 else 's'} {named}{' and more' if len(numbers) > _MAX_NAMED else ''}"
