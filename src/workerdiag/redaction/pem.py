"""
Private keys as PEM, OpenSSH, PGP and PuTTY write them, whole or cut off.
"""

from __future__ import annotations

import re

_BEGINS = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_ENDS = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_MAX_CHARS = 16_000
#: What a key is made of, with the marks that programs put before lines.
_BODY = re.compile(r"(?:\s*(?:Proc-Type|DEK-Info):[^\n]{0,200})?[A-Za-z0-9+/=\s\\|>]{0,16000}")
_PUTTY = re.compile(r"(?i)private-lines:\s{0,4}\d{1,4}[\sA-Za-z0-9+/=\\]{16,8000}")


def key_from(text: str, at: int, ends: int) -> tuple[int, int] | None:
    """
    From where to where the key goes whose first line begins at *at*.

    Args:
        text: The text.
        at: Where ``-----BEGIN`` stands.
        ends: Where the next ``-----END`` stands; -1: nowhere.
    """
    begins = _BEGINS.match(text, at)
    if begins is None:
        return None
    if at < ends <= at + _MAX_CHARS and (end := _ENDS.match(text, ends)):
        return at, end.end()
    body = _BODY.match(text, begins.end())
    end_at = body.end() if body else begins.end()
    return at, begins.end() + len(text[begins.end() : end_at].rstrip())


def key_until(text: str, at: int, begins: int) -> tuple[int, int] | None:
    """
    From where to where the key goes whose last line begins at *at*, after what is hidden up to *begins*.
    """
    end = _ENDS.match(text, at)
    if end is None:
        return None
    before = text[max(begins, at - _MAX_CHARS) : at]
    before_key = before.rstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=\r\n\\")
    start = at - (len(before) - len(before_key))
    start += len(text[start:at]) - len(text[start:at].lstrip())
    return start, end.end()


def putty_at(text: str, at: int) -> tuple[int, int] | None:
    """
    From where to where the private lines of a key of PuTTY go.
    """
    found = _PUTTY.match(text, at)
    return found.span() if found else None
