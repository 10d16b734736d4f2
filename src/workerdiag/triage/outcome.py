"""The outcome of one part, packed as bytes with a version, and the folder that keeps outcomes and tables.

An outcome has the versions of Python and distributed that a log names. Dask does not log its version: tracebacks
show the folder of Python's library, images of Dask their tag, and servers whose versions differ log a table.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from attrs import evolve, fields

from workerdiag.bundle.evidence_json import piece_from_dict, piece_to_dict
from workerdiag.errors import TableError, error_text
from workerdiag.model.diagnosis import Match
from workerdiag.model.evidence import Evidence, LogChunk
from workerdiag.model.identity import NO_IDENTITY, Identity
from workerdiag.model.rules import Rulebook
from workerdiag.triage.parts import Part
from workerdiag.triage.tables import (
    DeathRow,
    InputRow,
    TableFormat,
    folder_remedy,
    row_converter,
    write_table,
    write_whole,
)
from workerdiag.values import frozen


@frozen(kw_only=True)
class Versions:
    """The first versions that a text names; None: the text names none."""

    #: Python version, such as ``3.12``.
    python: str | None = None
    distributed: str | None = None

    def seen_in(self, data: bytes) -> Versions:
        """Return these versions; fill in unknown ones from *data*."""
        if self.python is not None and self.distributed is not None:
            return self
        return Versions(
            python=self.python or _first_version(_PYTHON, data),
            distributed=self.distributed or _first_version(_DISTRIBUTED, data),
        )

    def or_else(self, other: Versions) -> Versions:
        """Return these versions; fill in unknown ones from *other*."""
        return Versions(python=self.python or other.python, distributed=self.distributed or other.distributed)

    @classmethod
    def common(cls, all_of_them: Iterable[Versions]) -> Versions:
        """Return the versions that all agree on; None where they differ. Unknown versions do not count."""
        given = list(all_of_them)
        return cls(
            python=_only({each.python for each in given}), distributed=_only({each.distributed for each in given})
        )


#: Search the first bytes of a text only: searching all of it would take a third of the time of the marks.
VERSIONS_WITHIN: Final = 16 * 2**20
#: Bytes of the longest text that names a version; a longer table row is cut off.
LONGEST_NAMING: Final = 1024

#: Literals that are quick to find, each with the pattern that begins with it: ``/usr/lib/python3.12/``.
_PYTHON = ((b"/python3.", re.compile(rb"/python(3\.\d{1,2})/")),)
#: An image of Dask (``ghcr.io/dask/dask:2026.8.0-py3.12``), and the last column, the workers, of the table in
#: ``distributed.versions.error_message``.
_DISTRIBUTED = (
    (b"/dask:20", re.compile(rb"/dask:(20\d\d\.\d{1,2}\.\d{1,2})\b")),
    (b"| distributed ", re.compile(rb"\| distributed +\|[^\n]*\| +(20\d\d\.\d{1,2}\.\d{1,2}) +\|\s*\n")),
)


def _first_version(wanted: Iterable[tuple[bytes, re.Pattern[bytes]]], data: bytes) -> str | None:
    for literal, pattern in wanted:
        at = -1
        for _ in range(20):
            at = data.find(literal, at + 1)
            if at < 0:
                break
            if found := pattern.match(data, at):
                return found[1].decode()
    return None


def _only(versions: set[str | None]) -> str | None:
    known = versions - {None}
    return known.pop() if len(known) == 1 else None


OUTCOME_SCHEMA: Final = 4


@frozen(kw_only=True)
class PartIndex:
    """Data that identifies the cluster run of a text, and the versions that ran there."""

    #: Addresses of the schedulers and workers of the cluster, as the text names them, sorted.
    schedulers: tuple[str, ...] = ()
    workers: tuple[str, ...] = ()
    first_when: float | None = None
    last_when: float | None = None
    versions: Versions = Versions()


@frozen(kw_only=True)
class PartOutcome:
    """The outcome of one part, without the matches or evidence in it."""

    row: InputRow
    index: PartIndex = PartIndex()
    #: Number of newlines in the part, which shifts the line numbers of later parts.
    newlines: int = 0
    #: Number of reports of deaths in it, shown as progress.
    reports: int = 0
    #: Number of reports of deaths that were too many, so that only the first and the last are kept.
    dropped_ends: int = 0
    schema: int = OUTCOME_SCHEMA


def workers_of(pieces: Iterable[Evidence]) -> set[str]:
    """Return the addresses of the workers that the pieces are about."""
    identities = (getattr(each, "identity", NO_IDENTITY) for each in pieces)
    return {each.worker for each in identities if each.worker}


#: Separator between the outcome and what was found in one file.
_BETWEEN: Final = b"\n"

#: Fields of a match that are kept besides its identity; its origin is the URL of the part.
_MATCH_FIELDS: Final = tuple(each.name for each in fields(Match) if each.name not in ("origin", "identity"))
_IDENTITY_FIELDS: Final = tuple(each.name for each in fields(Identity))


def pack(
    outcome: PartOutcome,
    outermost: Iterable[Match] = (),
    near_ends: Iterable[Match] = (),
    pieces: Iterable[Evidence] = (),
) -> bytes:
    """Pack the outcome as a line of JSON, then what was found: matches of a text, evidence of a container."""
    head = json.dumps(row_converter(with_places=False).unstructure(outcome)).encode() + _BETWEEN
    of_match, of_identity = attrgetter(*_MATCH_FIELDS), attrgetter(*_IDENTITY_FIELDS)
    found = [
        *([(of_match(each), of_identity(each.identity)) for each in matches] for matches in (outermost, near_ends)),
        [piece_to_dict(each) for each in pieces],
    ]
    if not any(found):
        return head
    body = json.dumps(found, separators=(",", ":"), default=dict).encode()
    return head + zlib.compress(body, 1)  # a higher level costs more time than writing the bytes it saves


def unpack_outcome(packed: bytes) -> PartOutcome:
    """Unpack the outcome. Raises ValueError if the bytes are no outcome, or have another version."""
    try:
        plain = json.loads(packed.partition(_BETWEEN)[0])
        outcome = row_converter(with_places=False).structure(plain, PartOutcome)
    except Exception as problem:
        raise ValueError("not the outcome of a part") from problem
    if outcome.schema != OUTCOME_SCHEMA:
        raise ValueError("the outcome of another version")
    return outcome


def unpack_found(packed: bytes, url: str) -> tuple[list[Match], list[Match], list[Evidence]]:
    """Unpack what was found in a part of the input *url*, which names logs in a container; raises ValueError."""
    body = packed.partition(_BETWEEN)[2]
    try:
        outermost, near_ends, pieces = json.loads(zlib.decompress(body)) if body else ((), (), ())
        return _matches(outermost, url), _matches(near_ends, url), [_piece(each, url) for each in pieces]
    except Exception as problem:
        raise ValueError("not the outcome of a part") from problem


def _matches(plain: Iterable[tuple[Sequence[Any], Sequence[Any]]], url: str) -> list[Match]:
    return [
        Match(
            origin=url,
            identity=Identity(**dict(zip(_IDENTITY_FIELDS, identity, strict=True))),
            **dict(zip(_MATCH_FIELDS, values, strict=True)),
        )
        for values, identity in plain
    ]


def _piece(plain: object, url: str) -> Evidence:
    piece = piece_from_dict(plain)
    return evolve(piece, origin=f"{url}: {piece.origin}") if isinstance(piece, LogChunk) else piece


_SUFFIX = ".marks"


class TriageFolder:
    """The folder that keeps the state of a triage, so that it can resume; it is created on the first write."""

    def __init__(self, path: Path, form: TableFormat) -> None:
        self.path = path
        self._form = form
        self._parts = path / "parts"

    def keep(self, key: str, packed: bytes) -> None:
        """Save the outcome of a part. Raises TableError if the folder cannot be written to."""
        try:
            write_whole(self._parts / f"{key}{_SUFFIX}", packed)
        except OSError as problem:
            raise TableError(str(self.path), error_text(problem), folder_remedy(problem)) from problem

    def kept(self, key: str) -> bytes | None:
        """Return the saved outcome of a part, or None."""
        with suppress(OSError):
            return (self._parts / f"{key}{_SUFFIX}").read_bytes()
        return None

    def kept_bytes(self, key: str) -> int:
        """Return the size of the saved outcome of a part."""
        with suppress(OSError):
            return (self._parts / f"{key}{_SUFFIX}").stat().st_size
        return 0

    def finished(self, key: str) -> PartOutcome | None:
        """Return the saved outcome. If reading the part failed, return None, so that it is retried."""
        with suppress(ValueError):
            outcome = unpack_outcome(self.kept(key) or b"")
            return None if outcome.row.status == "failed" else outcome
        return None

    def write_tables(self, deaths: Iterable[DeathRow], inputs: Iterable[InputRow]) -> None:
        """Write both tables again. Raises TableError if the tables cannot be written."""
        write_table(self.path / f"inputs.{self._form}", InputRow, inputs)
        write_table(self.path / f"deaths.{self._form}", DeathRow, deaths)

    def forget_others(self, keys: Collection[str]) -> None:
        """Remove the outcomes of all parts that are not in *keys*: their files or the rules have changed."""
        for path in self._parts.glob(f"*{_SUFFIX}"):
            if path.name.removesuffix(_SUFFIX) not in keys:
                path.unlink(missing_ok=True)


def rules_key(book: Rulebook) -> str:
    """Return a key that is equal for rulebooks that find the same."""
    return hashlib.sha256(f"{book.release}\n{book.causes!r}\n{book.landmarks!r}".encode()).hexdigest()


def part_key(part: Part, rules: str) -> str:
    """Return a key that is equal for parts with the same bytes, searched by the same rules."""
    file = part.file
    facts = (file.url, file.etag, file.size_bytes, file.modified_at, part.first_byte, part.end_byte)
    text = f"{OUTCOME_SCHEMA}\n{rules}\n{facts!r}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]
