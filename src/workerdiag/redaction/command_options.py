"""Secrets that programs take with options of one letter: ``curl -u user:x``, ``mysql -px``."""

from __future__ import annotations

import re
from collections.abc import Mapping

from workerdiag.redaction.values import HIDDEN
from workerdiag.redaction.visible_text import quoted_span

#: Options stand at most this far from the program's name, in the same line.
MAX_CHARS = 600
#: For each program its options, and how their values are written.
_OPTIONS: Mapping[str, re.Pattern[str]] = {
    "curl": re.compile(r"(?:-[a-zA-Z]{0,6}[uU]|--user|--proxy-user)(?=\W|\w+:)"),
    "mysql": re.compile(r"-p(?=\S)"),
    "mariadb": re.compile(r"-p(?=\S)"),
    "sshpass": re.compile(r"-p"),
    "login": re.compile(r"-p(?=\s|[\"'],)"),
    "mongo": re.compile(r"-p(?=\s|[\"'],)"),
    "redis-cli": re.compile(r"-a(?=\s|[\"'],)"),
    "ldap": re.compile(r"-w(?=\s|[\"'],)"),
    "smbclient": re.compile(r"-U(?=\s|[\"'],)"),
    "zip": re.compile(r"-P"),
    "7z": re.compile(r"-p"),
}
_BETWEEN = re.compile(r"(?:[\"'],\s?|=|\s{1,4})?")
_VALUE_END = re.compile(r"[\s\"']")


def option_at(text: str, at: int, program: str) -> tuple[int, int] | None:
    """The span to hide behind the option that begins at *at*, if it is one of *program* that takes a secret."""
    option = _OPTIONS[program].match(text, at)
    if option is None:
        return None
    between = _BETWEEN.match(text, option.end())
    begin = between.end() if between else option.end()
    if string := quoted_span(text, begin):
        begin, end, _ = string
    else:
        stop = _VALUE_END.search(text, begin)
        end = stop.start() if stop else len(text)
    if program in {"curl", "smbclient"}:  # ``user:password``, ``user%password``
        cut = text.find(":" if program == "curl" else "%", begin, end)
        begin = cut + 1 if cut >= 0 else end
    value = text[begin:end]
    return None if value in {"", HIDDEN} or value.startswith("-") else (begin, end)
