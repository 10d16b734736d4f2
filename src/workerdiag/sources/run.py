"""
Asking several sources at once, within one budget, whatever they do.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from workerdiag.model.evidence import Evidence, EvidenceSource, Gap, LogChunk

#: What one source may hand over before it is cut off.
MOST_PIECES = 20_000
MOST_BYTES = 64 * 2**20

_DONE = object()


def collect_all(sources: Sequence[EvidenceSource], *, budget_s: float) -> list[Evidence]:
    """
    The evidence of all *sources*, asked in parallel, each in the order it gave it.

    A source that is not done in time, raises or floods becomes a `Gap`; what it gave before
    that is kept, and the others are not held up.
    """
    deadline = time.monotonic() + budget_s
    askers = [_Asked(source, budget_s) for source in sources]
    return [piece for asker in askers for piece in asker.answers(deadline)]


def safely(name: str, pieces: Callable[[], Iterable[Evidence]]) -> Iterator[Evidence]:
    """
    The pieces; whatever is raised on the way ends them with a `Gap`.
    """
    try:
        yield from pieces()
    except Exception as problem:  # noqa: BLE001  a source that fails is a gap, never an error of ours
        yield Gap(
            source=name,
            reason="malformed",
            detail=f"the source failed: {type(problem).__name__}: {problem}"[:500],
        )


class _Asked:
    """
    One source, asked in a thread of its own that is abandoned when time is up.
    """

    def __init__(self, source: EvidenceSource, budget_s: float) -> None:
        self._name = source.name
        self._queue: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._stop = threading.Event()
        thread = threading.Thread(
            target=self._ask, args=(source, budget_s), name=f"workerdiag-{source.name}", daemon=True
        )
        thread.start()

    def _ask(self, source: EvidenceSource, budget_s: float) -> None:
        size = 0
        for count, piece in enumerate(safely(self._name, lambda: source.collect(budget_s=budget_s))):
            if self._stop.is_set():
                return
            size += len(piece.data) if isinstance(piece, LogChunk) else 500
            if count >= MOST_PIECES or size > MOST_BYTES:
                flood = f"cut off after {count} pieces, {size} bytes"
                self._queue.put(Gap(source=self._name, reason="malformed", detail=flood))
                break
            self._queue.put(piece)
        self._queue.put(_DONE)

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
