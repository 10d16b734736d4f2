"""Where a secret may be: one pass over the text for all that can begin or name one.

Where hints are so dense that nearly everything may be a secret, the stretch is hidden whole, and not read
place by place: no person reads it, and to look closely at a hundred thousand places in 1 MiB takes seconds.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
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
#: A window is hidden with more hints than one in 8 characters, or more values than one in 64.
WINDOW_CHARS = 16 * 1024
MOST_WORK = WINDOW_CHARS // 8
#: What reading a value takes, where looking at a hint takes 1.
_READING = 7
#: Maximum distance of related text before a place, in characters.
_BEFORE_CHARS = 200
#: Where one may read on: behind the end of a line, a message of a log with its date.
_MESSAGE = re.compile(r"[\r\n](?=\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d)")
#: Gives from a place on what may be or name a secret: where it stands, and how it begins.
Hints = Callable[[int], Iterator[tuple[int, str]]]


def searchable(text: str) -> bytes:
    """The *text* as a byte for each character, so that places are the same. Only ASCII begins a secret."""
    return text.encode("ascii", "replace").lower()


def name_hints(data: bytes, begin: int = 0) -> Iterator[tuple[int, str]]:
    """Yield each place of a word that makes a name the name of a secret, with its continuation."""
    return _hints(_engine(_NAMES), data, begin)


def url_hints(data: bytes, begin: int = 0) -> Iterator[tuple[int, str]]:
    """Each place where the host of a URL may have a user before it."""
    return _hints(_engine(_URLS), data, begin)


def token_hints(data: bytes, begin: int = 0) -> Iterator[tuple[int, str]]:
    """Each place where something stands that looks like a secret, or may come before one."""
    return _hints(_engine(_TOKEN_HINTS), data, begin)


def key_line_hints(data: bytes, begin: int = 0) -> Iterator[tuple[int, str]]:
    """Each place where a line of a private key may begin."""
    return _hints(_engine(_KEY_LINES), data, begin)


def may_hold(data: bytes) -> bool:
    """Whether any hint stands in the text."""
    return _engine(f"{_NAMES}|{_URLS}|{_TOKEN_HINTS}|{_KEY_LINES}").search(data) is not None


def _hints(engine: re.Pattern[bytes], data: bytes, begin: int) -> Iterator[tuple[int, str]]:
    for found in engine.finditer(data, begin):
        at, end = found.span()
        yield at, data[at:end].decode("ascii")


@cache
def _engine(shape: str) -> Any:
    return (re2 or re).compile(shape.encode())


# RE2 locks what a pattern has learnt; where a thread held such a lock at a fork, nobody lets go of it.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_engine.cache_clear)


class DenseStretches:
    """The dense stretches of one text, found while its hints are read; *most_work* is the limit per window."""

    def __init__(self, text: str, *, most_work: float = MOST_WORK) -> None:
        self._text = text
        self._most = most_work
        #: What was done, by window.
        self._work: Counter[int] = Counter()
        #: Begin and end of each, by the window that it begins in.
        self.stretches: dict[int, tuple[int, int]] = {}

    def outside(self, hints: Hints) -> Iterator[tuple[int, str]]:
        """Yield the *hints* outside of dense stretches; too many of them form one."""
        begin = 0
        while begin < len(self._text):
            begin, resume = len(self._text), begin
            for at, hint in hints(resume):
                window = at // WINDOW_CHARS
                self._work[window] += 1
                if self._work[window] > self._most:
                    begin = self._hidden_until(window)
                    break
                yield at, hint

    def read(self, at: int) -> None:
        """Count that there was more to do at a place than to look at its hint."""
        self._work[at // WINDOW_CHARS] += _READING

    def _hidden_until(self, window: int) -> int:
        if window not in self.stretches:
            start = max(0, window * WINDOW_CHARS - _BEFORE_CHARS)
            message = _MESSAGE.search(self._text, (window + 1) * WINDOW_CHARS)
            self.stretches[window] = start, message.start() if message else len(self._text)
        return self.stretches[window][1]
