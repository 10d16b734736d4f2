"""Text as a reader sees it: without what does not show, and where something in quotes or brackets ends.

A colour or a character of no width in the middle of ``password=`` hides nothing from a reader, so it may hide
nothing from us.
"""

from __future__ import annotations

import re

#: What a terminal may act upon (ECMA-48, 5th edition): CSI, OSC/DCS/SOS/PM/APC strings, other escapes.
ESCAPES = (
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])(?:[^\x00-\x1f\x80-\x9f]*(?:\x07|\x1b\\|\x9c))?"
    r"|\x1b[ -/]*[0-~]?"
)
#: Unicode's categories Cc (but line ends and tabs), Cf and Co, as of Unicode 16.
_INVISIBLE = (
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e"
    r"\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ue000-\uf8ff\ufeff\ufff9-\ufffb"
    r"\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0001\U000e0020-\U000e007f\U000f0000-\U000ffffd\U00100000-\U0010fffd]"
)
_HIDDEN_CHARS = re.compile(f"{ESCAPES}|{_INVISIBLE}")
_QUOTE = re.compile(
    r"[bBrRfFuU]{0,2}(?P<slashes>\\{0,16})(?P<quote>\"\"\"|'''|[\"'`]|&quot;|&#3[49];)|(?P<curly>[\u201c\u2018])"
)
_BRACKETS = re.compile(r"[\[\](){}\"']")
#: What a quote ends at, and where one has to look closer.
_ENDS = {each: re.compile(rf"{each}|[\r\n]") for each in (*"\"'`\u201d\u2019", "&quot;", "&#34;", "&#39;")}
_STOPS = {quote: re.compile(rf"[{quote}\\\r\n]") for quote in "\"'`"}
_LINE_END = re.compile(r"[\r\n]")
#: What is in brackets that do not end is cut off here.
_MAX_IN_BRACKETS = 4000


def visible_text(text: str) -> str:
    """The *text* without escapes and without characters that do not show."""
    return text if text.isprintable() else _HIDDEN_CHARS.sub("", text)


def line_end(text: str, at: int) -> int:
    """Where the line ends that *at* is in."""
    return _next_stop(_LINE_END, text, at)


def quoted_span(text: str, at: int) -> tuple[int, int, int] | None:
    """Begin and end of the text in the quotes that open at *at*, and their end, at most the line's; or None."""
    opened = _QUOTE.match(text, at)
    if opened is None:
        return None
    begin = opened.end()
    if curly := opened["curly"]:
        end, width = _next_stop(_ENDS[{"\u201c": "\u201d", "\u2018": "\u2019"}[curly]], text, begin), 1
    elif len(opened["quote"]) == 3:
        end, width = text.find(opened["quote"], begin), 3
        end = end if end >= 0 else len(text)
    elif opened["slashes"] or opened["quote"].startswith("&"):
        end = _escaped_quote_end(text, begin, opened["quote"], len(opened["slashes"]))
        width = len(opened["slashes"]) + len(opened["quote"])
    else:
        end, width = _simple_quote_end(text, begin, opened["quote"]), 1
    return begin, end, min(len(text), end + width)


def _next_stop(stops: re.Pattern[str], text: str, at: int) -> int:
    found = stops.search(text, at)
    return found.start() if found else len(text)


def _simple_quote_end(text: str, at: int, quote: str) -> int:
    """Where a quote ends in which a backslash escapes, or the same quote twice."""
    stops = _STOPS[quote]
    begin = at
    while found := stops.search(text, at):
        at = found.start()
        doubled = text[at] == quote and at > begin and text.startswith(quote, at + 1)
        if text[at] == "\\" or doubled:
            at += 2
        else:
            return at
    return len(text)


def _escaped_quote_end(text: str, at: int, quote: str, slashes: int) -> int:
    """Where a quote ends whose own quotes are escaped, as in JSON within JSON."""
    begin = at
    while found := _ENDS[quote].search(text, at):
        at = found.start()
        if text[at] in "\r\n":
            return at
        before = text[max(begin, at - 16 - 1) : at]
        count = len(before) - len(before.rstrip("\\"))
        if count <= slashes:
            return at - count
        at += len(quote)
    return len(text)


def bracket_end(text: str, at: int) -> int:
    """Return the end of the bracket that opens at *at*; an unclosed one extends for 4,000 characters."""
    depth = 0
    last = min(len(text), at + _MAX_IN_BRACKETS)
    while found := _BRACKETS.search(text, at, last):
        at = found.end()
        match found[0]:
            case "[" | "(" | "{":
                depth += 1
            case "]" | ")" | "}":
                depth -= 1
                if depth == 0:
                    return at
            case _:
                string = quoted_span(text, found.start())
                at = string[2] if string else at
    return last
