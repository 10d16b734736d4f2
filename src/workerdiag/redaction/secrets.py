"""Hides what looks like a secret before a report can leak it.

Reports go into chats, tickets and bug trackers; log lines, commands and error messages hold passwords and keys.
Hidden is the value; the name before it stays, as it may be the clue. One pass finds all that can begin or name a
secret; only there one looks closer.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from workerdiag.redaction.named_values import HIDDEN, name_at, value_of
from workerdiag.redaction.tokens import (
    INNER_HINTS,
    PREFIXES,
    key_from,
    key_line_at,
    key_until,
    putty_at,
    query_at,
    token_around,
    token_at,
    userinfo_at,
)
from workerdiag.redaction.visible_text import quoted_span, visible_text

__all__ = ["HIDDEN", "redact_text"]

Span = tuple[int, int]

#: What stands beside something hidden may belong to it; mostly the second pass finds nothing more.
_MOST_PASSES = 4

#: Short texts that were found to have no secret: each report says the same of a cause, again and again.
_HARMLESS: set[str] = set()
_MOST_HARMLESS, _HARMLESS_CHARS = 2000, 400

_BEARER = re.compile(r"(?i)(?<![\w-])bearer\s{1,4}((?=\S{0,60}[\d._=+/A-Z])[\w.~+/=-]{6,}|[\w-]{20,})")
_BASIC = re.compile(r"(?<![\w-])(?i:basic)\s{1,4}((?=\S{0,60}[A-Z])(?=\S{0,60}[a-z])[A-Za-z0-9+/]{8,}={0,2})")
_IDENTIFIED = re.compile(r"(?i)identified by (?:password )?(?=[\"'`\\])")


def redact_text(text: str, *, keep_lines: bool = False) -> str:
    """The *text* with what looks like a password, key or token hidden; *keep_lines* keeps its line ends.

    Takes time linear in the length of the text and returns at most eight times as many characters. Escapes and
    invisible characters hide no secret; they are left out of a text in which one is hidden.
    """
    if text in _HARMLESS:
        return text
    given = text
    for _ in range(_MOST_PASSES):
        hidden = _redact_once(text, keep_lines=keep_lines)
        if hidden == text:
            break
        text = hidden
    if text == given and len(text) <= _HARMLESS_CHARS:
        if len(_HARMLESS) >= _MOST_HARMLESS:
            _HARMLESS.clear()
        _HARMLESS.add(text)
    return text


def _redact_once(given: str, *, keep_lines: bool) -> str:
    text = visible_text(given)
    data = text.encode("ascii", "replace").lower()  # one byte per character; only ASCII begins a secret
    if _engine(f"{_NAMES}|{_URLS}|{_TOKEN_HINTS}|{_KEY_LINES}").search(data) is None:
        return given
    parts: list[str] = []
    done = 0
    for begin, end in sorted(_secret_spans(text, data)):
        if begin > done or not parts:
            parts += (text[done:begin], HIDDEN)
            done = begin
        if end > done:
            parts.append("\n" * text.count("\n", done, end) * keep_lines)
            done = end
    return "".join((*parts, text[done:])) if parts else given


def _secret_spans(text: str, data: bytes) -> Iterator[Span]:
    yield from _named_value_spans(text, data)
    yield from _url_spans(text, data)
    for at, _ in _hints(_KEY_LINES, data):
        yield from key_line_at(text, at)
    yield from _token_spans(text, data)


def _named_value_spans(text: str, data: bytes) -> Iterator[Span]:
    done = 0
    for at, hint in _hints(_NAMES, data):
        if at < done:
            continue
        done, name = name_at(text, at, hint)
        if name is not None and (span := value_of(text, name)) and span[0] < span[1]:
            done = span[1]
            yield span


def _url_spans(text: str, data: bytes) -> Iterator[Span]:
    done = 0
    for at, hint in _hints(_URLS, data):
        if at >= done:
            done, found = userinfo_at(text, at, at + (3 if hint[0] == ":" else 1))
            yield from found


def _token_spans(text: str, data: bytes) -> Iterator[Span]:
    """Find secrets by their form, or by the program or the scheme before them."""
    done = 0  # everything before it is hidden or no secret
    for at, hint in _hints(_TOKEN_HINTS, data):
        if at < done:
            continue
        if hint[0] == "?":
            done, found = query_at(text, at)
        else:
            found = [span for span in _tokens_at(text, at, hint, done) if span and span[0] < span[1]]
        for span in found:
            done = max(done, span[1])
            yield span


def _tokens_at(text: str, at: int, hint: str, done: int) -> Sequence[Span | None]:
    if hint in PREFIXES:
        return token_at(text, at, hint)
    if marked := _MARKED.get(hint):
        return [marked(text, at)]
    if hint == "-----end ":
        return [key_until(text, at, done)]
    if hint[0].isspace() or hint[0] in "\"'([,":
        return [_option_value(text, at + 1)]
    if hint[0] == "b":
        found = _BEARER.match(text, at) or _BASIC.match(text, at)
        return [found.span(1)] if found else []
    return token_around(text, at + len(hint) - 2 if hint[-2:] == "==" else at)


def _identified_by(text: str, at: int) -> Span | None:
    """The password of ``CREATE USER x IDENTIFIED BY 'password'``."""
    named = _IDENTIFIED.match(text, at)
    string = quoted_span(text, named.end()) if named else None
    return None if string is None or text[string[0] : string[1]] == HIDDEN else string[:2]


_MARKED: Mapping[str, Callable[[str, int], Span | None]] = {
    "-----begin ": key_from,
    "identified by": _identified_by,
    "private-lines:": putty_at,
}


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
#: In RE2's language: options of one letter that take a secret, queries of URLs, schemes, keys in PEM.
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
_FIXED = sorted(PREFIXES, key=lambda prefix: (-len(prefix), prefix))
_TOKEN_HINTS = "|".join((*(inner.hint for inner in INNER_HINTS), *_OTHERS, *map(re.escape, _FIXED)))


def _hints(shape: str, data: bytes) -> Iterator[tuple[int, str]]:
    """Yield where something of the *shape* may be or name a secret, and how it begins."""
    for found in _engine(shape).finditer(data):
        at, end = found.span()
        yield at, data[at:end].decode("ascii")


@cache
def _engine(shape: str) -> Any:
    return (re2 or re).compile(shape.encode())


# RE2 locks what a pattern has learnt; where a thread held such a lock at a fork, nobody lets go of it.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_engine.cache_clear)


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


def _option_value(text: str, at: int) -> Span | None:
    """The span to hide behind the option that begins at *at*, if the program before it takes a secret with it."""
    command = text[max(0, at - 600) : at].rpartition("\n")[2].lower()
    program = max(_OPTIONS, key=command.rfind)
    if program not in command or not (option := _OPTIONS[program].match(text, at)):
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
