"""
What ``client.get_worker_logs()`` returns, saved as JSON or printed: each worker's records, newest first.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from itertools import pairwise

#: One record: level and text (distributed/node.py, ``get_logs``).
_RECORD = re.compile(
    rb"""[\[(]\s*['"](?:DEBUG|INFO|WARNING|ERROR|CRITICAL)['"],\s*"""
    rb"""((?:(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"|'[^'\\]*+(?:\\.[^'\\]*+)*+')\s*+)++),?\s*[\])]""",
    re.DOTALL,
)
_OPENING = (b"{", b"[", b"(")
#: How a record's text begins that has a time.
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.,]\d{3}")
#: Between records of one list stands no more.
_BETWEEN = re.compile(rb"[\s,]*")


def split_log_records(data: bytes) -> list[tuple[int, bytes]] | None:
    """
    The lines of all records, each worker's oldest first, each with the number of the line it stands in.

    None where *data* is something else.
    """
    if not data.lstrip().startswith(_OPENING):
        return None
    lines: list[tuple[int, bytes]] = []
    for records in _lists(data):
        for number, text in _oldest_first(records):
            lines += [(number, line.encode("utf-8", "replace")) for line in text.rstrip("\n").split("\n")]
    return lines or None


def _lists(data: bytes) -> Iterator[list[tuple[int, str]]]:
    """
    The records of each list, with the numbers of their lines.
    """
    records: list[tuple[int, str]] = []
    number, counted, end = 1, 0, 0
    for found in _RECORD.finditer(data):
        if records and not _BETWEEN.fullmatch(data, end, found.start()):
            yield records
            records = []
        number += data.count(b"\n", counted, found.start(1))
        counted, end = found.start(1), found.end()
        records.append((number, _literal(found[1])))
    if records:
        yield records


def _literal(text: bytes) -> str:
    """
    The string that is written so, in JSON or in Python.
    """
    written = text.decode("utf-8", "replace").strip()
    try:
        return str(json.loads(written, strict=False))
    except ValueError:
        pass
    try:
        return str(ast.literal_eval(f"({written})"))
    except (ValueError, SyntaxError, MemoryError):
        return written[1:-1]


def _oldest_first(records: list[tuple[int, str]]) -> list[tuple[int, str]]:
    times = [found[0] for _, text in records if (found := _TIME.match(text))]
    return records[::-1] if any(later < earlier for earlier, later in pairwise(times)) else records
