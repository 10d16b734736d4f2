"""
Values of evidence as everything after it can have them, whoever made the evidence.

Text that UTF-8 cannot write, a time that is no number, an integer of 5,000 digits: each would end the stage
that meets it first. So the classes of evidence take them in as something harmless.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from workerdiag.errors import clean, worded

if TYPE_CHECKING:
    from attrs import Attribute

#: Larger integers are nobody's pid, status or number of bytes; and text of them can fail.
_MOST_INTEGER = 2**63
#: Seconds since the epoch of year 5138; a time behind it is none.
_MOST_SECONDS = 1e11
_MOST_CHARS = 4000


def plain(_: type, fields: list[Attribute[Any]]) -> list[Attribute[Any]]:
    """
    A ``field_transformer`` of attrs: fields for text, times and integers take only what can be shown.
    """
    return [
        each.evolve(converter=_CONVERTERS[str(each.type)])
        if each.converter is None and str(each.type) in _CONVERTERS
        else each
        for each in fields
    ]


def _text(value: Any) -> Any:
    if value is None or (type(value) is str and value.isascii()):  # nearly always, and often
        return value
    return clean(value) if isinstance(value, str) else value


def _texts(value: Any) -> Any:
    return tuple(map(_text, value)) if isinstance(value, tuple | list) else value


def _integer(value: Any) -> int | None:
    if not isinstance(value, int | float) or not abs(value) < _MOST_INTEGER or value != int(value):
        return None
    return int(value)


def _seconds(value: Any) -> float | None:
    if not isinstance(value, int | float) or not abs(value) < _MOST_SECONDS:  # a NaN is not less
        return None
    return value


def _fields(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return {}
    return {clean(key) if isinstance(key, str) else _shown(key): _flat(each) for key, each in value.items()}


def _flat(value: Any) -> str | int | float | bool | None:
    if isinstance(value, str):
        return clean(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < _MOST_INTEGER else None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return _shown(value)


def _shown(value: object) -> str:
    try:
        return clean(str(value))[:_MOST_CHARS]
    except Exception as problem:  # noqa: BLE001  values of foreign classes run foreign code
        return f"<{worded(problem)}>"


#: By the annotation of the field.
_CONVERTERS: Mapping[str, Callable[[Any], Any]] = {
    "str": _text,
    "str | None": _text,
    "tuple[str, ...]": _texts,
    "tuple[str, ...] | None": _texts,
    "int | None": _integer,
    "float | None": _seconds,
    "Mapping[str, str | int | float | bool | None]": _fields,
}
