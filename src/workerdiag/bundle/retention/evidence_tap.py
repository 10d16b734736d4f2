"""
Keeps a bounded copy of the evidence while it passes by on its way to the pipeline.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from workerdiag.bundle.retention.closed_log import SettledText
from workerdiag.bundle.retention.excerpts import Mark
from workerdiag.bundle.retention.kept_evidence import Kept
from workerdiag.bundle.retention.open_log import PassingText
from workerdiag.model.evidence import Event, Evidence, Executing, LogChunk

#: What is kept of all log text, and of all other pieces from their start and from their end.
MOST_TEXT_BYTES = 6 * 2**20
MOST_PIECES_BYTES = 2**20
MOST_PIECES = 5_000
#: After text was made less, so much of what it may have is left free.
_FREE_SHARE = 0.25
_PIECE_BYTES = 400
_FIELD_BYTES = 120
#: What a text takes beside its characters, as one of many in a tuple.
_TEXT_BYTES = 60


class Keeper:
    """
    What passes by, kept in at most 8 MiB: see `Kept`. One for each call of `explain`.
    """

    def __init__(self) -> None:
        self._count = 0
        self._first: list[tuple[int, Evidence]] = []
        self._last: deque[tuple[int, int, Evidence]] = deque()
        self._first_bytes = self._last_bytes = self._left_out = 0
        #: Logs that passed, and the last two: of the one before the last more may be found.
        self._settled: list[tuple[int, SettledText]] = []
        self._open: list[tuple[int, PassingText]] = []
        self._text_bytes = 0

    def passing(self, evidence: Iterable[Evidence]) -> Iterator[Evidence]:
        """
        The *evidence*, as it is.
        """
        origin = None
        for piece in evidence:
            self._count += 1
            if not isinstance(piece, LogChunk):
                origin = None
                self._keep(piece)
            else:
                if piece.origin != origin:
                    self._settle(all_but=1)
                    self._open.append((self._count, PassingText(piece)))
                origin = piece.origin
                self._open[-1][1].take(piece)
            yield piece

    def matched(self, origin: str, sign: tuple[str, str], first: int, last: int, line: int) -> None:
        """
        Something was found in a message (`workerdiag.matching.scan.patterns.Witness`).
        """
        if (text := self._text(origin)) is not None:
            text.matched(sign, Mark(first, last, line))

    def reached(self, origin: str, at: int, line: int) -> None:
        """
        Byte *at* lies in line number *line*.
        """
        if (text := self._text(origin)) is not None:
            text.reached(at, line)

    def kept(self) -> Kept:
        """
        What was kept of all that has passed.
        """
        self._settle(all_but=0)
        items = [(at, text.kept()) for at, text in self._settled]
        pieces = [*self._first, *((at, piece) for at, _, piece in self._last)]
        ordered = sorted([*items, *pieces], key=lambda item: item[0])
        return Kept(items=tuple(item for _, item in ordered), left_out=tuple(self._notes()))

    def _notes(self) -> Iterator[str]:
        if self._left_out:
            yield f"{self._left_out} pieces of evidence were not kept: they were too many or too long"

    def _text(self, origin: str) -> PassingText | None:
        return next((text for _, text in reversed(self._open) if text.origin == origin), None)

    def _settle(self, *, all_but: int) -> None:
        while len(self._open) > all_but:
            at, passed = self._open.pop(0)
            text = passed.settled()
            self._settled.append((at, text))
            self._text_bytes += text.size_bytes
        if self._text_bytes > MOST_TEXT_BYTES:
            self._make_room()

    def _make_room(self) -> None:
        """
        Keep less of each log, of the largest first, until there is room again.
        """
        texts = [text for _, text in self._settled]
        while self._text_bytes > (1 - _FREE_SHARE) * MOST_TEXT_BYTES:
            texts.sort(key=lambda text: text.size_bytes, reverse=True)
            for text in texts:
                before = text.size_bytes
                text.narrow()
                self._text_bytes += text.size_bytes - before
                if self._text_bytes <= (1 - _FREE_SHARE) * MOST_TEXT_BYTES:
                    return

    def _keep(self, piece: Evidence) -> None:
        size = _size(piece)
        if size > MOST_PIECES_BYTES // 4:
            self._left_out += 1
        elif len(self._first) < MOST_PIECES and self._first_bytes + size <= MOST_PIECES_BYTES:
            self._first.append((self._count, piece))
            self._first_bytes += size
        else:
            self._last.append((self._count, size, piece))
            self._last_bytes += size
            while len(self._last) > MOST_PIECES or self._last_bytes > MOST_PIECES_BYTES:
                self._last_bytes -= self._last.popleft()[1]
                self._left_out += 1


def _size(piece: Evidence) -> int:
    """
    About the bytes that a piece takes.
    """
    if isinstance(piece, Event):
        texts: Iterable[Any] = piece.fields.values()
        size = _PIECE_BYTES + _FIELD_BYTES * len(piece.fields)
    elif isinstance(piece, Executing):
        texts = (*piece.tasks, *piece.threads, *piece.assigned, *piece.gave_up)
        size = _PIECE_BYTES + _TEXT_BYTES * len(texts)
    else:
        texts = (getattr(piece, name, None) for name in ("text", "detail", "remedy", "place"))
        size = _PIECE_BYTES + sum(map(len, getattr(piece, "executing", None) or ()))
    return size + sum(len(each) for each in texts if type(each) is str)
