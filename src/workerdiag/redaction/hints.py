"""
Where a secret may be: one pass over the text for all that can begin or name one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from workerdiag.redaction.token_shapes import INNER_HINTS, PREFIXES

try:
    import re2

    if not hasattr(re2, "Options"):  # another package of that name (pyre2, fb-re2)
        re2 = None
except ImportError:  # no wheel for this platform: `re` stands in, at a tenth of the speed
    re2 = None

#: What names of secrets have in them.
_WORDS = "pass|pwd|secret|token|key|cookie|cred|auth|jwt|sess(?:ion)?_?id|signature|sig="
#: Such a name, and behind it what may give it a value: a quote, a sign, a blank after an option.
_NAMES = (
    rf"(?:{_WORDS})[\w.-]*(?:[\"'`\\?&\])><]|\s{{0,20}}[=:%]|[,;]?\s{{0,80}}.{{0,3}}value)"
    rf"|(?:pass|pwd)[\w.-]*\s"
    rf"|-[\w.-]*(?:{_WORDS})[\w.-]*\s"
    rf"|<[\w.:-]*(?:{_WORDS})[\w.-]*[\s<]"
)
#: A URL with a user, maybe; and one that has lost its scheme.
_URLS = r"://[^\s@]*@|/[\w.-]{1,64}:[^\s@/:]{1,200}@"
#: Programs that take a secret with an option of one letter.
PROGRAMS = tuple("curl mysql mariadb sshpass login mongo redis-cli ldap smbclient zip 7z".split())
#: In RE2's language: such options, queries of URLs, schemes, keys in PEM.
_OTHERS = (
    r"[\s\"'(\[,]-[upaw]",
    r"[\s\"']--?(?:proxy-)?user\b",
    r"\?[\w.%~\[\]-]{1,64}=",
    r"bearer\s",
    r"basic\s",
    "-----begin ",
    "-----end ",
    "identified by",
    "private-lines:",
)
_KEY_LINES = "[a-z0-9+/]{64}"
_FIXED = sorted({*PREFIXES, *PROGRAMS}, key=lambda each: (-len(each), each))
_TOKEN_HINTS = "|".join((*(each.hint for each in INNER_HINTS), *_OTHERS, *map(re.escape, _FIXED)))


def searchable(text: str) -> bytes:
    """
    The *text* as the functions below want it: a byte for each character, so that places are the same.

    Characters that are not ASCII begin no secret.
    """
    return text.encode("ascii", "replace").lower()


def name_hints(data: bytes, begin: int = 0) -> Iterator[tuple[int, str]]:
    """
    Each place where the word stands that makes a name that of a secret, and how it goes on.
    """
    return _hints(_engine(_NAMES), data, begin)


def url_hints(data: bytes, begin: int = 0) -> Iterator[tuple[int, str]]:
    """
    Each place where the host of a URL may have a user before it.
    """
    return _hints(_engine(_URLS), data, begin)


def token_hints(data: bytes, begin: int = 0) -> Iterator[tuple[int, str]]:
    """
    Each place where something stands that looks like a secret, or may come before one.
    """
    return _hints(_engine(_TOKEN_HINTS), data, begin)


def key_line_hints(data: bytes, begin: int = 0) -> Iterator[tuple[int, str]]:
    """
    Each place where a line of a private key may begin.
    """
    return _hints(_engine(_KEY_LINES), data, begin)


def may_hold(data: bytes) -> bool:
    """
    Whether there is any such place.
    """
    return _engine(f"{_NAMES}|{_URLS}|{_TOKEN_HINTS}|{_KEY_LINES}").search(data) is not None


def _hints(engine: Any, data: bytes, begin: int) -> Iterator[tuple[int, str]]:
    for found in engine.finditer(data, begin):
        at, end = found.span()
        yield at, data[at:end].decode("ascii")


@cache
def _engine(shape: str) -> Any:
    return (re2 or re).compile(shape.encode())


# RE2 locks what a pattern has learnt; where a thread held such a lock at a fork, nobody lets go of it.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_engine.cache_clear)
