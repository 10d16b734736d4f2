"""
Records of deaths as the scheduler's recorder appends them: JSON lines, read whatever became of them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from workerdiag.model.evidence import Gap

#: Shape of records and messages that is understood (`workerdiag.recorder.messages.SCHEMA`).
SCHEMA = 1
SOURCES = ("scheduler", "nanny", "orphan")
#: So much of a file tells whether it holds records.
HEAD_BYTES = 16 * 1024
#: No record is that long: the scheduler's are below 300 KiB, nannies' messages below 64 KiB.
_MOST_LINE_BYTES = 2**20
#: Commas and brackets in a line: each can take a hundred bytes of memory.
_MOST_MARKS = 100_000
#: Seconds since the epoch of year 5138; a time behind it is none.
_MOST_SECONDS = 1e11
_MOST_DIGITS = 18
#: Of lines that cannot be used, a gap names so many of a kind.
_NAMED = 5
_BEGINNING = re.compile(
    rb'\s*\{(?=[\s\S]*"schema"\s*:\s*\d)(?=[\s\S]*"source"\s*:\s*"(?:scheduler|nanny|orphan)")'
)


class Record(NamedTuple):
    """
    One line, understood.
    """

    said: Mapping[str, Any]
    size_bytes: int


class BadLineError(ValueError):
    """
    A line is no record, or not one of a schema that is known; the words of it are for a person.
    """


def begins_records(head: bytes) -> bool:
    """
    Whether a file that begins so holds records: its first line is an object with ``schema`` and ``source``.
    """
    line, end, _ = head[:HEAD_BYTES].lstrip().partition(b"\n")
    if not line.startswith(b"{"):
        return False
    if not end:  # the rest of the line was not read
        return _BEGINNING.match(line) is not None
    try:
        said = _parsed(line)
    except BadLineError:
        return _BEGINNING.match(line) is not None
    return "schema" in said and said.get("source") in SOURCES


def record_of(line: bytes) -> Record:
    """
    The record in a line.

    Raises:
        BadLineError: There is none that can be used.
    """
    said = _parsed(line)
    schema, when = said.get("schema"), said.get("when", 0)
    if schema is None or said.get("source") not in SOURCES:
        raise BadLineError("no records")
    if schema != SCHEMA or isinstance(schema, bool):
        raise BadLineError(f"of a schema that is not known here ({str(schema)[:20]})")
    if isinstance(when, bool) or not isinstance(when, int | float) or not abs(when) < _MOST_SECONDS:
        raise BadLineError("without a time that could be one")
    return Record(said, len(line))


def _parsed(line: bytes) -> Mapping[str, Any]:
    if sum(map(line.count, (b",", b"[", b"{"))) > _MOST_MARKS:
        raise BadLineError("too long")
    try:
        text = line.decode("utf-8", "replace")
        said = _loaded(text)
        if "\\ud" in text.lower():  # half of a character cannot be printed, nor searched
            said = _loaded(json.dumps(said, ensure_ascii=False).encode("utf-8", "replace").decode())
    except (ValueError, RecursionError):
        raise BadLineError("no JSON, or torn") from None
    if not isinstance(said, dict):
        raise BadLineError("no records")
    return said


def _loaded(text: str) -> Any:
    return json.loads(text, parse_int=_integer, parse_float=_number, parse_constant=lambda _: None)


def _integer(text: str) -> int | None:
    return int(text) if len(text) <= _MOST_DIGITS else None


def _number(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


class RecordLines:
    """
    The records in the text of one file, which comes block by block; memory is bounded.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._number = 0
        self._too_long = False
        #: What is wrong, to the numbers of the lines of which that is so, and how many they are.
        self._bad: dict[str, list[int]] = {}
        self._bad_count = 0

    def take(self, data: bytes) -> Iterator[Record]:
        """
        The records that are whole with *data*.
        """
        *whole, self._rest = (self._rest + data).split(b"\n")
        for line in whole:
            yield from self._read(line)
        if len(self._rest) > _MOST_LINE_BYTES:
            self._rest, self._too_long = b"", True

    def end(self) -> Iterator[Record]:
        """
        The last one, if it has no line end.
        """
        line, self._rest = self._rest, b""
        if line or self._too_long:
            yield from self._read(line)

    def gap(self, origin: str) -> Gap | None:
        """
        Which lines could not be used, and why; None if all could.
        """
        if not self._bad_count:
            return None
        said = [f"{_lines(numbers)}: {what}" for what, numbers in self._bad.items()]
        newer = any("schema" in what for what in self._bad)
        return Gap(
            source=f"log {origin}",
            reason="malformed",
            detail=f"{_counted(self._bad_count)} passed over ({'; '.join(said)})"[:500],
            remedy="upgrade workerdiag, or use the version that wrote it" if newer else "copy it again",
        )

    def _read(self, line: bytes) -> Iterator[Record]:
        self._number += 1
        too_long, self._too_long = self._too_long or len(line) > _MOST_LINE_BYTES, False
        if not line.strip() and not too_long:
            return
        if too_long:
            self._pass_over("too long")
            return
        try:
            yield record_of(line)
        except BadLineError as problem:
            self._pass_over(str(problem))

    def _pass_over(self, why: str) -> None:
        self._bad_count += 1
        if why in self._bad or len(self._bad) < _NAMED:
            numbers = self._bad.setdefault(why, [])
            if len(numbers) <= _NAMED:
                numbers.append(self._number)


def _counted(count: int) -> str:
    return "1 line was" if count == 1 else f"{count} lines were"


def _lines(numbers: list[int]) -> str:
    named = ", ".join(map(str, numbers[:_NAMED]))
    return f"line{'' if len(numbers) == 1 else 's'} {named}{' and more' if len(numbers) > _NAMED else ''}"
