"""
Stretches in which nearly everything may be a secret: they are hidden whole, and not read place by place.

No person reads them, and to look closely at a hundred thousand places in 1 MiB takes seconds.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator

#: A window is hidden with more hints than one in 8 characters, or more values than one in 64.
WINDOW_CHARS = 16 * 1024
MOST_WORK = WINDOW_CHARS // 8
#: What reading a value takes, where looking at a hint takes 1.
_READING = 7
#: What belongs to a place may stand so far before it.
_BEFORE_CHARS = 200
#: Where one may read on: behind the end of a line, a message of a log with its date.
_MESSAGE = re.compile(r"[\r\n](?=\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d)")

#: Gives from a place on what may be or name a secret: where it stands, and how it begins.
Hints = Callable[[int], Iterator[tuple[int, str]]]


class DenseStretches:
    """
    The dense stretches of one text, as they come to light while its hints are read.

    Args:
        text: The text.
        most_work: What may be done in one window.
    """

    def __init__(self, text: str, *, most_work: float = MOST_WORK) -> None:
        self._text = text
        self._most = most_work
        #: What was done, by window.
        self._work: Counter[int] = Counter()
        #: Begin and end of each, by the window that it begins in.
        self.stretches: dict[int, tuple[int, int]] = {}

    def outside(self, hints: Hints) -> Iterator[tuple[int, str]]:
        """
        Those of the *hints* that stand in no dense stretch; too many of them make one.
        """
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
        """
        Count that there was more to do at a place than to look at its hint.
        """
        self._work[at // WINDOW_CHARS] += _READING

    def _hidden_until(self, window: int) -> int:
        if window not in self.stretches:
            start = max(0, window * WINDOW_CHARS - _BEFORE_CHARS)
            message = _MESSAGE.search(self._text, (window + 1) * WINDOW_CHARS)
            self.stretches[window] = start, message.start() if message else len(self._text)
        return self.stretches[window][1]
