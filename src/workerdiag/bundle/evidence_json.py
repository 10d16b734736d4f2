"""
Evidence as plain values, and back; what a newer version wrote is read as far as it is understood.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, cast, get_args

from attrs import fields, has

from workerdiag.bundle.layout import LOG_KIND
from workerdiag.bundle.retention.kept_evidence import KeptLog
from workerdiag.model.evidence import STREAMS, Event, Evidence
from workerdiag.model.identity import Identity

if TYPE_CHECKING:
    from cattrs import Converter

#: Evidence that is kept as a piece of its own; text is kept log by log.
EVIDENCE_KINDS: Mapping[str, type[Any]] = {
    each.__name__: each for each in get_args(Evidence) if each.__name__ != "LogChunk"
}
_MAX_INTEGER = 2**63
#: Seconds since the epoch of year 5138; a time behind it is none.
_MAX_SECONDS = 1e11


class UnknownKindError(ValueError):
    """
    A piece is of a kind that this version does not know.
    """


def piece_to_dict(piece: Evidence) -> dict[str, Any]:
    """
    A piece as dictionaries, lists, text and numbers, with its class under ``kind``; defaults are left out.
    """
    return {"kind": type(piece).__name__, **_evidence_converter().unstructure(piece)}


def piece_from_dict(plain: Any) -> Evidence:
    """
    The piece that `piece_to_dict` made.

    Raises:
        UnknownKindError: It is of another kind.
        Exception: It has something else than it may have.
    """
    if not isinstance(plain, dict) or plain.get("kind") not in EVIDENCE_KINDS:
        raise UnknownKindError(str(plain.get("kind"))[:50] if isinstance(plain, dict) else "no object")
    return cast("Evidence", _evidence_converter().structure(plain, EVIDENCE_KINDS[plain["kind"]]))


def log_to_dict(log: KeptLog, file: str, sizes: list[int]) -> dict[str, Any]:
    """
    Everything about a log but its text, which is in *file*, in parts of these many bytes.
    """
    return {
        "kind": LOG_KIND,
        "file": file,
        "origin": log.origin,
        "stream": log.stream,
        "identity": _evidence_converter().unstructure(log.identity),
        "read_bytes": log.read_bytes,
        "parts": [
            {"first_line": part.first_line, "bytes": size}
            for part, size in zip(log.parts, sizes, strict=True)
        ],
    }


def log_from_dict(plain: Mapping[str, Any]) -> tuple[KeptLog, list[tuple[int, int]]]:
    """
    The log that `log_to_dict` described, without its text, and number of first line and bytes of its parts.

    Raises:
        Exception: It is described otherwise.
    """
    number = _strict_integer
    log = KeptLog(
        origin=_strict_text(plain["origin"], str),
        stream=plain.get("stream") if plain.get("stream") in STREAMS else None,
        identity=_evidence_converter().structure(plain.get("identity") or {}, Identity),
        read_bytes=number(plain.get("read_bytes", 0), int),
    )
    return log, [
        (max(1, number(each["first_line"], int)), max(0, number(each["bytes"], int)))
        for each in plain["parts"]
    ]


@cache
def _evidence_converter() -> Converter:
    from cattrs import Converter
    from cattrs.gen import make_dict_unstructure_fn

    converter = Converter(detailed_validation=False, omit_if_default=True)
    converter.register_structure_hook(str, _strict_text)
    converter.register_structure_hook(bool, _strict_bool)
    converter.register_structure_hook(int, _strict_integer)
    converter.register_structure_hook(float, _strict_time)
    converter.register_unstructure_hook(float, lambda value: value if math.isfinite(value) else None)
    converter.register_structure_hook_factory(has, lambda cls: _structure_lenient(cls, converter))
    event = make_dict_unstructure_fn(Event, converter, _cattrs_omit_if_default=True)
    converter.register_unstructure_hook(
        Event,
        lambda piece: (
            event(piece) | {"fields": {str(key): _event_value(each) for key, each in piece.fields.items()}}
        ),
    )
    return converter


def _structure_lenient(cls: type[Any], converter: Converter) -> Callable[[Any, Any], Any]:
    """
    Structures objects; fields that the class does not have are passed over, ``null`` is the default.
    """
    import typing

    hints = typing.get_type_hints(cls)
    names = [each.name for each in fields(cls)]

    def structure(value: Any, _: Any) -> Any:
        if not isinstance(value, dict):
            raise TypeError("expected an object")
        given_fields = {name: value[name] for name in names if value.get(name) is not None}
        if cls is Event:
            flat = given_fields.pop("fields", {})
            given_fields["fields"] = {str(key): _event_value(each) for key, each in flat.items()}
            rest = {name: each for name, each in given_fields.items() if name != "fields"}
            return cls(fields=given_fields["fields"], **_structure_fields(rest, hints, converter))
        return cls(**_structure_fields(given_fields, hints, converter))

    return structure


def _structure_fields(
    given_fields: Mapping[str, Any], hints: Mapping[str, Any], converter: Converter
) -> dict[str, Any]:
    return {name: converter.structure(each, hints[name]) for name, each in given_fields.items()}


def _event_value(value: Any) -> str | int | float | bool | None:
    """
    A value of an event's field; what is nested becomes JSON text.
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return value if abs(value) < _MAX_INTEGER else str(value)[:100]
    return json.dumps(value, default=str)[:4000]


def _strict_text(value: Any, _: Any) -> str:
    if type(value) is not str:
        raise TypeError("expected text")
    return value


def _strict_bool(value: Any, _: Any) -> bool:
    if type(value) is not bool:
        raise TypeError("expected true or false")
    return value


def _strict_integer(value: Any, _: Any) -> int:
    if type(value) is not int or abs(value) >= _MAX_INTEGER:
        raise TypeError("expected an integer of 64 bits")
    return value


def _strict_time(value: Any, _: Any) -> float:
    if type(value) not in (int, float) or not abs(value) < _MAX_SECONDS:  # a NaN is not less
        raise TypeError("expected a finite number")
    return float(value)
