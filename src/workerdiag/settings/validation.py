"""
Whether a value is one that the schema allows, and how to say what it allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Required, TypedDict
from urllib.parse import urlsplit

from workerdiag.units import parse_duration

#: Our name in the schema for durations as Dask writes them.
DURATION = "duration-of-dask"
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}


class Rule(TypedDict, total=False):
    """
    The entry of one setting in the schema.
    """

    type: Required[str | list[str]]
    enum: list[str | None]
    format: str
    minimum: float
    exclusiveMinimum: float


_NAMES = {"string": "a text", "integer": "a whole number", "number": "a number"}


def is_allowed(value: object, rule: Rule) -> bool:
    """
    Whether *value* fits the entry of a setting in the schema.
    """
    if "enum" in rule:
        return value in rule["enum"]
    if isinstance(value, bool) or not isinstance(value, _classes(rule)):
        return False
    if value is None:
        return True
    if rule.get("format") == DURATION:
        return _is_within(_duration_s(value), rule)
    if rule.get("format") == "url":
        return _is_web_address(str(value))
    return not isinstance(value, int | float) or _is_within(value, rule)


def allowed_text(rule: Rule) -> str:
    """
    What `is_allowed` accepts, as the end of a sentence.
    """
    if "enum" in rule:
        return " or ".join("null" if each is None else str(each) for each in rule["enum"])
    limits = _limits_text(rule)
    if rule.get("format") == DURATION:
        return f"a duration like 10s, 5m or 4h{limits}"
    names = [_NAMES[each] for each in _types(rule) if each in _NAMES]
    if rule.get("format") == "url":
        names = ["an address that begins with http:// or https://"]
    return " or ".join([*names, *(["null"] if "null" in _types(rule) else [])]) + limits


def _types(rule: Rule) -> list[str]:
    named = rule["type"]
    return [named] if isinstance(named, str) else named


def _classes(rule: Rule) -> tuple[type, ...]:
    return tuple(each for name in _types(rule) for each in _TYPES[name])


def _duration_s(value: object) -> float:
    """
    A duration in seconds; a number that is within no limits if it is none.
    """
    try:
        return parse_duration(str(value))
    except ValueError:
        return float("nan")


def _is_within(number: float, rule: Rule) -> bool:
    above = rule.get("exclusiveMinimum", float("-inf"))
    return bool(number >= rule.get("minimum", float("-inf")) and above < number < float("inf"))


def _limits_text(rule: Rule) -> str:
    if "exclusiveMinimum" in rule:
        return f", more than {rule['exclusiveMinimum']}"
    return f", at least {rule['minimum']}" if "minimum" in rule else ""


def _is_web_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc)
