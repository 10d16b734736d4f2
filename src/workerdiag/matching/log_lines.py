"""The parser for one line of a log: prefixes of forwarders, time, logger, level, message.

The formats are those of distributed and others seen in practice: see docs/how-it-works.md. Times name no time zone,
so they are read as UTC; syslog names no year. Text that proves nothing is recognised too: guesses at a reason, and
the ends of programs that are not workers.
"""

from __future__ import annotations

import html
import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from workerdiag.errors import utf8_safe
from workerdiag.matching.regex import Pattern, pattern
from workerdiag.model.diagnosis import Match
from workerdiag.model.normalize import whole
from workerdiag.model.vocabulary import MatchRole, Stream
from workerdiag.values import evolve, frozen

_LOGGER = r"(?P<logger>(?:distributed|tornado|dask|dask_\w+|asyncio|bokeh|coiled|py\.warnings|root)(?:\.[\w.]+)?)"
_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])", re.IGNORECASE)
#: Characters that word processors and web pages use for quotes and brackets.
_TYPEWRITTEN = str.maketrans("\u2018\u2019\u201a\u2032\u201c\u201d\u201e\u2033\u00a0", "''''\"\"\"\" ")
_ENTITY = Pattern(r"&(?:quot|apos|lt|gt|amp|nbsp|#39|#x27|#34);")

_LEVELS = frozenset({"DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"})
#: Beginnings of the logger names in headers.
_LOGGER_WORDS = ("DISTRIBUTED", "TORNADO", "DASK", "ASYNCIO", "BOKEH", "COILED", "PY.WARNINGS", "ROOT")
_LEVEL = r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL)"

