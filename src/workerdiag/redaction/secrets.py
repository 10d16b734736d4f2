"""Hides what looks like a secret before a report can leak it.

Reports go into chats, tickets and bug trackers; log lines, commands and error messages hold passwords and keys.
Hidden is the value; the name before it stays, as it may be the clue. One pass finds all that can begin or name a
secret. A stretch in which nearly everything may be one is hidden whole: to look closely at a hundred thousand
places in 1 MiB takes seconds.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from math import inf
from typing import Any

from workerdiag.redaction.named_values import HIDDEN, name_at, value_of
from workerdiag.redaction.tokens import (
    INNER_HINTS,
    PREFIXES,
    Userinfo,
    key_from,
    key_line_at,
    key_until,
    putty_at,
    query_at,
    token_around,
    token_at,
)
from workerdiag.redaction.visible_text import quoted_span, visible_text

__all__ = ["HIDDEN", "redact_text"]

Span = tuple[int, int]

#: What stands beside something hidden may belong to it; mostly the second pass finds nothing more. Only the
#: first has to look for stretches that are too dense: it leaves none.
_MORE_PASSES = (inf, inf, inf)

#: Short texts that were found to have no secret: each report says the same of a cause, again and again.
_HARMLESS: set[str] = set()
_MOST_HARMLESS, _HARMLESS_CHARS = 2000, 400

_BEARER = re.compile(r"(?i)(?<![\w-])bearer\s{1,4}((?=\S{0,60}[\d._=+/A-Z])[\w.~+/=-]{6,}|[\w-]{20,})")
_BASIC = re.compile(r"(?<![\w-])(?i:basic)\s{1,4}((?=\S{0,60}[A-Z])(?=\S{0,60}[a-z])[A-Za-z0-9+/]{8,}={0,2})")
_IDENTIFIED = re.compile(r"(?i)identified by (?:password )?(?=[\"'`\\])")


def redact_text(text: str, *, keep_lines: bool = False) -> str:
    """The *text* with what looks like a password, key or token hidden; *keep_lines* keeps its line ends.

    Takes time linear in the length of the text and returns at most eight times as many characters. Escapes
    and invisible characters hide no secret. Where nearly everything may be a secret, 16 KiB and more are
    hidden, up to the next message with a date.
    """
    if text in _HARMLESS:
        return text
    given = text
    for most_work in (MOST_WORK, *_MORE_PASSES):
        hidden = _redact_once(text, keep_lines=keep_lines, most_work=most_work)
        if hidden == text:
            break
        text = hidden
    if text == given and len(text) <= _HARMLESS_CHARS:
        if len(_HARMLESS) >= _MOST_HARMLESS:
            _HARMLESS.clear()
        _HARMLESS.add(text)
    return text


def _redact_once(text: str, *, keep_lines: bool, most_work: float) -> str:
    seen = visible_text(text)
    data = seen.text.encode("ascii", "replace").lower()  # one byte per character; only ASCII begins a secret
    if _engine(f"{_NAMES}|{_URLS}|{_TOKEN_HINTS}|{_KEY_LINES}").search(data) is None:
        return text
    parts: list[str] = []
    done = 0
    for begin, end in _merge_spans(_secret_spans(seen.text, data, most_work)):
        start, stop = seen.written_at(begin, end)
        lines = text.count("\n", start, stop) if keep_lines else 0
        parts += (text[done:start], HIDDEN, "\n" * lines)
        done = stop
    return "".join((*parts, text[done:])) if parts else text


def _merge_spans(spans: Iterable[Span]) -> Iterator[Span]:
    whole: Span | None = None
    for begin, end in sorted(spans):
        if whole is None:
            whole = begin, end
        elif begin <= whole[1]:
            whole = whole[0], max(whole[1], end)
        else:
            yield whole
            whole = begin, end
    if whole is not None:
        yield whole


def _secret_spans(text: str, data: bytes, most_work: float) -> Iterator[Span]:
    dense = DenseStretches(text, most_work=most_work)
    yield from _named_value_spans(text, dense, partial(name_hints, data))
    yield from _url_spans(text, dense, partial(url_hints, data))
    for at, _ in dense.outside(partial(key_line_hints, data)):
        yield from key_line_at(text, at)
    yield from _TokenScanner(text, dense).spans(partial(token_hints, data))
    yield from dense.stretches.values()


def _named_value_spans(text: str, dense: DenseStretches, hints: Hints) -> Iterator[Span]:
    done = 0
    for at, hint in dense.outside(hints):
        if at < done:
            continue
        done, name = name_at(text, at, hint)
        if name is not None:
            dense.read(at)
            if (span := value_of(text, name)) and span[0] < span[1]:
                done = span[1]
                yield span


def _url_spans(text: str, dense: DenseStretches, hints: Hints) -> Iterator[Span]:
    done = 0
    userinfo = Userinfo(text)
    for at, hint in dense.outside(hints):
        if at >= done:
            done, found = userinfo.at(at, at + (3 if hint[0] == ":" else 1))
            dense.read(at)
            yield from found


class _TokenScanner:
    """Finds secrets by their form, or by the program or the scheme before them."""

    def __init__(self, text: str, dense: DenseStretches) -> None:
        self._text = text
        self._dense = dense
        #: Everything before it is hidden or no secret.
        self._done = 0
        self._program: tuple[str, int] | None = None
        self._key_ends = -2

    def spans(self, hints: Hints) -> Iterator[Span]:
        for at, hint in self._dense.outside(hints):
            if at < self._done:
                continue
            for begin, end in self._at(at, hint):
                self._dense.read(at)
                self._done = max(self._done, end)
                if begin < end:
                    yield begin, end

    def _at(self, at: int, hint: str) -> list[Span]:
        text = self._text
        if hint[0] == "?":
            self._done, found = query_at(text, at)
            return found
        if hint in PROGRAMS:
            self._program = hint, at
            return []
        if hint[0].isspace() or hint[0] in "\"'([,":
            return self._option(at + 1)
        if hint in {"-----begin ", "-----end ", "private-lines:", "identified by"}:
            return _as_list(self._marked(at, hint))
        return self._token_at(at, hint)

    def _token_at(self, at: int, hint: str) -> list[Span]:
        text = self._text
        if hint in PREFIXES:
            return token_at(text, at, hint)
        if hint[0] == "b":
            found = _BEARER.match(text, at) or _BASIC.match(text, at)
            return [found.span(1)] if found else []
        return token_around(text, at + len(hint) - 2 if hint[-2:] == "==" else at)

    def _option(self, at: int) -> list[Span]:
        if self._program is None:
            return []
        program, begins = self._program
        if at - begins > MAX_CHARS or "\n" in self._text[begins:at]:
            self._program = None
            return []
        return _as_list(option_at(self._text, at, program))

    def _marked(self, at: int, hint: str) -> Span | None:
        if hint == "identified by":
            return _identified_by(self._text, at)
        if hint == "-----begin ":
            if self._key_ends != -1 and self._key_ends < at:
                self._key_ends = self._text.find("-----END ", at)
            return key_from(self._text, at, self._key_ends)
        return key_until(self._text, at, self._done) if hint == "-----end " else putty_at(self._text, at)


def _identified_by(text: str, at: int) -> Span | None:
    """The password of ``CREATE USER x IDENTIFIED BY 'password'``."""
    named = _IDENTIFIED.match(text, at)
    string = quoted_span(text, named.end()) if named else None
    return None if string is None or text[string[0] : string[1]] == HIDDEN else string[:2]


def _as_list(span: Span | None) -> list[Span]:
    return [] if span is None else [span]


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


def _hints(shape: str, data: bytes, begin: int = 0) -> Iterator[tuple[int, str]]:
    for found in _engine(shape).finditer(data, begin):
        at, end = found.span()
        yield at, data[at:end].decode("ascii")


#: The places of names of secrets, of URLs with a user, of what looks like a secret or comes before one, and of
#: lines of private keys.
name_hints, url_hints, token_hints, key_line_hints = (
    partial(_hints, shape) for shape in (_NAMES, _URLS, _TOKEN_HINTS, _KEY_LINES)
)


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


#: Options stand at most this far from the program's name, in the same line.
MAX_CHARS = 600
#: For each program its options, and how their values are written.
_OPTIONS: Mapping[str, re.Pattern[str]] = {
    "curl": re.compile(r"(?:-[a-zA-Z]{0,6}[uU]|--user|--proxy-user)(?=\W|\w+:)"),
    "mysql": re.compile(r"-p(?=\S)"),
    "mariadb": re.compile(r"-p(?=\S)"),
    "sshpass": re.compile(r"-p"),
    "login": re.compile(r"-p(?=\s|[\"'],)"),
    "mongo": re.compile(r"-p(?=\s|[\"'],)"),
    "redis-cli": re.compile(r"-a(?=\s|[\"'],)"),
    "ldap": re.compile(r"-w(?=\s|[\"'],)"),
    "smbclient": re.compile(r"-U(?=\s|[\"'],)"),
    "zip": re.compile(r"-P"),
    "7z": re.compile(r"-p"),
}
_BETWEEN = re.compile(r"(?:[\"'],\s?|=|\s{1,4})?")
_VALUE_END = re.compile(r"[\s\"']")


def option_at(text: str, at: int, program: str) -> tuple[int, int] | None:
    """The span to hide behind the option that begins at *at*, if it is one of *program* that takes a secret."""
    option = _OPTIONS[program].match(text, at)
    if option is None:
        return None
    between = _BETWEEN.match(text, option.end())
    begin = between.end() if between else option.end()
    if string := quoted_span(text, begin):
        begin, end, _ = string
    else:
        stop = _VALUE_END.search(text, begin)
        end = stop.start() if stop else len(text)
    if program in {"curl", "smbclient"}:  # ``user:password``, ``user%password``
        cut = text.find(":" if program == "curl" else "%", begin, end)
        begin = cut + 1 if cut >= 0 else end
    value = text[begin:end]
    return None if value in {"", HIDDEN} or value.startswith("-") else (begin, end)
