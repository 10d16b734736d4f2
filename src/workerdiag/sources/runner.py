"""Queries several sources in parallel before one deadline, whatever they do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from attrs import evolve

from workerdiag.deadline import CALL_FAILURES, MORE_TIME, Deadline, HelperThread
from workerdiag.errors import describe_error, error_text, utf8_safe
from workerdiag.guard import guarded
from workerdiag.model.evidence import Evidence, EvidenceSource, Gap, LogChunk
from workerdiag.model.vocabulary import PLACES, Place

#: Maximum bytes that one source may yield before it is cut off; a piece other than text counts for 500.
MAX_BYTES = 64 * 2**20

#: Text is split into pieces of this size, so that searching it can stop on time.
_PIECE_BYTES = 64 * 1024
#: This much text is searched however late it is.
_ALWAYS_BYTES = 4 * _PIECE_BYTES

_T = TypeVar("_T")


def collect_each(
    sources: Sequence[EvidenceSource], deadline: Deadline, *, most_bytes: int = MAX_BYTES
) -> list[list[Evidence]]:
    """Return the evidence of each of the *sources*, in their order; they are queried in parallel.

    A source that is late, raises or yields more than *most_bytes* becomes a `Gap`; earlier pieces are kept.
    """
    budget_s = deadline.left_s
    threads = [_SourceThread(source, budget_s, most_bytes) for source in sources]
    return [list(thread.answers(deadline)) for thread in threads]


def take_in_time(name: str, make: Callable[[], Iterable[_T]], deadline: Deadline) -> Iterator[_T | Gap]:
    """Yield what *make* yields in a helper thread, then a `Gap` of source *name* if it is late or fails."""
    try:
        yield from HelperThread(f"workerdiag-{name}", make).take(deadline)
    except CALL_FAILURES as problem:
        yield _ending_gap(name, "other", problem)


def gap_on_error(
    name: str, pieces: Callable[[], Iterable[Evidence]], *, place: Place = "other"
) -> Iterator[Evidence]:
    """Yield the pieces; an exception ends them with a `Gap`."""
    with guarded(f"asking {name}") as asking:
        yield from pieces()
    if asking.problem is not None:
        yield failure_gap(name, asking.problem, place=place)


def failure_gap(name: str, problem: Exception, *, place: Place = "other") -> Gap:
    """Return the gap of a source that raised *problem*."""
    return _malformed_gap(name, place, f"the source failed: {describe_error(problem)}")


def drop_late_text(pieces: Iterable[Evidence], deadline: Deadline) -> Iterator[Evidence]:
    """Yield the *pieces* with text split; once *deadline* has passed, yield gaps in place of text.

    The first `_ALWAYS_BYTES` always pass: they are from the nannies and the scheduler.
    """
    late: dict[str, int] = {}
    passed = 0
    for piece in pieces:
        if not isinstance(piece, LogChunk):
            yield piece
            continue
        for at in range(0, len(piece.data), _PIECE_BYTES):
            if passed >= _ALWAYS_BYTES and deadline.is_over:
                late[piece.origin] = late.get(piece.origin, 0) + len(piece.data) - at
                break
            passed += _PIECE_BYTES
            first_line = piece.first_line if at == 0 else None
            yield evolve(piece, data=piece.data[at : at + _PIECE_BYTES], first_line=first_line)
    for origin, size in late.items():
        detail = f"{size} bytes of its text were not searched"
        yield Gap(source=origin, place="log", reason="timed-out", detail=detail, remedy=MORE_TIME)


def _ending_gap(name: str, place: Place, problem: Exception) -> Gap:
    if isinstance(problem, TimeoutError):
        detail = "no answer within the time given"
        return Gap(source=name, place=place, reason="timed-out", detail=detail, remedy=MORE_TIME)
    return _malformed_gap(name, place, f"the source failed: {error_text(problem)}")


def _malformed_gap(name: str, place: Place, detail: str, remedy: str = "") -> Gap:
    return Gap(source=name, place=place, reason="malformed", detail=detail[:500], remedy=remedy)


class _SourceThread:
    def __init__(self, source: EvidenceSource, budget_s: float, most_bytes: int) -> None:
        self._name = type(source).__name__
        self._place: Place = "other"
        self._most_bytes = most_bytes
        self._thread = HelperThread(f"workerdiag-{self._name}", partial(self._query, source, budget_s))

    def answers(self, deadline: Deadline) -> Iterator[Evidence]:
        try:
            yield from self._thread.take(deadline)
        except CALL_FAILURES as problem:
            yield _ending_gap(self._name, self._place, problem)  # by now the source's name is known

    def _query(self, source: EvidenceSource, budget_s: float) -> Iterator[Evidence]:
        place: object = getattr(source, "place", None)
        self._place = next((each for each in PLACES if each == place), "other")
        self._name = utf8_safe(source.name)[:200]
        pieces: Iterator[object] = gap_on_error(
            self._name, lambda: source.collect(budget_s=budget_s), place=self._place
        )
        size = 0
        for count, piece in enumerate(pieces):
            if not isinstance(piece, Evidence):
                yield self._gap(f"yielded a {type(piece).__name__}, which is not evidence")
                continue
            size += len(piece.data) if isinstance(piece, LogChunk) else 500
            if size > self._most_bytes:
                yield self._gap(f"cut off after {count} pieces, {size} bytes")
                return
            yield piece

    def _gap(self, detail: str) -> Gap:
        remedy = "report it to the author of the source; workerdiag.testing.check_source reproduces it"
        return _malformed_gap(self._name, self._place, detail, remedy)