#: Header formats, the most usual first. Each ends where the message begins.
_HEADERS = tuple(
    Pattern(shape)
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
_OTHER_HEADERS = (
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
_STREAM_SHAPES: Mapping[Stream, str] = {
    "kernel": r"^\[\s*\d+\.\d{6}\] |^kernel: |oom-kill:constraint=|invoked oom-killer:|oom_reaper: reaped process|\): segfault at [0-9a-f]+ |\]: segfault at [0-9a-f]+ ",
    "batch": r"^slurmstepd: |^srun: |^=>> PBS: |^TERM_[A-Z]+:|^sacct |JobState=|^JobID\|JobName|^qsub_time|^MOAB_INFO|^PBS Job Id:",
    "kubernetes": r"^\s*(?:Last State|Restart Count|Container ID):\s|^\s+(?:State|Reason|Exit Code):\s|^(?:State|Reason|Exit Code):\s{2}|^\S+ +(?:Normal|Warning) +[A-Z]\w+ +\S+|^LAST SEEN |^Events:",
}
_LOGGERS_OF_STREAM: Mapping[Stream, tuple[str, ...]] = {
    "nanny": ("distributed.nanny", "distributed.process", "distributed.dask_worker"),
    "worker": ("distributed.worker", "distributed.spill", "distributed.diskutils"),
    "scheduler": ("distributed.scheduler", "distributed.active_memory_manager", "distributed.stealing"),
    "client": ("distributed.client", "distributed.deploy"),
}


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
        text = _ANSI.sub("", text)
    if is_plain(text[:400]):
        return ParsedLine(text=text)
    text, forwarder, host, tag, outer_time = without_prefixes(text)
    if text.lstrip()[:1] in ("{", '"') and (inner := unwrap_json_line(text)) is not None:
        text, inner_time = inner
        outer_time = inner_time or outer_time
    head = text[:400]
    upper = head.upper()
    is_any = any(each in upper for each in _LEVELS) and any(each in upper for each in _LOGGER_WORDS)
    for shape in _HEADERS if is_any else ():
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
        is_header=tag == "kernel" or pattern(_OTHER_HEADERS).search(head) is not None,
        stream=stream,
        **_line_time(head[:40], outer_time),
        forwarder=forwarder,
        host=host,
    )


def _parse_usual(text: str) -> ParsedLine | None:
    """Parse a line of the format that distributed has used since 2022.3.0, of any logger: most lines."""
    time, _, rest = text.partition(" - ")
    logger, _, rest = rest.partition(" - ")
    level, dash, message = rest.partition(" - ")
    if not dash or len(time) != 23 or level not in _LEVELS or not logger or " " in logger:
        return None
    try:  # 2026-05-04 11:22:33,444
        when = datetime.fromisoformat(f"{time[:19]}+00:00").timestamp() + int(time[20:]) / 1000
    except ValueError:
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


def _line_time(own: str, outer: str) -> dict[str, Any]:
    """Return the time of the line, else that of its forwarder; and whether its year is assumed."""
    if own.count(":") < 2 and not outer:  # each time has two colons
        return {}
    own_time = parse_time(own) if ":" in own else None
    is_assumed = _SYSLOG.search(outer if own_time is None else own) is not None
    return {"when": parse_time(outer) if own_time is None else own_time, "year_assumed": is_assumed}


@lru_cache(maxsize=256)
def _stream_of_logger(logger: str) -> Stream | None:
    logger = logger.lower()
    return next((stream for stream, starts in _LOGGERS_OF_STREAM.items() if logger.startswith(starts)), None)


def _stream_of_shape(head: str) -> Stream | None:
    return next((stream for stream, shape in _STREAM_SHAPES.items() if pattern(shape).search(head)), None)


#: Prefixes of forwarded lines. ``who`` names a container, host or file.
_SHAPES = (
    r"^(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d))[ \t](?:std(?:out|err) [FP] )?",
    r"^\[(?P<time>\d{4}-\d\d-\d\d(?:[T ]|, )\d\d:\d\d:\d\d)[^\]]{0,20}\] \{[\w.]+:\d+\} [A-Z]+ - ",  # Airflow
    r"^ *(?P<time>[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d) (?P<host>[\w.-]+) (?P<tag>[\w./@+-]+)(?:\[(?P<tagpid>\d+)\])?: ?",
    r"^ *(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)) (?P<host>[\w.-]+) (?P<tag>[\w./@+-]+)(?:\[(?P<tagpid>\d+)\])?: ?",
    r"^ *\[ *\d+\.\d{6}\] (?P<tag>cloud-init)\[(?P<tagpid>\d+)\]: ",
    r"^(?P<who>[\w.-]+[_-]\d+) +\| ?",  # docker-compose
    r"^(?P<who>[\w.-]+\.\d+\.[a-z0-9]{12,25}@[\w.-]+) +\| ?",  # docker service logs
    r"^(?P<who>[\w.-]+/[\w.-]+/[0-9a-f]{12,64}) ",  # aws logs tail, of a stream of ECS
    r"^\[(?P<who>pod/[^\]]+)\] ",  # kubectl logs --prefix
    r"^\[ *(?:worker|scheduler) (?P<who>[\w.-]+)(?::\d+)? *\] *: ?",  # dask-ssh
    r"^(?P<time>\d\d:\d\d:\d\d(?:\.\d+)?) \[(?P<who>[\w./-]+)\] ",
    r"^(?P<who>[\w.-]+\.[oe]\d+(?:\.[\w.-]+)?):",  # grep over job files
    r"^(?P<who>[a-z]+\d+[a-z]\d+[a-z]\d+|[a-z]+-?\d+): ",  # pdsh, clush
    r"^(?:E {3,}|> )",  # pytest, quoting
)
_PREFIXES = tuple(map(Pattern, _SHAPES))
#: All of them in one pattern, to skip lines without a prefix, which are most.
_ANY_PREFIX = re.sub(r"\(\?P<\w+>", "(?:", "|".join(_SHAPES))
#: All of them, headers or what is in each of them, times, and beginnings of JSON.
_ANY_SHAPE = "|".join(
    (_ANY_PREFIX, _OTHER_HEADERS, *_STREAM_SHAPES.values(), rf"(?:{_LEVEL})\b", r"\d\d:\d\d:\d\d", r'^\W*[{"]')
)
_NOT_PLAIN = Pattern(f"(?m){_ANY_SHAPE}")
_TEXT = r'("(?:[^"\\]|\\.)*")'
#: Keys under which collectors store the line: Docker's json-file, Cloud Logging, Loki, CloudWatch, structlog.
_MESSAGE = Pattern(rf'"(?P<key>log|textPayload|line|message|msg|event)"\s*:\s*(?P<text>{_TEXT})')
_TIME = Pattern(r'"(?:time|timestamp|ts|asctime|@timestamp)"\s*:\s*"(?P<value>\d{4}-\d\d-\d\d[T ][\d:.,]{8,18})')
_LOGGER_FIELD = Pattern(
    r'"(?:logger|name|logger_name|log\.logger)"\s*:\s*"(?P<value>(?:distributed|tornado|dask)(?:\.[\w.]+)?)"'
)
_LEVEL_FIELD = Pattern(
    r'"(?:level|levelname|severity|log_level|log\.level)"\s*:\s*"(?P<value>debug|info|warning|error|critical)"'
)
#: The logger's name, which is in each line that distributed formats.
_OF_DASK = Pattern(r"\b(?:distributed|tornado|dask)(?:\.[\w.]+)? - (?:DEBUG|INFO|WARNING|ERROR|CRITICAL) - ")
_FRAME = Pattern(r'(?m:^) *File "[^"\n]+", line \d+')


def is_plain(text: str) -> bool:
    """Whether the lines of *text*, without escapes of terminals, surely have neither header, prefix nor shape."""
    return _NOT_PLAIN.search(text) is None


def without_prefixes(text: str) -> tuple[str, str, str | None, str, str]:
    """Return the line without prefixes, and the forwarder, host, program and time that they name."""
    forwarder, host, tag, time = "", None, "", ""
    for _ in range(4):
        head = text[:200]
        if pattern(_ANY_PREFIX).search(head) is None:
            break
        for shape in _PREFIXES:
            found = shape.search(head)
            if found is None or found.span()[1] == 0:
                continue
            groups = found.groupdict()
            host = groups.get("host") or host
            tag = groups.get("tag") or tag
            time = groups.get("time") or time  # the innermost: of the writer
            forwarder += "".join(groups.get(key) or "" for key in ("who", "host", "tag", "tagpid"))
            text = text[found.span()[1] :]
            break
        else:
            break
    return text, forwarder, host, tag, time


def unwrap_json_line(text: str) -> tuple[str, str] | None:
    """Return the line in a JSON object, with its header, and the time of the object; None without a line.

    Other objects (events of Kubernetes, replies of clouds) say more than their message, and stay whole.
    """
    if (found := _MESSAGE.search(text)) is None:
        return None
    groups = found.groupdict()
    try:
        inner = utf8_safe(str(json.loads(groups["text"] or '""'))).rstrip("\n")
    except ValueError:
        return None
    logger, level = _field_text(_LOGGER_FIELD, text), _field_text(_LEVEL_FIELD, text)
    if logger and level:
        return f"{logger} - {level.upper()} - {inner}", _field_text(_TIME, text)
    of_container = groups["key"] == "log" and '"stream"' in text
    of_program = _OF_DASK.search(inner[:200]) or _FRAME.search(inner)
    if of_container or groups["key"] == "textPayload" or of_program:
        return inner, _field_text(_TIME, text)
    return None


def _field_text(key: Pattern, text: str) -> str:
    found = key.search(text)
    return (found.groupdict()["value"] or "") if found else ""


_ISO = Pattern(
    r"(?P<y>\d{4})[-/](?P<mo>\d\d)[-/](?P<d>\d\d)(?:[T ]|, )(?P<time>\d\d:\d\d:\d\d)(?:[.,](?P<f>\d{1,9}))?"
)
_SYSLOG = Pattern(r"^(?P<mo>[A-Z][a-z]{2}) +(?P<d>\d{1,2}) (?P<time>\d\d:\d\d:\d\d)")
_MONTHS = {name: number for number, name in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split(), 1)}


