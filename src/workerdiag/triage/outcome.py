"""
What was found in one part, as bytes that any later version can tell from its own.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal

from attrs import evolve, fields, frozen

from workerdiag.bundle.evidence_json import any_piece_from_dict, any_piece_to_dict
from workerdiag.model.diagnosis import Match
from workerdiag.model.evidence import Evidence, LogChunk
from workerdiag.model.identity import NO_IDENTITY, Identity
from workerdiag.serialization import strict_converter
from workerdiag.triage.rows import InputRow
from workerdiag.triage.versions import NO_VERSIONS, Versions

if TYPE_CHECKING:
    from cattrs import Converter

#: How outcomes are packed.
OUTCOME_SCHEMA: Final = 3
#: Packing harder takes longer than writing what it saves (zlib, level 1 to 9).
_PACKING = 1


@frozen(kw_only=True)
class PartIndex:
    """
    What tells which cluster run a text belongs to, and which versions ran there.
    """

    #: Addresses of schedulers and workers that the text names as its own, sorted.
    schedulers: tuple[str, ...] = ()
    workers: tuple[str, ...] = ()
    first_when: float | None = None
    last_when: float | None = None
    versions: Versions = NO_VERSIONS


@frozen(kw_only=True)
class PartOutcome:
    """
    What became of one part, without what was found in it.
    """

    row: InputRow
    index: PartIndex = PartIndex()
    #: Ends of lines between its first and its last byte: how many lines later parts are further down.
    newlines: int = 0
    #: Reports of deaths in it, for whoever watches the progress.
    reports: int = 0
    #: Reports of deaths of which only the first and the last are kept: there were too many.
    dropped_ends: int = 0
    #: What was found: matches in text, or what a container holds.
    holds: Literal["matches", "evidence"] = "matches"
    schema: int = OUTCOME_SCHEMA


def workers_of(pieces: Iterable[Evidence]) -> set[str]:
    """
    The addresses of the workers that the pieces are about.
    """
    identities = (getattr(each, "identity", NO_IDENTITY) for each in pieces)
    return {each.worker for each in identities if each.worker}


@cache
def _packer() -> Converter:
    return strict_converter("any", with_places=False)


#: Between the outcome and the matches in a file of both.
_BETWEEN: Final = b"\n"


#: What is kept of a match, beside its identity; its origin is the URL of the part.
_MATCH_FIELDS: Final = tuple(each.name for each in fields(Match) if each.name not in ("origin", "identity"))
_IDENTITY_FIELDS: Final = tuple(each.name for each in fields(Identity))


def pack(outcome: PartOutcome, outermost: Iterable[Match], near_ends: Iterable[Match]) -> bytes:
    """
    The outcome as a line of JSON, and behind it the packed matches: those that are only some, and all others.
    """
    of_match, of_identity = attrgetter(*_MATCH_FIELDS), attrgetter(*_IDENTITY_FIELDS)
    plain = [
        [(of_match(each), of_identity(each.identity)) for each in matches]
        for matches in (outermost, near_ends)
    ]
    if not any(plain):
        return pack_outcome(outcome)
    body = json.dumps(plain, separators=(",", ":"), default=dict).encode()
    return pack_outcome(outcome) + zlib.compress(body, _PACKING)


def pack_evidence(outcome: PartOutcome, pieces: Iterable[Evidence]) -> bytes:
    """
    The outcome of a container, and behind it what it holds.
    """
    body = json.dumps([any_piece_to_dict(each) for each in pieces], separators=(",", ":")).encode()
    return pack_outcome(evolve(outcome, holds="evidence")) + zlib.compress(body, _PACKING)


def pack_outcome(outcome: PartOutcome) -> bytes:
    """
    The outcome of a part in which nothing was found.
    """
    return json.dumps(_packer().unstructure(outcome)).encode() + _BETWEEN


def unpack_outcome(packed: bytes) -> PartOutcome:
    """
    The outcome.

    Raises:
        ValueError: The bytes are something else, or of another version.
    """
    try:
        outcome: PartOutcome = _packer().structure(json.loads(packed.partition(_BETWEEN)[0]), PartOutcome)
    except Exception as problem:
        raise ValueError("not the outcome of a part") from problem
    if outcome.schema != OUTCOME_SCHEMA:
        raise ValueError("the outcome of another version")
    return outcome


def unpack_evidence(packed: bytes, url: str) -> Iterator[Evidence]:
    """
    What the container *url* holds, its logs named after it.

    Raises:
        ValueError: The bytes are something else.
    """
    body = packed.partition(_BETWEEN)[2]
    try:
        for plain in json.loads(zlib.decompress(body)) if body else ():
            piece = any_piece_from_dict(plain)
            if isinstance(piece, LogChunk):
                piece = evolve(piece, origin=f"{url}: {piece.origin}")
            yield piece
    except Exception as problem:
        raise ValueError("not the outcome of a container") from problem


def unpack_matches(packed: bytes, url: str) -> tuple[list[Match], list[Match]]:
    """
    What was found in a part of the input *url*: the first and the last of each kind, and all near ends.

    Raises:
        ValueError: The bytes are something else.
    """
    body = packed.partition(_BETWEEN)[2]
    try:
        outermost, near_ends = json.loads(zlib.decompress(body)) if body else ((), ())
        return _matches(outermost, url), _matches(near_ends, url)
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
