"""Redaction of secrets in objects of the model and in plain values; in bytes all line ends stay."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import cache
from operator import is_
from typing import Any, TypeVar, cast

from attrs import evolve, fields, has

from workerdiag.redaction.named_values import is_no_secret, is_secret_name
from workerdiag.redaction.secrets import HIDDEN, redact_text

T = TypeVar("T")

#: Of these none is a secret.
_PLAIN = frozenset({type(None), bool, int, float})


def redact_object(value: T) -> T:
    """The object without secrets in its texts and without values of secrets' names, at any depth.

    An object without secrets is returned itself; attributes that are no part of its value stay.
    """
    kind = type(value)
    if kind in _PLAIN or (kind is tuple and not value):  # as most are
        return value
    new = redact_text(value) if isinstance(value, str) else _redact_value(value)
    if new is value or (type(new) is type(value) and new == value):
        return value
    return cast("T", new)


def _redact_value(value: object) -> object:
    match value:
        case None | int() | float():
            return value
        case str():
            return redact_text(value)
        case bytes():
            text = value.decode("utf-8", "surrogateescape")
            return redact_text(text, keep_lines=True).encode("utf-8", "surrogateescape")
        case list() | tuple():
            elements = [redact_object(_redact_pair(each)) for each in value]
            return value if all(map(is_, elements, value)) else type(value)(elements)
    return _redact_mapping(value) if isinstance(value, Mapping) else map_fields(redact_object, value)


def _redact_mapping(value: Mapping[object, object]) -> object:
    return {
        _redact_value(key): _redact_field(str(key), each) for key, each in _redact_name_and_value(value).items()
    }


def map_fields(change: Callable[[object], object], value: T) -> T:
    """An object of attrs with each part of its value changed; any other object itself."""
    changes = {}
    for name, alias in _field_names(cast("Hashable", type(value))):
        old = getattr(value, name)
        if (new := change(old)) is not old:
            changes[alias] = new
    return cast("T", evolve(cast("Any", value), **changes)) if changes else value


@cache
def _field_names(kind: type[object]) -> tuple[tuple[str, str], ...]:
    """The names of a class's fields and of their arguments; none if it is not of attrs."""
    return tuple((each.name, each.alias or each.name) for each in fields(kind) if each.eq) if has(kind) else ()


def _redact_field(name: str, value: object) -> object:
    return HIDDEN if _is_secret(name, value) else redact_object(value)


def _is_secret(name: str, value: object) -> bool:
    if not is_secret_name(name.strip("-.")) or value is None or isinstance(value, bool):
        return False
    return bool(value) if isinstance(value, Mapping | list | tuple) else not is_no_secret(name, str(value))


def _redact_name_and_value(value: Mapping[object, object]) -> Mapping[object, object]:
    """The mapping with the value of ``{"name": "DB_PASSWORD", "value": "x"}`` hidden."""
    name = next((each for key in ("name", "key", "Name", "Key") if isinstance(each := value.get(key), str)), "")
    hidden: dict[object, object] = {
        key: HIDDEN for key in ("value", "Value") if key in value and _is_secret(name, value[key])
    }
    return {**value, **hidden} if hidden else value


def _redact_pair(value: object) -> object:
    """An element; if it is a pair of a secret's name and its value, with the value hidden."""
    match value:
        case (str(name), str(said) | bytes(said)) if isinstance(value, list | tuple):
            return type(value)((name, _redact_field(name, said)))
    return value
