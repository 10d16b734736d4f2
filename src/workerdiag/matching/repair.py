r"""Repairs logs that were damaged by copying: hard-wrapped lines, line ends written as ``\n``, tuples of records.

``client.get_worker_logs()`` prints such tuples. Only small logs are repaired, since the damage is judged by
the whole text: an excerpt in a bug report is small, the log of a cluster is not.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from itertools import pairwise

from workerdiag.matching.log_lines import parse_line

#: Maximum size of an excerpt, in bytes.
MAX_BYTES = 256 * 1024
#: Minimum and maximum width of a terminal.
_WIDTHS = range(60, 241)
#: Default widths of terminals; a single line of this width may have been cut there.
_USUAL_WIDTHS = (80, 100, 120, 132)
#: Beginning of a record of ``get_worker_logs``: level and text (distributed/node.py, ``get_logs``).
_PRINTED_RECORD = re.compile(rb"""\(['"](?:DEBUG|INFO|WARNING|ERROR|CRITICAL)['"], ['"]""")
#: The border between two objects of a JSON list; and a header of Dask's in a JSON string.
_BETWEEN_OBJECTS = re.compile(rb"(?<=\}),\s*(?=\{)")
_OF_DASK = re.compile(
    rb'"[^"\\]{0,60}\b(?:distributed|tornado|dask)(?:\.[\w.]+)? - (?:DEBUG|INFO|WARNING|ERROR|CRITICAL) - '
)
_MESSAGE_KEY = re.compile(rb'"(?:log|textPayload|line|message|msg|event)"\s*:\s*"')
_ESCAPED_END = re.compile(rb'\\n(?!")')
_LETTERS = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
#: One record: level and text (distributed/node.py, ``get_logs``).
_LOGGED_RECORD = re.compile(
    rb"""[\[(]\s*['"](?:DEBUG|INFO|WARNING|ERROR|CRITICAL)['"],\s*"""
    rb"""((?:(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"|'[^'\\]*+(?:\\.[^'\\]*+)*+')\s*+)++),?\s*[\])]""",
    re.DOTALL,
)
#: Beginning of the text of a record with a time.
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.,]\d{3}")
#: The text between records of one list.
_BETWEEN = re.compile(rb"[\s,]*")


def repair_text(data: bytes) -> list[tuple[int, bytes]] | None:
    """Return *data* without the damage, each line with the number of the line in which it began; or None."""
    return split_log_records(data) or _split_json_objects(data) or _mended_lines(data)


def _split_json_objects(data: bytes) -> list[tuple[int, bytes]] | None:
    """Split a JSON list of messages on one line, as of CloudWatch, Cloud Logging and `jq -c`, into lines."""
    if _OF_DASK.search(data) is None:  # the usual case
        return None
    lines = data.split(b"\n")
    if not any(
        line.lstrip().startswith((b"{", b"[")) and _OF_DASK.search(line) and len(_MESSAGE_KEY.findall(line)) > 1
        for line in lines
    ):
        return None
    return [(number, part) for number, line in enumerate(lines, 1) for part in _BETWEEN_OBJECTS.split(line)]


def _mended_lines(data: bytes) -> list[tuple[int, bytes]] | None:
    lines = list(enumerate(data.split(b"\n"), 1))
    rejoined = _rejoin_wrapped(lines, is_plain=data.isascii() and b"\r" not in data)
    text = b"\n".join([line for _, line in rejoined]) if rejoined else data
    separated = _split_escaped_ends(rejoined or lines, text)
    mended = separated or rejoined
    if _PRINTED_RECORD.search(text):  # consecutive records, such as ``('INFO', '2026-...')``
        return [(number, part) for number, line in mended or lines for part in _PRINTED_RECORD.split(line)]
    return mended


def _rejoin_wrapped(lines: list[tuple[int, bytes]], *, is_plain: bool) -> list[tuple[int, bytes]] | None:
    """Join lines of exactly the maximum width with the next line, unless that begins a message."""
    lengths = [len(line) if is_plain else _line_columns(line) for _, line in lines]
    width = max(lengths, default=0)
    if width not in _WIDTHS:
        return None
    full = [length == width for length in lengths]
    candidates = {index for index, is_full in enumerate(full) if is_full}
    if len({lines[index][1] for index in candidates}) < 2 and not _is_cut_in_word(lines, min(candidates), width):
        return None
    begins = {
        index: _begins_message(lines[index][1])
        for index in candidates | {each + 1 for each in candidates}
        if index < len(lines)
    }
    cut = sum(not begins.get(each + 1, True) for each in candidates)
    if 2 * cut < len(candidates):  # most lines of that width are complete
        return None
    whole: list[tuple[int, bytes]] = []
    goes_on = False
    for index, (number, line) in enumerate(lines):
        text, begun = line.rstrip(b"\r"), begins.get(index, True)
        if goes_on and not begun:
            first, before = whole.pop()
            whole.append((first, before + text))
        else:
            whole.append((number, text))
        goes_on = full[index] and not text.endswith(b"  ") and (begun or not _is_table_row(text))
    return whole if len(whole) < len(lines) else None


def _is_cut_in_word(lines: list[tuple[int, bytes]], index: int, width: int) -> bool:
    """Whether a terminal cut the only line of its width inside a word."""
    after = lines[index + 1][1] if index + 1 < len(lines) else b""
    return width in _USUAL_WIDTHS and lines[index][1].rstrip(b"\r")[-1:].isalnum() and after[:1].islower()


def _split_escaped_ends(lines: list[tuple[int, bytes]], text: bytes) -> list[tuple[int, bytes]] | None:
    """Replace line ends written as backslash and n within strings, if *text* has more of them than real ones."""
    written = len(_ESCAPED_END.findall(text))
    if written < 2 or written < len(lines):
        return None
    return [(number, part) for number, line in lines for part in _ESCAPED_END.split(line)]


def _begins_message(line: bytes) -> bool:
    parts = parse_line(line[:1000])
    return parts.is_header or bool(parts.forwarder) or not line.strip()


def _is_table_row(text: bytes) -> bool:
    """Whether a line is part of a table: cells separated by blanks, or a rule."""
    return b"  " in text.strip() or not any(char in _LETTERS for char in text)


def _line_columns(line: bytes) -> int:
    text = line.rstrip(b"\r")
    return len(text if text.isascii() else text.decode("utf-8", errors="replace"))


def split_log_records(data: bytes) -> list[tuple[int, bytes]] | None:
    """Return the numbered lines of all records, the oldest of each worker first; None if there are none."""
    if not data.lstrip().startswith((b"{", b"[", b"(")):
        return None
    lines: list[tuple[int, bytes]] = []
    for records in _lists(data):
        for number, text in _oldest_first(records):
            lines += [(number, line.encode("utf-8", "replace")) for line in text.rstrip("\n").split("\n")]
    return lines or None


def _lists(data: bytes) -> Iterator[list[tuple[int, str]]]:
    records: list[tuple[int, str]] = []
    number, counted, end = 1, 0, 0
    for found in _LOGGED_RECORD.finditer(data):
        if records and not _BETWEEN.fullmatch(data, end, found.start()):
            yield records
            records = []
        number += data.count(b"\n", counted, found.start(1))
        counted, end = found.start(1), found.end()
        records.append((number, _literal(found[1])))
    if records:
        yield records


def _literal(text: bytes) -> str:
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
