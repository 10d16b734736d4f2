r"""
Undoing what copying did to a log: hard-wrapped lines, line ends written as ``\n``, tuples of records.

The latter are what ``client.get_worker_logs()`` prints. Only done where the whole log is small, for
only then can its shape be judged; a report's excerpt is, a cluster's log is not.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from itertools import pairwise

from attrs import frozen

from workerdiag.matching.text.line_parser import parse_line

#: Excerpts are smaller than this.
MAX_BYTES = 256 * 1024
#: Terminals are at least and at most so wide.
_WIDTHS = range(60, 241)
#: Widths that terminals have by themselves; a single line of such a width may have been cut there.
_USUAL_WIDTHS = (80, 100, 120, 132)
#: How a record of ``get_worker_logs`` begins: level and text (distributed/node.py, ``get_logs``).
_PRINTED_RECORD = re.compile(rb"""\(['"](?:DEBUG|INFO|WARNING|ERROR|CRITICAL)['"], ['"]""")
#: Where an object of a JSON list ends and the next begins; and a header of Dask's in a JSON string.
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
_OPENING = (b"{", b"[", b"(")
#: How a record's text begins that has a time.
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.,]\d{3}")
#: Between records of one list stands no more.
_BETWEEN = re.compile(rb"[\s,]*")


@frozen(kw_only=True)
class RepairedText:
    """
    The text as it was written, and which line of the given text each of its lines began in.
    """

    data: bytes
    #: Line number, from 1, in the given text, for each line.
    line_numbers: tuple[int, ...]


def repair_text(data: bytes) -> RepairedText | None:
    """
    *data* without the damage, or None where there is none to see.
    """
    whole = split_log_records(data) or _split_json_objects(data) or _mended_lines(data)
    if whole is None:
        return None
    return RepairedText(
        data=b"\n".join(line for _, line in whole), line_numbers=tuple(number for number, _ in whole)
    )


def _split_json_objects(data: bytes) -> list[tuple[int, bytes]] | None:
    """
    Objects of a JSON list on one line become lines of their own, where Dask's messages are among several.

    So CloudWatch and Cloud Logging answer, and `jq -c` prints.
    """
    if _OF_DASK.search(data) is None:  # as in most logs
        return None
    lines = data.split(b"\n")
    if not any(line.lstrip().startswith((b"{", b"[")) and _holds_messages(line) for line in lines):
        return None
    return [(number, part) for number, line in enumerate(lines, 1) for part in _BETWEEN_OBJECTS.split(line)]


def _holds_messages(line: bytes) -> bool:
    return _OF_DASK.search(line) is not None and len(_MESSAGE_KEY.findall(line)) > 1


def _mended_lines(data: bytes) -> list[tuple[int, bytes]] | None:
    lines = [(number, line) for number, line in enumerate(data.split(b"\n"), 1)]
    rejoined = _rejoin_wrapped(lines)
    text = b"\n".join([line for _, line in rejoined]) if rejoined else data
    separated = _split_escaped_ends(rejoined or lines, text)
    recorded = _split_record_tuples(separated or rejoined or lines) if _PRINTED_RECORD.search(text) else None
    return recorded or separated or rejoined


def _rejoin_wrapped(lines: list[tuple[int, bytes]]) -> list[tuple[int, bytes]] | None:
    """
    Lines of exactly the greatest width go on in the next one, which begins no message.
    """
    lengths = [
        len(line) if line.isascii() and line[-1:] != b"\r" else _line_columns(line) for _, line in lines
    ]
    width = max(lengths, default=0)
    if width not in _WIDTHS:
        return None
    full = [length == width for length in lengths]
    candidates = {index for index, is_full in enumerate(full) if is_full}
    if len({lines[index][1] for index in candidates}) < 2 and not _is_cut_in_word(
        lines, min(candidates), width
    ):
        return None
    begins = {
        index: _begins_message(lines[index][1])
        for index in candidates | {each + 1 for each in candidates}
        if index < len(lines)
    }
    cut = sum(not begins.get(each + 1, True) for each in candidates)
    if 2 * cut < len(candidates):  # most lines of that width are whole
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
    """
    Whether a terminal cut a line, the only one of its width, in the midst of a word.
    """
    after = lines[index + 1][1] if index + 1 < len(lines) else b""
    return width in _USUAL_WIDTHS and lines[index][1].rstrip(b"\r")[-1:].isalnum() and after[:1].islower()


def _split_escaped_ends(lines: list[tuple[int, bytes]], text: bytes) -> list[tuple[int, bytes]] | None:
    """
    Line ends written as backslash and n become ones, where the *text* has more of them than real ones.

    The one at the end of a JSON string is no more than a line's own.
    """
    written = len(_ESCAPED_END.findall(text))
    if written < 2 or written < len(lines):
        return None
    return [(number, part) for number, line in lines for part in _ESCAPED_END.split(line)]


def _split_record_tuples(lines: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """
    Records printed one after the other, as ``('INFO', '2026-...')``, become lines of their own.
    """
    return [(number, part) for number, line in lines for part in _PRINTED_RECORD.split(line)]


def _begins_message(line: bytes) -> bool:
    """
    Whether a line begins a message, or was passed on by somebody who begins each line.
    """
    parts = parse_line(line[:1000])
    return parts.is_header or bool(parts.forwarder) or not line.strip()


def _is_table_row(text: bytes) -> bool:
    """
    Whether a line is of a table: cells with blanks between them, or a rule.
    """
    return b"  " in text.strip() or not any(char in _LETTERS for char in text)


def _line_columns(line: bytes) -> int:
    text = line.rstrip(b"\r")
    return len(text if text.isascii() else text.decode("utf-8", errors="replace"))


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
