"""
Text as a reader sees it, with the place of each character in the text as it was written.

A colour or a character of no width in the middle of ``password=`` hides nothing from a reader, so it
may hide nothing from us.
"""

from __future__ import annotations

import re
from bisect import bisect_right

from attrs import frozen

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


@frozen
class VisibleText:
    """
    The characters that show.
    """

    text: str
    #: Where, in `text`, something was left out before the character, and how much up to there.
    _cuts: tuple[int, ...] = ()
    _left_out: tuple[int, ...] = ()

    def written_at(self, start: int, end: int) -> tuple[int, int]:
        """
        Where the characters from *start* to before *end* stand in the text as it was written.
        """
        return self._at(start), self._at(end - 1) + 1

    def _at(self, place: int) -> int:
        index = bisect_right(self._cuts, place)
        return place + self._left_out[index - 1] if index else place


def visible_text(text: str) -> VisibleText:
    """
    The *text* without escapes and without characters that do not show.
    """
    if text.isprintable():
        return VisibleText(text)
    parts: list[str] = []
    cuts: list[int] = []
    left_out: list[int] = []
    done = total = 0
    for unseen in _HIDDEN_CHARS.finditer(text):
        parts.append(text[done : unseen.start()])
        total += unseen.end() - unseen.start()
        done = unseen.end()
        cuts.append(done - total)
        left_out.append(total)
    if not cuts:
        return VisibleText(text)
    return VisibleText("".join((*parts, text[done:])), tuple(cuts), tuple(left_out))
