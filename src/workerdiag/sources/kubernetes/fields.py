"""Reads fields of the API server's JSON (core/v1) without trusting its structure."""

from __future__ import annotations

import re

from workerdiag.units import parse_timestamp

#: ``resource.Quantity`` of apimachinery.
_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "m": 1e-3} | {
    f"{letter}i": 2 ** (10 * power) for power, letter in enumerate("KMGT", start=1)
}


def mapping_at(value: object, *keys: str) -> dict[str, object]:
    """Return the mapping below *keys*, or an empty one."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def mappings_at(value: object, key: str) -> list[dict[str, object]]:
    """Return the mappings in the list under *key*, or none."""
    found = value.get(key) if isinstance(value, dict) else None
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def text_at(value: object, key: str) -> str:
    """Return the text under *key*, or ""."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""


def time_at(value: object, key: str) -> float | None:
    """Return the time under *key* in seconds since the epoch, or None."""
    return parse_timestamp(text_at(value, key))


def parse_quantity(amount: object) -> int | None:
    """Return an amount such as ``350Mi`` in bytes, or None."""
    found = re.fullmatch(r"(\d{1,18}(?:\.\d{1,6})?)([A-Za-z]{0,2})", str(amount))
    if not found or found[2] not in _UNITS:
        return None
    return int(float(found[1]) * _UNITS[found[2]])
