"""Reads the exception that the caller caught: types, texts, tasks, workers, and its traceback as text."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial

from workerdiag.deadline import CALL_FAILURES, NO_DEADLINE, Deadline, call_in_time
from workerdiag.errors import error_text
from workerdiag.model.evidence import Evidence, Gap, LogChunk
from workerdiag.sources.exception import slots
from workerdiag.sources.exception.reader import (
    ExceptionLink,
    ExceptionReport,
    read_exception,
    read_exception_class,
)

#: At most this many linked exceptions (causes, contexts, members of groups) are read.
MAX_EXCEPTIONS = 30
#: Maximum bytes of all texts and tracebacks together.
_CHUNK_BYTES = 64 * 1024
#: Share of the remaining time that one exception may take: those linked to it may say more.
_SHARE = 0.5
#: With less time than this, in seconds, no code of an exception's class is run.
_MIN_S = 0.005


def exception_facts(exc: BaseException, deadline: Deadline = NO_DEADLINE) -> list[Evidence]:
    """Return the exception and all linked ones as evidence. Never raises.

    Each is read in its own thread, as its class may run any code. One that is late or fails is a `Gap`, and
    only its class is known.

    Returns:
        An `ExceptionFacts` for *exc* (first) and for every cause, unsuppressed context and member of a
        group, at most 30; then gaps; then one `LogChunk` (origin ``exception``) of their texts and
        tracebacks, at most 64 KiB, the caught one last, as Python prints them.
    """
    readings: list[ExceptionReport] = []
    gaps: list[Gap] = []
    for link in _linked_exceptions(exc, readings):
        try:
            readings.append(_read_in_thread(link, deadline))
        except CALL_FAILURES as problem:
            gaps.append(_unreadable_gap(link.exc, problem))
            readings.append(read_exception_class(link))
    chunk = _texts_chunk([each.printed for each in readings if each.printed])
    return [*(each.facts for each in readings), *gaps, *([chunk] if chunk.data else [])]


def _linked_exceptions(exc: BaseException, readings: list[ExceptionReport]) -> Iterator[ExceptionLink]:
    """Yield the exception and those linked to it, nearest first, each once; the caller extends *readings*."""
    seen = {id(exc)}
    waiting = deque([ExceptionLink(relation="raised", exc=exc)])
    for _ in range(MAX_EXCEPTIONS):
        if not waiting:
            return
        yield waiting.popleft()
        for link in readings[-1].further:
            if id(link.exc) not in seen:
                seen.add(id(link.exc))
                waiting.append(link)


def _read_in_thread(link: ExceptionLink, deadline: Deadline) -> ExceptionReport:
    if deadline.left_s < _MIN_S:
        raise TimeoutError("no time was left for it")
    return call_in_time("workerdiag-exception", partial(read_exception, link), deadline.share(_SHARE))


def _unreadable_gap(exc: BaseException, problem: Exception) -> Gap:
    return Gap(
        source="exception",
        reason="timed-out" if isinstance(problem, TimeoutError) else "malformed",
        detail=f"{slots.type_name(exc)} could not be read: {error_text(problem)}"[:500],
        remedy="give the text that Python prints for it as workerdiag.LogText(text)",
    )


def _texts_chunk(texts: list[str]) -> LogChunk:
    parts: list[bytes] = []
    left = _CHUNK_BYTES
    for text in texts:  # the nearest first: they matter most
        data = text.encode("utf-8", errors="replace")[:left]
        parts.append(data)
        left -= len(data) + 1
        if left <= 0:
            break
    return LogChunk(origin="exception", data=b"\n".join(reversed(parts)), stream="client")
