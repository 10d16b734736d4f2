"""Secrets behind a name (``password=x``, ``"token": "x"``, ``--api-key x``), and the names that introduce them.

Dask uses "key" and "token" for other things too, so these words count only with certain others.
"""

from __future__ import annotations

import re
import string
from functools import lru_cache
from typing import NamedTuple

from workerdiag.redaction.values import NAME_WORD, is_no_secret, value_at
from workerdiag.redaction.visible_text import quoted_span

#: A word that ends with one of these names a secret, in the singular and in the plural.
_STRONG = tuple(
    "password passwd passphrase passcode passwort secret token pwd cookie credential apikey jwt"
    " sessionid sessid".split()
)
#: Words with which names end that say something about a secret, which is not it.
_ABOUT = frozenset(
    "error errors exception warning type kind count size length len limit timeout ttl expires expiry"
    " expiration expired lifetime name names ref policy provider manager class format required enabled"
    " valid endpoint region port".split()
)
#: Words before "key" that make it a key of something, and no key to something.
_HARMLESS_BEFORE_KEY = frozenset(
    "task tasks sort primary foreign partition row cache public host group dict last worker future index"
    " column object registry config routing shard hash join merge map lookup event topic ts self each this"
    " the run sub dep dependency dependent parent child dask s3 blob json yaml data first next missing"
    " unknown bad invalid duplicate no any every attribute tag label filter annotation"
    " field metric order".split()
)
_BEHIND_KEY = frozenset("id ids secret material data value string b64 base64 hex pem text raw enc".split())
_HARMLESS_KEYS = frozenset("monkey turkey donkey hockey jockey whiskey lackey hotkey subkey pubkey".split())
_HARMLESS_BEFORE_PASS = frozenset(
    "first second third single multi two one by low high band last next forward backward this".split()
)
_HARMLESS_PASSES = frozenset("compass bypass trespass surpass overpass underpass encompass".split())
#: A key of a task: its kind, of at most 16 words, then a hash or a number.
_TASK_KEY = re.compile(r"[a-z_]+(?:-[a-z_]+){0,15}-(?:[0-9a-f]{4,}[0-9a-f-]*|\d+)")
_FILE = re.compile(
    r"\.(?:py|pyc|json|ya?ml|toml|ini|cfg|conf|txt|log|csv|parquet|pem|crt|env|sh|db|so|zarr|html?|js|go|rs|java)$"
)
_COMPANY = re.compile(
    r"(?i)\b(?:api|access|secret|private|encryption|account|storage|shared|signing|master|service"
    r"|licen[cs]e|subscription|client|auth|aws|gcp|ssh)[ ]$"
)
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
#: Names with values that may be several words.
_PHRASES = re.compile(r"(?i)pass[wcp_-]|pwd")
_PASSWORDS = re.compile(r"(?i)pass(?:word|wd|phrase|code)$|pwd$")


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether *name*, of letters, digits, ``_``, ``-`` and ``.``, names a secret."""
    if _TASK_KEY.fullmatch(name) or _FILE.search(name):
        return False
    words = [word.lower() for word in NAME_WORD.findall(name)]
    if not words or words[-1] in _ABOUT:
        return False
    if any(_is_strong(word) for word in words) or name in {"sig", "Signature"}:
        return True
    if words[-1] == "signature" and len(words) > 1:
        return True
    if name.isupper() and any(word in name.lower() for word in _STRONG):
        return True
    return _is_key(name, words) or _is_pass(words) or _is_auth(name)


def is_key_in_company(name: str, before: str) -> bool:
    """Whether it is the key of "api key", with *before* it "api "."""
    is_key = before.endswith(" ") and name.lower() in {"key", "keys"}
    return is_key and _COMPANY.search(before) is not None


def _is_strong(word: str) -> bool:
    return word.removesuffix("s").endswith(_STRONG) or word in {"cred", "creds"}


def _is_key(name: str, words: list[str]) -> bool:
    if len(words) == 1 and words[0] in {"key", "keys"}:
        return name in {"KEY", "KEYS"}
    for at, word in enumerate(words):
        if word in {"key", "keys"}:
            if at == 0:
                return name.isupper()
            ends = at == len(words) - 1 or words[at + 1] in _BEHIND_KEY or ".key." in name.lower()
            is_of = len(words[at - 1]) == 1 or words[at - 1] in _HARMLESS_BEFORE_KEY  # ``t.key``
            return (ends or name.isupper()) and not is_of
        stem = word.removesuffix("s")
        if stem.endswith("key") and stem not in _HARMLESS_KEYS:
            return stem.removesuffix("key") not in _HARMLESS_BEFORE_KEY
    return False


def _is_pass(words: list[str]) -> bool:
    for at, word in enumerate(words):
        if word == "pass":
            return at == 0 or words[at - 1] not in _HARMLESS_BEFORE_PASS
        if word.endswith("pass") and word not in _HARMLESS_PASSES:
            return True
    return False


def _is_auth(name: str) -> bool:
    words = [word.lower() for word in NAME_WORD.findall(name.rpartition(".")[2])]
    return any(word.endswith("auth") or word == "authorization" for word in words)


class SecretName(NamedTuple):
    """The name of a secret in a text."""

    begins: int
    end: int
    name: str
    #: What stands before it, at most 40 characters.
    before: str


def name_at(text: str, at: int, hint: str) -> tuple[int, SecretName | None]:
    """Return the end of the name with *hint* at *at*, and the name if it names a secret."""
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
    """Return the span to hide behind the name; None if there is no secret."""
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
    """Whether the name is a file or a logger: ``/run/secrets/token: no such file``."""
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
    """``('password', 'x')``, and ``'--password', 'x'`` among the arguments of a command."""
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