def parse_time(text: str) -> float | None:
    """Return seconds since the epoch, read as UTC; None if the text has no date."""
    if found := _ISO.search(text):
        part = found.groupdict()
        date = f"{part['y']}-{part['mo']}-{part['d']}"
    elif found := _SYSLOG.search(text):
        part = found.groupdict()
        now = datetime.now(tz=UTC)
        month, day = _MONTHS.get((part["mo"] or "").lower(), 0), int(part["d"] or 0)
        year = now.year - ((month, day) > (now.month, now.day + 1))  # a log is not of the future
        date = f"{year}-{month:02}-{day:02}"
    else:
        return None
    try:
        moment = datetime.fromisoformat(f"{date} {part['time']}+00:00")
    except ValueError:
        return None
    return moment.timestamp() + float(f"0.{part.get('f') or 0}")


def infer_years(matches: Sequence[Match]) -> list[Match]:
    """Return the *matches*, with assumed years replaced by the year closest to a known time, if there is one."""
    known = sorted(each.when for each in matches if each.when is not None and not each.year_assumed)
    if not known:
        return list(matches)
    years = sorted({datetime.fromtimestamp(when, tz=UTC).year + more for when in known for more in (-1, 0, 1)})
    return [_in_nearest_year(each, known, years) if each.year_assumed and each.when else each for each in matches]


