"""
A diagnosis for a terminal: three lines for those in a hurry, then everything else.
"""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Iterator

from workerdiag.model.diagnosis import Findings
from workerdiag.rendering.outline import outline
from workerdiag.rendering.parts import Item, Outline, Section

#: Columns of the labels of the first three lines.
_LABEL_COLUMNS = 10
#: Narrower than this nothing is readable.
_MIN_WIDTH = 40
#: Longest address or path that is kept whole when it does not fit.
_MAX_UNBROKEN = 200
#: Stands for the second column of a wide character while lines are being filled.
_SECOND_COLUMN = "\ue000"

_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


def render_text(findings: Findings, *, width: int = 80, color: bool = False) -> str:
    """
    The findings as lines of at most *width* columns, without a line end at the end.

    Only addresses, paths and lines to be typed may be longer, as breaking them would spoil
    them. Everything that others wrote is stripped of what a terminal acts upon.

    Args:
        findings: A `Findings`, or a `workerdiag.Diagnosis`, which is one.
        width: Columns of the terminal; less than 40 counts as 40.
        color: Whether to make labels and headings bold with ANSI sequences.
    """
    return render_outline(outline(findings), width=width, color=color)


def render_outline(report: Outline, *, width: int, color: bool) -> str:
    """
    Any report, laid out as `render_text` does.
    """
    bold, plain = (_BOLD, _PLAIN) if color else ("", "")
    return "\n".join(_report_lines(report, max(width, _MIN_WIDTH), bold, plain))


def _report_lines(report: Outline, width: int, bold: str, plain: str) -> Iterator[str]:
    for label, text in report.lead:
        yield f"{bold}{label:<{_LABEL_COLUMNS}}{plain}{_fit_line(text, width - _LABEL_COLUMNS)}"
    for text in _full_paragraphs(report, width):
        yield ""
        yield from _wrap(text, width)
    for section in report.sections:
        yield ""
        yield f"{bold}{section.title}{plain}"
        yield from _section_lines(section, width)
    if report.footer:
        yield ""
        yield from _wrap(", ".join(report.footer), width)


def _full_paragraphs(report: Outline, width: int) -> Iterator[str]:
    """
    Paragraphs below the first three lines: the first of them in full if it was cut, and the summary.
    """
    what = report.lead[0][1]
    if _text_columns(what) > width - _LABEL_COLUMNS:
        yield what
    if report.summary:
        yield report.summary


def _section_lines(section: Section, width: int) -> Iterator[str]:
    if section.paragraph:
        yield from _wrap(section.paragraph, width, first="  ", rest="  ")
        return
    for number, item in enumerate(section.items, 1):
        mark = f"{number}." if section.numbered else "-"
        yield from _item_lines(item, f"  {mark} ", width)
    if section.more:
        yield f"  {section.more}"


def _item_lines(item: Item, mark: str, width: int) -> Iterator[str]:
    indent = " " * len(mark)
    yield from _wrap(item.text or item.link, width, first=mark, rest=indent)
    for label, text in item.notes:
        yield from _wrap(f"{label}: {text}", width, first=indent, rest=indent + "  ")
    for line in item.quote:
        yield from _wrap(line, width, first=f"{indent}| ", rest=f"{indent}|   ")
    for line in item.code:
        yield f"{indent}    {line}"


def _wrap(text: str, width: int, *, first: str = "", rest: str = "") -> list[str]:
    room = width - max(len(first), len(rest))
    filled = textwrap.wrap(
        _break_long_words(_widen(text), room),
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_SECOND_COLUMN, "") for line in filled] or [first.rstrip()]


def _break_long_words(text: str, room: int) -> str:
    """
    The text with blanks put into words that are longer than *room* and are no address and no path.
    """

    def broken(found: re.Match[str]) -> str:
        word = found[0]
        if len(word) <= _MAX_UNBROKEN and word.isascii() and ("/" in word or "\\" in word):
            return word
        return " ".join(word[start : start + room] for start in range(0, len(word), room))

    return re.sub(rf"\S{{{room + 1},}}", broken, text)


def _fit_line(text: str, room: int) -> str:
    """
    As many whole sentences of the text as fit in *room* columns, or else words with dots behind them.
    """
    if _text_columns(text) <= room:
        return text
    sentences = re.split(r"(?<=[.!?]) ", text)
    for count in range(len(sentences) - 1, 0, -1):
        if _text_columns(shorter := " ".join(sentences[:count])) <= room:
            return shorter
    cut = _widen(text)[: room - 3]
    words = cut.rpartition(" ")[0] or cut
    return words.replace(_SECOND_COLUMN, "").rstrip() + "..."


def _widen(text: str) -> str:
    """
    The text with a second character behind each that takes two columns (Unicode TR 11).
    """
    if text.isascii():
        return text
    return "".join(
        char + _SECOND_COLUMN if unicodedata.east_asian_width(char) in "WF" else char for char in text
    )


def _text_columns(text: str) -> int:
    return len(_widen(text))
