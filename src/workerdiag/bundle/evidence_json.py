"""Evidence as plain values and back, and what lies where in a bundle, up to which size.

What a newer version wrote is read as far as it is understood.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, get_args

from workerdiag.bundle.kept_evidence import KeptLog
from workerdiag.model.evidence import Evidence
from workerdiag.model.identity import Identity
from workerdiag.model.normalize import EventValue
from workerdiag.model.vocabulary import as_stream
from workerdiag.serialization import strict_converter

if TYPE_CHECKING:
    from cattrs import Converter

#: The classes of evidence by their names. A bundle keeps text log by log.
EVIDENCE_KINDS: Mapping[str, type[Evidence]] = {each.__name__: each for each in get_args(Evidence)}


class UnknownKindError(ValueError):
    """A piece is of a kind that this version does not know."""


def piece_to_dict(piece: Evidence) -> dict[str, object]:
    """A piece as dictionaries, lists, text and numbers, with its class under ``kind``; defaults are left out."""
    return {"kind": type(piece).__name__, **_evidence_converter().unstructure(piece)}


def piece_from_dict(plain: object) -> Evidence:
    """The piece that `piece_to_dict` made.

    Raises:
        UnknownKindError: It is of another kind.
        Exception: It has something else than it may have.
    """
    if not isinstance(plain, dict) or plain.get("kind") not in EVIDENCE_KINDS:
        raise UnknownKindError(str(plain.get("kind"))[:50] if isinstance(plain, dict) else "no object")
    return _evidence_converter().structure(plain, EVIDENCE_KINDS[plain["kind"]])


def log_to_dict(log: KeptLog, file: str, sizes: list[int]) -> dict[str, object]:
    """Everything about a log but its text, which is in *file*, in parts of these many bytes."""
    return {
        "kind": LOG_KIND,
        "file": file,
        "origin": log.origin,
        "stream": log.stream,
        "identity": _evidence_converter().unstructure(log.identity),
        "read_bytes": log.read_bytes,
        "parts": [
            {"first_line": part.first_line, "bytes": size} for part, size in zip(log.parts, sizes, strict=True)
        ],
    }


def log_from_dict(plain: Mapping[str, Any]) -> tuple[KeptLog, list[tuple[int, int]]]:
    """The log that `log_to_dict` described, without its text, and number of first line and bytes of its parts.

    Raises:
        Exception: It is described otherwise.
    """
    read = _evidence_converter().structure
    log = KeptLog(
        origin=read(plain["origin"], str),
        stream=as_stream(plain.get("stream")),
        identity=read(plain.get("identity") or {}, Identity),
        read_bytes=read(plain.get("read_bytes", 0), int),
    )
    return log, [
        (max(1, read(each["first_line"], int)), max(0, read(each["bytes"], int))) for each in plain["parts"]
    ]


@cache
def _evidence_converter() -> Converter:
    converter = strict_converter("any", with_places=False)
    # Events take any value in: what is nested becomes text there.
    converter.register_structure_hook_func(lambda hint: hint == EventValue, lambda value, _: value)
    as_text = converter.get_structure_hook(str)
    converter.register_unstructure_hook(bytes, lambda data: data.decode("utf-8", "surrogateescape"))
    converter.register_structure_hook(
        bytes, lambda value, _: as_text(value, str).encode("utf-8", "surrogateescape")
    )
    return converter


#: Shape of the bundle; one more whenever a reader could notice. Readers of an older number still try.
SCHEMA = 1
#: What ``manifest.json`` says under ``kind``: this, and no name of a file, makes a zip archive a bundle.
KIND = "workerdiag death bundle"

MANIFEST = "manifest.json"
DIAGNOSIS = "diagnosis.json"
EVIDENCE = "evidence.json"
VERSIONS = "versions.json"
CONFIGURATION = "configuration.json"
LOG = "logs/{number:04}.txt"

#: Value of ``kind`` for a log in ``evidence.json``; every other one is the name of an evidence class.
LOG_KIND = "Log"

#: Stands in a log's file where lines were left out.
LEFT_OUT = "[workerdiag: lines {first} to {last} were left out here]\n"

#: What a reader takes, in bytes unpacked: of one file, and of all together. A writer keeps 8 MiB,
#: of which 6 MiB are log text and 1 MiB are pieces.
MAX_FILE_BYTES = 8 * 2**20
MAX_BYTES = 24 * 2**20
MAX_FILES = 5_000
#: Commas and brackets in one JSON file: each can take some hundred bytes of memory.
MAX_JSON_MARKS = 500_000
#: Pieces of evidence, and parts of one log. A writer keeps 10,000 pieces.
MAX_PIECES = 20_000
MAX_PARTS = 10_000
