"""
Secrets in values of any shape: objects of the model, and what JSON is made of.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, cast

from attrs import evolve, fields, has

from workerdiag.redaction.secret_names import is_secret_name
from workerdiag.redaction.secrets import HIDDEN, redacted
from workerdiag.redaction.values import is_no_secret

T = TypeVar("T")


def redacted_object(value: T) -> T:
    """
    The same object without the secrets in its texts, and without the values of secrets' names, at any depth.

    What is no part of its value stays; an object without secrets is returned itself.
    """
    new = _redacted(value)
    return value if type(new) is type(value) and new == value else cast("T", new)


def _redacted(value: Any) -> Any:
    match value:
        case str():
            return redacted(value)
        case bytes():
            text = value.decode("utf-8", "surrogateescape")
            return redacted(text, keep_lines=True).encode("utf-8", "surrogateescape")
        case Mapping():
            return {_redacted(key): _named(str(key), each) for key, each in _told(value).items()}
        case list() | tuple():
            return type(value)(redacted_object(_pair(each)) for each in value)
    return _evolved(value) if has(type(value)) else value


def _evolved(value: Any) -> Any:
    changes = {}
    for each in fields(type(value)):
        old = getattr(value, each.name)
        if each.eq and (new := redacted_object(old)) is not old:
            changes[each.alias or each.name] = new
    return evolve(value, **changes) if changes else value


def _named(name: str, value: Any) -> Any:
    return HIDDEN if _is_secret(name, value) else redacted_object(value)


def _is_secret(name: str, value: Any) -> bool:
    if not is_secret_name(name.strip("-.")) or value is None or isinstance(value, bool):
        return False
    return bool(value) if isinstance(value, Mapping | list | tuple) else not is_no_secret(name, str(value))


def _told(value: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """
    The mapping, with what ``{"name": "DB_PASSWORD", "value": "x"}`` tells hidden.
    """
    name = next(
        (each for key in ("name", "key", "Name", "Key") if isinstance(each := value.get(key), str)), ""
    )
    hidden = {key: HIDDEN for key in ("value", "Value") if key in value and _is_secret(name, value[key])}
    return {**value, **hidden} if hidden else value


def _pair(value: Any) -> Any:
    """
    One of several elements; of a name and its value, the value hidden.
    """
    match value:
        case (str(name), str(said) | bytes(said)) if isinstance(value, list | tuple):
            return type(value)((name, _named(name, said)))
    return value
