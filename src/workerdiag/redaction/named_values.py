"""
Values that a name gives away: ``password=x``, ``"token": "x"``, ``<secret>x</secret>``, ``--api-key x``.
"""

from __future__ import annotations

import re
import string
from typing import NamedTuple

from workerdiag.redaction.quotes import quoted_span
from workerdiag.redaction.secret_names import is_key_in_company, is_secret_name
from workerdiag.redaction.values import is_no_secret, value_at

_MAX_NAME_CHARS = 100
#: A name whose value was hidden before.
_DONE = re.compile(r"(?a)[\w.-]{0,200}[\"']?[:=][ ]?([\"'])\[hidden\]\1(?!\1)")
_CHARS = string.ascii_letters + string.digits + "_-."
_TAIL = re.compile(r"(?a)[\w.-]{0,200}")
_BLANKS = r"[^\S\r\n]{0,20}"
_CLOSE = r"(?P<close>\\{0,16}[\"'`]|&quot;|&\#3[49];|[\u201d\u2019])?"
_TYPE = r":[ ]?(?:str|bytes|string|String|SecretStr|Optional\[str\]|str[ ]\|[ ]None)[ ]?="
_ASSIGNMENT = re.compile(
    rf"{_CLOSE}[\])]?(?P<sign>{_BLANKS}(?:{_TYPE}|:=|=>|={{1,3}}|:(?!//|:)|%3[dD]){_BLANKS})(?:\s{{1,80}}(?=\\{{0,16}}[\"']))?"
)
_ELEMENT = re.compile(r"(?:\s[^<>]{0,200})?(?<!/)>(?:<!\[CDATA\[)?|</name>\s{0,80}<value>")
_VALUED = re.compile(
    rf"{_CLOSE}[,;]?\s{{0,80}}(?:\\{{0,16}}[\"'])?[vV]alue(?:\\{{0,16}}[\"'])?\s{{0,8}}[:=]\s{{0,8}}"
)
_PAIR = re.compile(rf"{_CLOSE},\s{{0,8}}(?=[bBuUrR]?\\{{0,16}}[\"'])")
_PAIR_OPENS = re.compile(r"[\[(]\s?[bBuUrR]?\\{0,16}[\"']$")
_OPTION = re.compile(r"\s{1,4}(?=[^\s-])")
_OPTION_END = re.compile(r"\s")
_SPOKEN_ASSIGNMENT = re.compile(r"\s(?:is\s|was\s|=\s)?\s?(?=\\{0,16}[\"'])")
_NETRC = re.compile(r"\b(?:login|machine|account)\s{1,4}\S{1,200}\s{1,20}$")
_NETRC_VALUE = re.compile(r"\s{1,4}(\S{1,4000})")
_LOGGER = re.compile(r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL):$")
#: Names of which the value may be more than one word.
_PHRASES = re.compile(r"(?i)pass[wcp_-]|pwd")
_PASSWORDS = re.compile(r"(?i)pass(?:word|wd|phrase|code)$|pwd$")


class SecretName(NamedTuple):
    """
    The name of a secret in a text.
    """

    begins: int
    end: int
    name: str
    #: What stands before it, at most 40 characters.
    before: str


def name_at(text: str, at: int, hint: str) -> tuple[int, SecretName | None]:
    """
    Where the name ends of which *hint* stands at *at*, and the name if it is that of a secret.
    """
    if done := _DONE.match(text, at):
        return done.end(), None
    if hint[0] == "<":
        at += 1 + len(hint[1:].rpartition(":")[0])
        at += text[at : at + 1] == ":"
    tail = _TAIL.match(text, at)
    assert tail is not None  # it may be empty
    end = at + len(tail[0].rstrip("-."))
    begins = _name_start(text, at)
    name = text[begins:end].strip("-.")
    before = text[max(0, begins - 40) : begins]
    if is_secret_name(name) or is_key_in_company(name, before):
        return end, SecretName(begins, end, name, before)
    return max(end, at + 1), None


def value_of(text: str, secret: SecretName) -> tuple[int, int] | None:
    """
    From where to where what stands behind the name is to be hidden; None if there is no secret.
    """
    begins, end, name, before = secret
    if (gives := _ASSIGNMENT.match(text, end)) and not _is_file_or_logger(gives["sign"], before):
        spaced = _is_phrase(name, gives)
        return value_at(text, gives.end(), name, begins=begins, spaced=spaced)
    if before.endswith(("<", ":", "<name>")) and (element := _ELEMENT.match(text, end)):
        return _element_span(text, element.end())
    if valued := _VALUED.match(text, end):
        return value_at(text, valued.end(), name, begins=begins, spaced=False)
    if (pair := _PAIR.match(text, end)) and pair["close"]:
        return _pair_span(text, begins, pair.end(), name, before)
    return _spoken_span(text, begins, end, name)


def _name_start(text: str, at: int) -> int:
    before = text[max(0, at - _MAX_NAME_CHARS) : at]
    begins = at - (len(before) - len(before.rstrip(_CHARS)))
    return begins + (begins < at and text[begins - 1 : begins] == "\\" and text[begins] in "nrt")


def _is_file_or_logger(sign: str, before: str) -> bool:
    """
    Whether it is a file or a logger that something is said of: ``/run/secrets/token: no such file``.
    """
    is_colon = sign.strip() == ":"
    return is_colon and (
        (before.endswith(("/", "\\")) and sign.endswith(" ")) or _LOGGER.search(before) is not None
    )


def _is_phrase(name: str, gives: re.Match[str]) -> bool:
    sign = gives["sign"]
    return (
        not gives["close"]
        and sign.endswith((" ", "\t"))
        and (sign.strip() == ":" or sign.startswith(" "))
        and _PHRASES.search(name) is not None
    )


def _element_span(text: str, at: int) -> tuple[int, int] | None:
    end = text.find("<", at, at + 8000)
    end = end if end >= 0 else min(len(text), at + 8000)
    value = text[at:end]
    return None if value.strip() in {"", "[hidden]"} else (at, end)


def _pair_span(text: str, begins: int, at: int, name: str, before: str) -> tuple[int, int] | None:
    """
    ``('password', 'x')``, and ``'--password', 'x'`` among the arguments of a command.
    """
    string = quoted_span(text, at)
    is_pair = _PAIR_OPENS.search(before) and string and text[string[2] : string[2] + 1] in {")", "]"}
    if not is_pair and text[begins] != "-":
        return None
    return value_at(text, at, name, begins=begins, spaced=False)


def _spoken_span(text: str, begins: int, end: int, name: str) -> tuple[int, int] | None:
    if text[begins] == "-" and (option := _OPTION.match(text, end)):
        if text[option.end()] in "\"'\\":
            return value_at(text, option.end(), name, begins=begins, spaced=False)
        stop = _OPTION_END.search(text, option.end())
        found = (option.end(), stop.start() if stop else len(text))
        return None if is_no_secret(name, text[found[0] : found[1]]) else found
    if not _PASSWORDS.search(name):
        return None
    if assignment := _SPOKEN_ASSIGNMENT.match(text, end):
        return value_at(text, assignment.end(), name, begins=begins, spaced=False)
    if _NETRC.search(text, max(0, begins - 300), begins) and (value := _NETRC_VALUE.match(text, end)):
        return None if value[1] == "[hidden]" else value.span(1)
    return None
