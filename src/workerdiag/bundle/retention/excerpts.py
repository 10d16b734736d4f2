"""
Shortening and joining excerpts of a log: whole lines where there are line ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from workerdiag.model.excerpt import LogExcerpt


def head_excerpt(excerpt: LogExcerpt, size: int) -> LogExcerpt:
    """
    At most the first *size* bytes.
    """
    if len(excerpt.data) <= size:
        return excerpt
    newline = excerpt.data.rfind(b"\n", 0, size)
    return excerpt.part(0, newline + 1 if newline >= 0 else size)


def tail_excerpt(excerpt: LogExcerpt, size: int) -> LogExcerpt:
    """
    At most the last *size* bytes.
    """
    length = len(excerpt.data)
    if length <= size:
        return excerpt
    newline = excerpt.data.find(b"\n", length - size - 1, length - 1)
    return excerpt.part(newline + 1 if newline >= 0 else length - size, length)


def merge_excerpts(excerpts: Iterable[LogExcerpt]) -> Iterator[LogExcerpt]:
    """
    The excerpts of one log in its order; those that overlap or follow each other as one.
    """
    joined: list[bytes] = []
    start = line = end = 0
    for each in sorted(excerpts):
        if not each.data or (joined and each.end <= end):
            continue
        if joined and each.start <= end:
            joined.append(each.data[end - each.start :])
        else:
            if joined:
                yield LogExcerpt(start, line, b"".join(joined))
            joined, start, line = [each.data], each.start, each.line
        end = each.end
    if joined:
        yield LogExcerpt(start, line, b"".join(joined))
