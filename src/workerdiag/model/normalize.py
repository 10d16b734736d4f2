"""Normalized values of evidence: no text that UTF-8 cannot write, and no integer of 5,000 digits, ends a stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import TYPE_CHECKING

from workerdiag.errors import describe_error, utf8_safe
from workerdiag.guard import guarded

if TYPE_CHECKING:
    from attrs import Attribute

#: What a field of an event may hold.
EventValue = str | int | float | bool | None
#: No pid, status or number of bytes is larger, and formatting larger integers can fail.
_MAX_INTEGER = 2**63


def normalize_fields(_: type, fields: list[Attribute[object]]) -> list[Attribute[object]]:
    """A ``field_transformer`` of attrs: fields for text, times and integers take only what can be shown."""
    found = []
    for each in fields:
        is_size = str(each.type) == "int | None" and each.name.endswith("_bytes")
        converter = _size_or_none if is_size else _CONVERTERS.get(str(each.type))
        found.append(each.evolve(converter=converter) if each.converter is None and converter else each)
    return found


def _clean_text(value: object) -> object:
    if value is None or (type(value) is str and value.isascii()):  # nearly always, and often
        return value
    return utf8_safe(value) if isinstance(value, str) else value


def _clean_texts(value: object) -> object:
    return tuple(map(_clean_text, value)) if isinstance(value, tuple | list) else value


def _int_or_none(value: object) -> int | None:
    if not isinstance(value, int | float) or not abs(value) < _MAX_INTEGER or value != int(value):
        return None
    return int(value)


def _size_or_none(value: object) -> int | None:
    """A number of bytes; negative ones, as of a damaged black box, become None."""
    number = _int_or_none(value)
    return None if number is None or number < 0 else number


def _time_or_none(value: object) -> float | None:
    if not isinstance(value, int | float) or not abs(value) < 1e11:  # the year 5138; a NaN is not less
        return None
    return value


def _clean_mapping(value: object) -> object:
    if not isinstance(value, Mapping):
        return {}
    return {
        utf8_safe(key) if isinstance(key, str) else _safe_str(key): _flat_value(each) for key, each in value.items()
    }


def _flat_value(value: object) -> EventValue:
    if isinstance(value, str):
        return utf8_safe(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < _MAX_INTEGER else None
    if isinstance(value, float):
        return value if isfinite(value) else None
    return _safe_str(value)


def _safe_str(value: object) -> str:
    with guarded("writing a value of a foreign class") as writing:
        return utf8_safe(str(value))[:4000]
    return f"<{describe_error(writing.problem)}>" if writing.problem is not None else ""


#: By the annotation of the field.
_CONVERTERS: Mapping[str, Callable[[object], object]] = {
    "str": _clean_text,
    "str | None": _clean_text,
    "tuple[str, ...]": _clean_texts,
    "tuple[str, ...] | None": _clean_texts,
    "int | None": _int_or_none,
    "float | None": _time_or_none,
    "Mapping[str, EventValue]": _clean_mapping,
}


def whole(text: str | None) -> int | None:
    """*text* as a whole number in plain digits, or None; no pid, status, count or size has more than 18."""
    if not text or len(text) > 18 or not (text.isascii() and text.isdigit()):
        return None
    return int(text)


def decimal(text: str | None) -> float | None:
    """*text* as a finite number, or None."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if isfinite(number) else None
