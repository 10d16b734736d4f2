"""
Asking several sources at once, within one budget, whatever they do.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from attrs import evolve

from workerdiag import foreign
from workerdiag.errors import describe_error, is_from_keyboard, utf8_safe
from workerdiag.model.evidence import Evidence, EvidenceSource, Gap, LogChunk

#: What one source may hand over before it is cut off.
MAX_PIECES = 20_000
MAX_BYTES = 64 * 2**20

#: Text is handed on in pieces of this size, so that searching it can end in time.
_PIECE_BYTES = 64 * 1024
#: So much text is searched however late it is.
_ALWAYS_BYTES = 4 * _PIECE_BYTES

_DONE = object()


def collect_all(
    sources: Sequence[EvidenceSource], *, budget_s: float, most_bytes: int = MAX_BYTES
) -> list[Evidence]:
    """
    The evidence of all *sources*, asked in parallel, each in the order it gave it.

    A source that is not done in time, raises or floods becomes a `Gap`; what it gave before
    that is kept, and the others are not held up.

    Args:
        sources: In the order in which they are to be asked.
        budget_s: Seconds for all of them together.
        most_bytes: What one of them may hand over.
    """
    deadline = time.monotonic() + budget_s
    threads = [_SourceThread(source, budget_s, most_bytes) for source in sources]
    return [piece for thread in threads for piece in thread.answers(deadline)]


def gap_on_error(name: str, pieces: Callable[[], Iterable[Evidence]]) -> Iterator[Evidence]:
    """
    The pieces; whatever is raised on the way ends them with a `Gap`.
    """
    try:
        yield from pieces()
    except GeneratorExit:
        raise
    except BaseException as problem:  # a source that fails is a gap, never an error of ours
        if is_from_keyboard(problem):
            raise
        yield failure_gap(name, problem)


def failure_gap(name: str, problem: BaseException) -> Gap:
    """
    The gap that a source leaves which raised something.
    """
    return Gap(source=name, reason="malformed", detail=f"the source failed: {describe_error(problem)}"[:500])


def drop_late_text(pieces: Iterable[Evidence], *, deadline: float) -> Iterator[Evidence]:
    """
    The *pieces*, text in small ones; once *deadline* (monotonic) has passed, gaps in place of text.

    The first `_ALWAYS_BYTES` pass in any case: they are the nannies' and the scheduler's words.
    """
    late: dict[str, int] = {}
    passed = 0
    for piece in pieces:
        if not isinstance(piece, LogChunk):
            yield piece
            continue
        for at in range(0, len(piece.data), _PIECE_BYTES):
            if passed >= _ALWAYS_BYTES and time.monotonic() > deadline:
                late[piece.origin] = late.get(piece.origin, 0) + len(piece.data) - at
                break
            passed += _PIECE_BYTES
            first_line = piece.first_line if at == 0 else None
            yield evolve(piece, data=piece.data[at : at + _PIECE_BYTES], first_line=first_line)
    for origin, size in late.items():
        yield Gap(
            source=origin,
            reason="timed-out",
            detail=f"{size} bytes of its text were not searched",
            remedy='give it more time: explain(..., timeout="60s")',
        )


class _SourceThread:
    """
    One source, asked in a thread of its own that is abandoned when time is up.
    """

    def __init__(self, source: EvidenceSource, budget_s: float, most_bytes: int) -> None:
        self._name = type(source).__name__
        self._most_bytes = most_bytes
        self._queue: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._stop = threading.Event()
        try:
            foreign.start_thread(f"workerdiag-{self._name}", partial(self._ask, source, budget_s))
        except RuntimeError as problem:
            self._queue.put(failure_gap(self._name, problem))
            self._queue.put(_DONE)

    def _ask(self, source: EvidenceSource, budget_s: float) -> None:
        try:
            self._name = utf8_safe(source.name)[:200]
            self._collect(gap_on_error(self._name, lambda: source.collect(budget_s=budget_s)))
        except BaseException as problem:  # noqa: BLE001  a name that cannot be had, and whatever ends a thread
            self._queue.put(failure_gap(self._name, problem))
        self._queue.put(_DONE)

    def _collect(self, pieces: Iterator[object]) -> None:
        size = 0
        for count, piece in enumerate(pieces):
            if self._stop.is_set():
                return
            if not isinstance(piece, Evidence):
                self._queue.put(self._gap(f"gave a {type(piece).__name__}, which is no evidence"))
                continue
            size += len(piece.data) if isinstance(piece, LogChunk) else 500
            if count >= MAX_PIECES or size > self._most_bytes:
                self._queue.put(self._gap(f"cut off after {count} pieces, {size} bytes"))
                return
            self._queue.put(piece)

    def _gap(self, detail: str) -> Gap:
        remedy = "report it to the author of the source; workerdiag.testing.check_source shows it"
        return Gap(source=self._name, reason="malformed", detail=detail, remedy=remedy)

    def answers(self, deadline: float) -> Iterator[Evidence]:
        while True:
            try:
                piece = self._queue.get(timeout=max(0.001, deadline - time.monotonic()))
            except queue.Empty:
                self._stop.set()
                yield Gap(
                    source=self._name,
                    reason="timed-out",
                    detail="did not answer within the time given",
                    remedy='give it more time: explain(..., timeout="60s")',
                )
                return
            if piece is _DONE:
                return
            yield piece  # type: ignore[misc]  # only evidence and _DONE are put
