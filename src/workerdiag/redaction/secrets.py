"""Hides what looks like a secret before a report can leak it.

Reports go into chats, tickets and bug trackers; log lines, commands and error messages hold
passwords and keys. Hidden is the value; the name before it stays, as it may be the clue.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial
from math import inf

from workerdiag.redaction.command_options import MAX_CHARS, option_at
from workerdiag.redaction.named_values import name_at, value_of
from workerdiag.redaction.prefilter import (
    MOST_WORK,
    PROGRAMS,
    DenseStretches,
    Hints,
    key_line_hints,
    may_hold,
    name_hints,
    searchable,
    token_hints,
    url_hints,
)
from workerdiag.redaction.token_shapes import (
    PREFIXES,
    key_from,
    key_line_at,
    key_until,
    putty_at,
    token_around,
    token_at,
)
from workerdiag.redaction.urls import Userinfo, query_at
from workerdiag.redaction.values import HIDDEN
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
    data = searchable(seen.text)
    if not may_hold(data):
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
