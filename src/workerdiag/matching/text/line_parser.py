"""The parser for one line of a log: prefixes of forwarders, time, logger, level, message.

The formats are those of distributed (``%(name)s - %(levelname)s - %(message)s``, preceded by a time since
2022.3.0) and others seen in practice: see docs/how-it-works.md.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from datetime import datetime
from functools import lru_cache
from typing import TypedDict

from attrs import frozen

from workerdiag.matching.regex import Pattern, pattern
from workerdiag.matching.text.envelopes import unwrap_json_line, without_prefixes
from workerdiag.matching.text.times import has_no_year, parse_time
from workerdiag.model.normalize import whole
from workerdiag.model.vocabulary import Stream

#: Characters of a line in which to look for its header.
_HEAD_CHARS = 400

_ANSI = pattern(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")

_LOGGER = (
    r"(?P<logger>(?:distributed|tornado|dask|dask_\w+|asyncio|bokeh|coiled|py\.warnings|root)(?:\.[\w.]+)?)"
)
#: Characters that word processors and web pages use for quotes and brackets.
_TYPEWRITTEN = str.maketrans("\u2018\u2019\u201a\u2032\u201c\u201d\u201e\u2033\u00a0", "''''\"\"\"\" ")
_ENTITY = pattern(r"&(?:quot|apos|lt|gt|amp|nbsp|#39|#x27|#34);")

_LEVELS = frozenset({"DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"})
#: Beginnings of the logger names in headers.
_LOGGER_WORDS = ("DISTRIBUTED", "TORNADO", "DASK", "ASYNCIO", "BOKEH", "COILED", "PY.WARNINGS", "ROOT")
_LEVEL = r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL)"

#: Header formats, the most usual first. Each ends where the message begins.
_HEADERS = tuple(
    pattern(shape)
    for shape in (
        rf"{_LOGGER}\s+-\s+{_LEVEL}\s+-\s?",  # the format of distributed
        rf"\b{_LEVEL}\s*\]?\s*\|?\s+{_LOGGER}\s*[-|:]\s?",  # 09:56:47.204 | WARNING | distributed.core - ...
        rf"\[{_LEVEL}\s*\]\s*{_LOGGER}\s*[-|:]?\s?",
        rf"{_LEVEL}:{_LOGGER}:\s?",  # logging.basicConfig
        rf"{_LOGGER}\s*-\s*{_LEVEL}\s*[-:]\s?",
        rf"{_LOGGER}(?:\[(?P<pid>\d+)\])?\s+{_LEVEL}\s+",  # distributed.nanny[36214] INFO ...
        rf"\[{_LOGGER}\]\s*\[?{_LEVEL}\]?\s*[-:]?\s?",
    )
)

#: Headers without a known logger. They begin a message too.
_OTHER_HEADER = pattern(
    r"^\[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d"
    r"|^\[\s*\d+\.\d{6}\]"
    r"|^(?:slurmstepd|srun|sbatch|sacct|pdsh|kubelet|systemd|systemd-\w+|Fatal Python error|Windows fatal exception)\b"
    r"|^(?:TERM_[A-Z]+|=>> PBS):"
    r"|^[A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d"
    r"|^\[?\d\d:\d\d:\d\d[.,]\d{3}"
    r"|^(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b *[:|\[]"
    r"|^\[?(?-i:DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL)\b\]?[ \t]"
)

#: Streams by the form of a line, if there is no logger: the first match counts.
_STREAM_SHAPES: tuple[tuple[Stream, Pattern], ...] = (
    (
        "kernel",
        pattern(
            r"^\[\s*\d+\.\d{6}\] |^kernel: |oom-kill:constraint=|invoked oom-killer:|oom_reaper: reaped process|\): segfault at [0-9a-f]+ |\]: segfault at [0-9a-f]+ "
        ),
    ),
    (
        "batch",
        pattern(
            r"^slurmstepd: |^srun: |^=>> PBS: |^TERM_[A-Z]+:|^sacct |JobState=|^JobID\|JobName|^qsub_time|^MOAB_INFO|^PBS Job Id:"
        ),
    ),
    (
        "kubernetes",
        pattern(
            r"^\s*(?:Last State|Restart Count|Container ID):\s|^\s+(?:State|Reason|Exit Code):\s|^(?:State|Reason|Exit Code):\s{2}|^\S+ +(?:Normal|Warning) +[A-Z]\w+ +\S+|^LAST SEEN |^Events:"
        ),
    ),
)
#: All of them in one pattern, to skip other lines.
_ANY_STREAM_SHAPE = pattern("|".join(shape.text for _, shape in _STREAM_SHAPES))
_STREAM_OF_LOGGER: tuple[tuple[str, Stream], ...] = (
    ("distributed.nanny", "nanny"),
    ("distributed.process", "nanny"),
    ("distributed.dask_worker", "nanny"),
    ("distributed.worker", "worker"),
    ("distributed.spill", "worker"),
    ("distributed.diskutils", "worker"),
    ("distributed.scheduler", "scheduler"),
    ("distributed.active_memory_manager", "scheduler"),
    ("distributed.stealing", "scheduler"),
    ("distributed.client", "client"),
    ("distributed.deploy", "client"),
)


class _LineTime(TypedDict, total=False):
    when: float | None
    year_assumed: bool


@frozen(kw_only=True)
class ParsedLine:
    """One parsed line."""

    #: The line without prefixes of forwarders, but with its header.
    text: str
    #: Offset of the message in ``text``; 0 without a header.
    message_at: int = 0
    #: Whether it begins a message.
    is_header: bool = False
    logger: str | None = None
    level: str | None = None
    stream: Stream | None = None
    when: float | None = None
    #: Whether the text has no year, so that one is assumed.
    year_assumed: bool = False
    #: The forwarder: lines of different forwarders are not parts of one message.
    forwarder: str = ""
    host: str | None = None
    pid: int | None = None

    @property
    def message(self) -> str:
        """The text behind the header."""
        return self.text[self.message_at :]


def parse_line(raw: bytes) -> ParsedLine:
    """Parse one line, given without its line end. Never fails: invalid UTF-8 is replaced."""
    text = raw.decode("utf-8", errors="replace").rstrip("\r")
    if not text.isascii():
        text = text.translate(_TYPEWRITTEN)
    if "&" in text and _ENTITY.search(text):
        text = html.unescape(text)
    if text.startswith('  File "'):  # of a traceback: frequent enough for a shortcut
        return ParsedLine(text=text)
    if usual := _parse_usual(text):
        return usual
    if "\x1b" in text:
        text = _without_ansi(text)
    text, forwarder, host, tag, outer_time = without_prefixes(text)
    if text.lstrip()[:1] in ("{", '"') and (inner := unwrap_json_line(text)) is not None:
        text, inner_time = inner
        outer_time = inner_time or outer_time
    head = text[:_HEAD_CHARS]
    for shape in _HEADERS if _names_level_and_logger(head) else ():
        if found := shape.search(head):
            header_at, message_at = found.span()
            groups = found.groupdict()
            logger = groups["logger"]
            return ParsedLine(
                text=text,
                message_at=message_at,
                is_header=True,
                logger=logger,
                level=(groups["level"] or "").upper(),
                stream=_stream_of_logger(logger or ""),
                **_line_time(head[:header_at], outer_time),
                forwarder=forwarder,
                host=host,
                pid=whole(groups.get("pid")) if (logger or "").startswith("distributed.worker") else None,
            )
    stream = "kernel" if tag == "kernel" else _stream_of_shape(head)
    return ParsedLine(
        text=text,
        is_header=tag == "kernel" or _OTHER_HEADER.search(head) is not None,
        stream=stream,
        **_line_time(head[:40], outer_time),
        forwarder=forwarder,
        host=host,
    )


def _parse_usual(text: str) -> ParsedLine | None:
    """Parse a line of the format that distributed has used since 2022.3.0, of any logger: quick, for most lines."""
    time, _, rest = text.partition(" - ")
    logger, _, rest = rest.partition(" - ")
    level, dash, message = rest.partition(" - ")
    if not dash or len(time) != 23 or level not in _LEVELS or not logger or " " in logger:
        return None
    when = _usual_time(time)
    if when is None:
        return None
    return ParsedLine(
        text=text,
        message_at=len(text) - len(message),
        is_header=True,
        logger=logger,
        level=level,
        stream=_stream_of_logger(logger),
        when=when,
    )


def _usual_time(text: str) -> float | None:
    """Return ``2026-05-04 11:22:33,444`` in seconds since the epoch; None for another format."""
    try:
        return datetime.fromisoformat(f"{text[:19]}+00:00").timestamp() + int(text[20:]) / 1000
    except ValueError:
        return None


def _names_level_and_logger(head: str) -> bool:
    upper = head.upper()
    return _holds_any(_LEVELS, upper) and _holds_any(_LOGGER_WORDS, upper)


def _holds_any(words: Iterable[str], text: str) -> bool:
    """Whether one of *words* is in *text*. For so few words, `any` takes three times as long."""
    for word in words:  # noqa: SIM110
        if word in text:
            return True
    return False


def _line_time(own: str, outer: str) -> _LineTime:
    """Return the time of the line, else that of its forwarder; and whether its year is assumed."""
    if own.count(":") < 2 and not outer:  # each time has two colons
        return {}
    own_time = parse_time(own) if ":" in own else None
    assumed = has_no_year(outer if own_time is None else own)
    return {"when": parse_time(outer) if own_time is None else own_time, "year_assumed": assumed}


def _without_ansi(text: str) -> str:
    parts, at = [], 0
    for found in _ANSI.finditer(text):
        start, end = found.span()
        parts.append(text[at:start])
        at = end
    return "".join((*parts, text[at:]))


@lru_cache(maxsize=256)
def _stream_of_logger(logger: str) -> Stream | None:
    logger = logger.lower()
    return next((stream for start, stream in _STREAM_OF_LOGGER if logger.startswith(start)), None)


def _stream_of_shape(head: str) -> Stream | None:
    if _ANY_STREAM_SHAPE.search(head) is None:
        return None
    return next((stream for stream, shape in _STREAM_SHAPES if shape.search(head)), None)
