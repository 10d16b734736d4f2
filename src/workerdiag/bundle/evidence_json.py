"""Evidence as plain values and back. What a newer version wrote is read as far as it is understood."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, get_args

from workerdiag.model.evidence import Evidence
from workerdiag.model.normalize import EventValue
from workerdiag.serialization import strict_converter

if TYPE_CHECKING:
    from cattrs import Converter

#: The classes of evidence by their names. A bundle keeps text log by log.
EVIDENCE_KINDS: Mapping[str, type[Evidence]] = {each.__name__: each for each in get_args(Evidence)}


class UnknownKindError(ValueError):
    """A piece is of a kind that this version does not know."""


def piece_to_dict(piece: Evidence) -> dict[str, object]:
    """A piece as dictionaries, lists, text and numbers, with its class under ``kind``; defaults are left out."""
    return {"kind": type(piece).__name__, **evidence_converter().unstructure(piece)}


def piece_from_dict(plain: object) -> Evidence:
    """The piece that `piece_to_dict` made.

    Raises:
        UnknownKindError: It is of another kind.
        Exception: It has something else than it may have.
    """
    if not isinstance(plain, dict) or plain.get("kind") not in EVIDENCE_KINDS:
        raise UnknownKindError(str(plain.get("kind"))[:50] if isinstance(plain, dict) else "no object")
    return evidence_converter().structure(plain, EVIDENCE_KINDS[plain["kind"]])


@cache
def evidence_converter() -> Converter:
    """Return the converter of all evidence."""
    converter = strict_converter("any", with_places=False)
    # Events take any value in: what is nested becomes text there.
    converter.register_structure_hook_func(lambda hint: hint == EventValue, lambda value, _: value)
    as_text = converter.get_structure_hook(str)
    converter.register_unstructure_hook(bytes, lambda data: data.decode("utf-8", "surrogateescape"))
    converter.register_structure_hook(
        bytes, lambda value, _: as_text(value, str).encode("utf-8", "surrogateescape")
    )
    return converter
