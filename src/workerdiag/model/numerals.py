"""
Numbers in text that others wrote: a log may say anything where a number belongs.
"""

from __future__ import annotations

from math import isfinite

#: No pid, status, count or size has more digits; Python itself refuses to read some thousands of them.
_MOST_DIGITS = 18


def whole(text: str | None) -> int | None:
    """
    The whole number that *text* is, in plain digits; None if it is none, or none of this world.
    """
    if not text or len(text) > _MOST_DIGITS or not (text.isascii() and text.isdigit()):
        return None
    return int(text)


def decimal(text: str | None) -> float | None:
    """
    The number that *text* is; None if it is none, or is not finite.
    """
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if isfinite(number) else None
