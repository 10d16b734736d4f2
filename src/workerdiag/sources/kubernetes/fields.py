"""
Reading what the API server says (JSON of core/v1) without trust in its form.
"""

from __future__ import annotations

import re

from workerdiag.units import parse_timestamp

#: ``resource.Quantity`` of apimachinery.
_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "m": 1e-3} | {
    f"{letter}i": 2 ** (10 * power) for power, letter in enumerate("KMGT", start=1)
}


def mapping_at(value: object, *keys: str) -> dict[str, object]:
    """
    The mapping below *keys*; empty where there is none.
    """
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def mappings_at(value: object, key: str) -> list[dict[str, object]]:
    """
    The mappings in the list under *key*; empty where there is none.
    """
    found = value.get(key) if isinstance(value, dict) else None
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def text_at(value: object, key: str) -> str:
    """
    The text under *key*; empty where there is none.
    """
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""


def time_at(value: object, key: str) -> float | None:
    """
    The time under *key*, seconds since the epoch; None where there is none.
    """
    return parse_timestamp(text_at(value, key))


def parse_quantity(amount: object) -> int | None:
    """
    An amount such as ``350Mi`` in bytes, or None.
    """
    found = re.fullmatch(r"(\d{1,18}(?:\.\d{1,6})?)([A-Za-z]{0,2})", str(amount))
    if not found or found[2] not in _UNITS:
        return None
    return int(float(found[1]) * _UNITS[found[2]])
