"""Keeps a bounded copy of the evidence while it passes by on its way to the pipeline."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from workerdiag.bundle.retention.kept_evidence import KeptEvidence
from workerdiag.bundle.retention.log_excerpts import ClosedLog, OpenLog
from workerdiag.model.evidence import Event, Evidence, LogChunk, LogExcerpt, TasksAtLoss

#: What is kept of all log text, and of all other pieces from their start and from their end.
MAX_TEXT_BYTES = 6 * 2**20
MAX_PIECES_BYTES = 2**20
MAX_PIECES = 5_000
#: After text was made less, so much of what it may have is left free.
_FREE_SHARE = 0.25
_PIECE_BYTES = 400
_FIELD_BYTES = 120
#: What a text takes beside its characters, as one of many in a tuple.
_TEXT_BYTES = 60


class EvidenceTap:
    """What passes by, kept in at most 8 MiB: see `Kept`. One for each call of `explain`."""

    def __init__(self) -> None:
        self._count = 0
        self._first: list[tuple[int, Evidence]] = []
        self._last: deque[tuple[int, int, Evidence]] = deque()
        self._first_bytes = self._last_bytes = self._left_out = 0
        #: Logs that passed, and the last two: of the one before the last more may be found.
        self._settled: list[tuple[int, ClosedLog]] = []
        self._open: list[tuple[int, OpenLog]] = []
        self._text_bytes = 0

    def tee(self, evidence: Iterable[Evidence]) -> Iterator[Evidence]:
        """The *evidence*, as it is."""
        origin = None
        for piece in evidence:
            self._count += 1
            if not isinstance(piece, LogChunk):
                origin = None
                self._retain(piece)
            else:
                if piece.origin != origin:
                    self._settle(all_but=1)
                    self._open.append((self._count, OpenLog(piece)))
                origin = piece.origin
                self._open[-1][1].take(piece)
            yield piece

    def on_match(self, origin: str, sign: tuple[str, str], message: LogExcerpt) -> None:
        """Keep a message that shows *sign* (`workerdiag.matching.messages.log_record.MatchObserver`)."""
        for _, log in reversed(self._open):
            if log.origin == origin:
                log.on_match(sign, message)
                return

    def kept_evidence(self) -> KeptEvidence:
        """What was kept of all that has passed."""
        self._settle(all_but=0)
        items = [(at, text.kept_evidence()) for at, text in self._settled]
        pieces = [*self._first, *((at, piece) for at, _, piece in self._last)]
        ordered = sorted([*items, *pieces], key=lambda item: item[0])
        return KeptEvidence(items=tuple(item for _, item in ordered), left_out=tuple(self._notes()))

    def _notes(self) -> Iterator[str]:
        if self._left_out:
            yield f"{self._left_out} pieces of evidence were not kept: they were too many or too long"

    def _settle(self, *, all_but: int) -> None:
        while len(self._open) > all_but:
            at, passed = self._open.pop(0)
            text = passed.close()
            self._settled.append((at, text))
            self._text_bytes += text.size_bytes
        if self._text_bytes > MAX_TEXT_BYTES:
            self._shrink_logs()

    def _shrink_logs(self) -> None:
        """Keep less of each log, of the largest first, until there is room again."""
        texts = [text for _, text in self._settled]
        while self._text_bytes > (1 - _FREE_SHARE) * MAX_TEXT_BYTES:
            texts.sort(key=lambda text: text.size_bytes, reverse=True)
            for text in texts:
                before = text.size_bytes
                text.shrink()
                self._text_bytes += text.size_bytes - before
                if self._text_bytes <= (1 - _FREE_SHARE) * MAX_TEXT_BYTES:
                    return

    def _retain(self, piece: Evidence) -> None:
        size = _piece_size(piece)
        if size > MAX_PIECES_BYTES // 4:
            self._left_out += 1
        elif len(self._first) < MAX_PIECES and self._first_bytes + size <= MAX_PIECES_BYTES:
            self._first.append((self._count, piece))
            self._first_bytes += size
        else:
            self._last.append((self._count, size, piece))
            self._last_bytes += size
            while len(self._last) > MAX_PIECES or self._last_bytes > MAX_PIECES_BYTES:
                self._last_bytes -= self._last.popleft()[1]
                self._left_out += 1


def _piece_size(piece: Evidence) -> int:
    """About the bytes that a piece takes."""
    if isinstance(piece, Event):
        texts: Iterable[object] = piece.fields.values()
        size = _PIECE_BYTES + _FIELD_BYTES * len(piece.fields)
    elif isinstance(piece, TasksAtLoss):
        texts = (*piece.tasks, *piece.threads, *piece.assigned, *piece.gave_up)
        size = _PIECE_BYTES + _TEXT_BYTES * len(texts)
    else:
        texts = (getattr(piece, name, None) for name in ("text", "detail", "remedy", "place"))
        size = _PIECE_BYTES + sum(map(len, getattr(piece, "executing", None) or ()))
    return size + sum(len(each) for each in texts if type(each) is str)
