"""
Lines of logs whose collector puts each into a JSON object: what Dask wrote, without the object around it.
"""

from __future__ import annotations

import json

from workerdiag.errors import utf8_safe
from workerdiag.matching.regex import Pattern, pattern

_TEXT = r'("(?:[^"\\]|\\.)*")'
#: Keys that collectors keep the line under: Docker's json-file, Cloud Logging, Loki, CloudWatch, structlog.
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
#: A line of distributed's own making has its logger's name in it.
_OF_DASK = pattern(r"\b(?:distributed|tornado|dask)(?:\.[\w.]+)? - (?:DEBUG|INFO|WARNING|ERROR|CRITICAL) - ")
#: A frame of Python's, in a traceback of many lines.
_FRAME = pattern(r'(?m:^) *File "[^"\n]+", line \d+')


def unwrap_json_line(text: str) -> tuple[str, str] | None:
    """
    The line in a JSON object, with its header, and the time that the object gives; None if it is none such.

    Objects of others (events of Kubernetes, answers of clouds) say more than their message, and stay whole.
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