def _in_nearest_year(match: Match, known: Sequence[float], years: Sequence[int]) -> Match:
    times = []
    for year in years:
        with suppress(ValueError):  # 29 February
            times.append(datetime.fromtimestamp(match.when or 0.0, tz=UTC).replace(year=year).timestamp())
    nearest = min(times, key=lambda when: _nearest_time_s(when, known), default=match.when)
    return evolve(match, when=nearest, year_assumed=False)


def _nearest_time_s(when: float, known: Sequence[float]) -> float:
    place = bisect_left(known, when)
    return min(abs(when - each) for each in known[max(0, place - 1) : place + 1])


#: Landmarks and signs that say that a process ended, how, or why.
_OF_ENDS: tuple[MatchRole, ...] = ("sign", "exit-report", "death", "trouble")
#: Openings after which the rest of the sentence is a guess.
_MAY_BE = (
    r"\b(?:could|can|might|may|would)(?: (?:also|have|well|possibly))?(?: be| been)?"
    r" (?:caused by|due to|because|the result of|a result of|triggered by|lead to|result in|cause)\b"
    r"|\b(?:likely|possibly|probably|often|usually|typically|either)(?: \w+)? (?:caused by|due to|because)\b"
    r"|\b(?:perhaps|maybe)\b"
)
#: Openings after which the rest of the line lists guesses.
_LISTED = r"\b(?:possible|potential|likely|probable|common|usual) (?:root )?(?:causes?|reasons?|explanations?)\b"
_SENTENCE_END = r"[.!?][)'\"]?(?:\s|$)|\n"
#: One of these is in every guess. Finding them takes 1.4 microseconds, the patterns 12.
_WORDS = ("caus", "due to", "result", "triggered", "lead to", "perhaps", "maybe", "reason", "explanation")


def without_other_programs(found: Sequence[Match]) -> list[Match]:
    """Return the matches, without the ends of programs that are not workers."""
    theirs = {line for each in found if each.role == "other-program" for line in _line_places(each)}
    if not theirs:
        return list(found)
    return [each for each in found if each.role not in _OF_ENDS or theirs.isdisjoint(_line_places(each))]


def _line_places(mark: Match) -> Iterator[tuple[str, int]]:
    for line in range(mark.line, max(mark.line, mark.last_line) + 1):
        yield mark.origin, line


def guesses(text: str) -> Iterator[tuple[int, int]]:
    """Yield the bounds of the guesses in *text*."""
    lowered = text.lower()
    if not any(word in lowered for word in _WORDS):
        return
    for opening, ending in ((_MAY_BE, _SENTENCE_END), (_LISTED, r"\n")):
        for found in pattern(opening).finditer(text):
            start = found.span()[1]
            end = pattern(ending).search(text[start:])
            yield start, start + end.span()[0] if end else len(text)
