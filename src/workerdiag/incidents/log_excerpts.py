"""Excerpts of a log for deaths: its records, and merging the excerpts of several deaths."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from attrs import evolve

from workerdiag.model.evidence import Evidence, LogChunk

#: Format of the time of a record in `workerdiag.sources.cluster.logs`, in UTC.
RECORD_TIME = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),\d{3} - ")
_TIME_CHARS = len("2026-11-21 10:02:03,123")


def log_records(text: str) -> Iterator[str]:
    """Yield the records of a log, each with its continuation lines."""
    record = ""
    for line in text.splitlines(keepends=True):
        if RECORD_TIME.match(line) and record:
            yield record
            record = ""
        record += line
    if record:
        yield record


def merge_log_excerpts(pieces: Iterable[Evidence]) -> list[Evidence]:
    """Merge the excerpts of each log: each record once, in order of time.

    A record that repeats within a millisecond stays as often as in the excerpt with the most copies.
    """
    merged: list[Evidence] = []
    excerpts: dict[LogChunk, tuple[int, Counter[str]]] = {}
    for piece in pieces:
        text = piece.data.decode("utf-8", "replace") if isinstance(piece, LogChunk) else ""
        if not isinstance(piece, LogChunk) or not RECORD_TIME.match(text):
            merged.append(piece)
            continue
        place, counts = excerpts.setdefault(evolve(piece, data=b""), (len(merged), Counter()))
        if place == len(merged):
            merged.append(piece)
        counts |= Counter(log_records(text))
    for log, (place, counts) in excerpts.items():
        records = sorted(counts.elements(), key=lambda record: record[:_TIME_CHARS])
        merged[place] = evolve(log, data="".join(records).encode())
    return merged
