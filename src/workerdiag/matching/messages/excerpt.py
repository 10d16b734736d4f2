"""
A message with a few lines of the log around it, and who wants it.
"""

from __future__ import annotations

from typing import Protocol

from workerdiag.model.evidence import LogExcerpt

#: Lines before and after a message, and the bytes that they may have.
_CONTEXT_LINES = 3
_CONTEXT_BYTES = 2 * 1024
#: Bytes kept of a last line without an end.
_LINE_BYTES = 8 * 1024


class MatchObserver(Protocol):
    """
    Somebody who wants the text around each match.
    """

    def on_match(self, origin: str, sign: tuple[str, str], message: LogExcerpt) -> None:
        """
        A message of the log *origin* shows *sign* (its owner, and its name).
        """


def message_excerpt(data: bytes, base: int, first: int, last: int, line: int) -> LogExcerpt:
    """
    A message with a few lines before and after it.

    Args:
        data: Bytes of the log.
        base: Place of the first of them.
        first: Place where the first line of the message begins.
        last: Place where its last line begins.
        line: Number of its first line.
    """
    begin = _context_start(data, first - base)
    end = _context_end(data, last - base)
    return LogExcerpt(base + begin, line - data.count(b"\n", begin, first - base), data[begin:end])


def _context_start(data: bytes, at: int) -> int:
    reach = max(0, at - _CONTEXT_BYTES)
    for _ in range(_CONTEXT_LINES):
        newline = data.rfind(b"\n", reach, max(reach, at - 1))
        if newline < 0:
            return at if reach else 0
        at = newline + 1
    return at


def _context_end(data: bytes, at: int) -> int:
    newline = data.find(b"\n", at, at + _LINE_BYTES)
    if newline < 0:
        return at + _LINE_BYTES
    at = newline + 1
    reach = at + _CONTEXT_BYTES
    for _ in range(_CONTEXT_LINES):
        newline = data.find(b"\n", at, reach)
        if newline < 0:
            return len(data) if reach >= len(data) else at
        at = newline + 1
    return at


def context_bounds(data: bytes, start: int, end: int, least: int) -> tuple[int, int] | None:
    """
    From where to where a message can be cut out, so that it has the same excerpt there; None if it cannot.

    Args:
        data: Bytes of the log.
        start: Place where its first line begins.
        end: Place behind its last line.
        least: At least so many bytes behind it stay.
    """
    behind = end
    for _ in range(_CONTEXT_LINES):
        behind = data.find(b"\n", behind, end + _CONTEXT_BYTES) + 1
        if not behind:
            return None
    return _context_start(data, start), max(behind, min(end + least, len(data)))
