"""The outcome of one part, packed as bytes that a later version can tell from its own format."""

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

#: Version of the packed format.
OUTCOME_SCHEMA: Final = 3
#: zlib level (1 to 9). A higher level costs more time than writing the bytes it saves.
_PACKING = 1


@frozen(kw_only=True)
class PartIndex:
    """Data that identifies the cluster run of a text, and the versions that ran there."""

    #: Addresses of the schedulers and workers of the cluster, as the text names them, sorted.
    schedulers: tuple[str, ...] = ()
    workers: tuple[str, ...] = ()
    first_when: float | None = None
    last_when: float | None = None
    versions: Versions = NO_VERSIONS


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
    #: What follows the outcome: matches in text, or the evidence in a container.
    holds: Literal["matches", "evidence"] = "matches"
    schema: int = OUTCOME_SCHEMA


def workers_of(pieces: Iterable[Evidence]) -> set[str]:
    """Return the addresses of the workers that the pieces are about."""
    identities = (getattr(each, "identity", NO_IDENTITY) for each in pieces)
    return {each.worker for each in identities if each.worker}


@cache
def _packer() -> Converter:
    return strict_converter("any", with_places=False)


#: Separator between the outcome and the matches in one file.
_BETWEEN: Final = b"\n"


#: Fields of a match that are kept besides its identity; its origin is the URL of the part.
_MATCH_FIELDS: Final = tuple(each.name for each in fields(Match) if each.name not in ("origin", "identity"))
_IDENTITY_FIELDS: Final = tuple(each.name for each in fields(Identity))


def pack(outcome: PartOutcome, outermost: Iterable[Match], near_ends: Iterable[Match]) -> bytes:
    """Pack the outcome as a line of JSON, then the first and last matches of each kind, then all near ends."""
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
    """Pack the outcome of a container, then its evidence."""
    body = json.dumps([any_piece_to_dict(each) for each in pieces], separators=(",", ":")).encode()
    return pack_outcome(evolve(outcome, holds="evidence")) + zlib.compress(body, _PACKING)


def pack_outcome(outcome: PartOutcome) -> bytes:
    """Pack the outcome of a part in which nothing was found."""
    return json.dumps(_packer().unstructure(outcome)).encode() + _BETWEEN


def unpack_outcome(packed: bytes) -> PartOutcome:
    """Unpack the outcome.

    Raises:
        ValueError: The bytes are no outcome, or have another version.
    """
    try:
        outcome: PartOutcome = _packer().structure(json.loads(packed.partition(_BETWEEN)[0]), PartOutcome)
    except Exception as problem:
        raise ValueError("not the outcome of a part") from problem
    if outcome.schema != OUTCOME_SCHEMA:
        raise ValueError("the outcome of another version")
    return outcome


def unpack_evidence(packed: bytes, url: str) -> Iterator[Evidence]:
    """Unpack the evidence of the container *url*, whose logs are named after it.

    Raises:
        ValueError: The bytes are in another format.
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
    """Unpack the matches of a part of the input *url*: the first and last of each kind, and all near ends.

    Raises:
        ValueError: The bytes are in another format.
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
