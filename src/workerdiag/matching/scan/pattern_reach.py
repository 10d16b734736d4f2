"""
How far the matches of a pattern may reach: over line ends, or to where a text begins or ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as sre_parser  # type: ignore[attr-defined]
from typing import Any

#: Lets a dot stand for a line end.
_DOT_ALL = re.compile(r"\(\?[a-zA-Z]*s")
#: What is so in one line and among others alike: an end of a line, not of the text, and an end of a word.
_LINE_END, _LINE_START = "(?m:$)", "(?m:^)"
_ANYWHERE = (sre.AT_BOUNDARY, sre.AT_END)
#: Classes with a line end in them.
_WITH_NEWLINE = (sre.CATEGORY_SPACE, sre.CATEGORY_NOT_WORD, sre.CATEGORY_NOT_DIGIT)
_NEWLINE = ord("\n")
#: What may match a line end: escapes, and classes of characters.
_GROUP = re.compile(r"\([^()]*\)")
_INSIDE = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*(?:\]|\Z)", re.DOTALL)


def kept_within_line(text: str) -> str:
    """
    The pattern *text* with fewer parts that may match a line end, the same in lines of ASCII and tabs.
    """
    return _INSIDE.sub(_without_newline, text)


def _without_newline(part: re.Match[str]) -> str:
    """
    Part of a pattern, so that it matches the same in a line of plain text, and no line end.
    """
    found = part[0]
    if found == r"\s":
        return r"[ \t]"
    if found in (r"\W", r"\D"):
        return rf"[^{found.lower()}\n]"
    if found.startswith("[^") and found[2:3] != "]":
        return r"[^\n" + found[2:]
    return found


@lru_cache(maxsize=4096)
def is_within_message(text: str) -> bool:
    """
    Whether each match in a message is one among other messages too, a line each.
    """
    ends = text.replace(_LINE_END, "").replace(_LINE_START, "")
    try:
        parsed = sre_parser.parse(ends, re.IGNORECASE)
    except re.error:
        return False
    return bool(parsed.state.flags & re.MULTILINE) or not _has_anchor(parsed)


@lru_cache(maxsize=4096)
def is_over_lines(text: str) -> bool:
    """
    Whether each match begins with a line end; so it is known without taking the pattern apart.
    """
    if not text.startswith(r"\n") or text[2:3] in ("?", "*", "{"):
        return False
    outer, inner = _INSIDE.sub("", text), ""
    while outer != inner:
        outer, inner = _GROUP.sub("", outer), outer
    return "|" not in outer


def _has_anchor(items: Iterable[tuple[object, Any]]) -> bool:
    return any(_is_anchor(*item) for item in items)


def _is_anchor(op: object, value: Any) -> bool:
    if op is sre.SUBPATTERN or op is sre.MAX_REPEAT or op is sre.MIN_REPEAT:
        return _has_anchor(value[-1])
    if op is sre.BRANCH:
        return any(map(_has_anchor, value[1]))
    return op is sre.AT and value not in (sre.AT_BOUNDARY, sre.AT_NON_BOUNDARY)


def is_within_line(text: str) -> bool:
    """
    Whether each match is within one line, and is one among whatever other lines.
    """
    if _DOT_ALL.search(text) or text.count("$") > text.count(_LINE_END):
        return False
    try:
        return not _may_have_newline(sre_parser.parse(text, re.IGNORECASE))
    except re.error:
        return False


def _may_have_newline(items: Iterable[tuple[object, Any]]) -> bool:
    return any(_may_reach_out(*item) for item in items)


def _may_reach_out(op: object, value: Any) -> bool:
    if op is sre.LITERAL or op is sre.NOT_LITERAL:
        return bool(value == _NEWLINE) is (op is sre.LITERAL)
    if op is sre.IN:
        is_negated = value[0][0] is sre.NEGATE
        return is_negated != any(_holds_newline(kind, one) for kind, one in value)
    if op in (sre.SUBPATTERN, sre.MAX_REPEAT, sre.MIN_REPEAT):
        return _may_have_newline(value[-1])
    if op is sre.BRANCH:
        return any(map(_may_have_newline, value[1]))
    return op is not sre.ANY and (op is not sre.AT or value not in _ANYWHERE)


def _holds_newline(kind: object, one: Any) -> bool:
    if kind is sre.LITERAL:
        return bool(one == _NEWLINE)
    if kind is sre.RANGE:
        return bool(one[0] <= _NEWLINE <= one[1])
    return kind is sre.CATEGORY and one in _WITH_NEWLINE
