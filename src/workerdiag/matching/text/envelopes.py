"""The envelopes that forwarders put around each line: prefixes of collectors, containers and shells, and JSON."""

from __future__ import annotations

import json
import re

from workerdiag.errors import utf8_safe
from workerdiag.matching.regex import Pattern, pattern

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
_PREFIXES = tuple(map(pattern, _SHAPES))
#: All of them in one pattern, to skip lines without a prefix, which are most.
_ANY_PREFIX = pattern("|".join(re.sub(r"\(\?P<\w+>", "(?:", shape) for shape in _SHAPES))
_MAX_PREFIXES = 4
_TEXT = r'("(?:[^"\\]|\\.)*")'
#: Keys under which collectors store the line: Docker's json-file, Cloud Logging, Loki, CloudWatch, structlog.
_MESSAGE = pattern(rf'"(?P<key>log|textPayload|line|message|msg|event)"\s*:\s*(?P<text>{_TEXT})')
_TIME = pattern(
    r'"(?:time|timestamp|ts|asctime|@timestamp)"\s*:\s*"(?P<value>\d{4}-\d\d-\d\d[T ][\d:.,]{8,18})'
)
_LOGGER = pattern(
    r'"(?:logger|name|logger_name|log\.logger)"\s*:\s*"(?P<value>(?:distributed|tornado|dask)(?:\.[\w.]+)?)"'
)
_LEVEL = pattern(
    r'"(?:level|levelname|severity|log_level|log\.level)"\s*:\s*"(?P<value>debug|info|warning|error|critical)"'
)
#: The logger's name, which is in each line that distributed formats.
_OF_DASK = pattern(r"\b(?:distributed|tornado|dask)(?:\.[\w.]+)? - (?:DEBUG|INFO|WARNING|ERROR|CRITICAL) - ")
#: A frame in a Python traceback.
_FRAME = pattern(r'(?m:^) *File "[^"\n]+", line \d+')


def without_prefixes(text: str) -> tuple[str, str, str | None, str, str]:
    """Return the line without prefixes, and the forwarder, host, program and time that they name."""
    forwarder, host, tag, time = "", None, "", ""
    for _ in range(_MAX_PREFIXES):
        head = text[:200]
        if _ANY_PREFIX.search(head) is None:
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
    logger, level = _field_text(_LOGGER, text), _field_text(_LEVEL, text)
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
