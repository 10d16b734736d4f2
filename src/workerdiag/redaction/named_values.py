"""Secrets behind a name (``password=x``, ``"token": "x"``, ``--api-key x``), and where their values end.

Dask uses "key" and "token" for other things too, so these words count only with certain others.
"""

from __future__ import annotations

import re
import string
from functools import lru_cache
from typing import NamedTuple

from workerdiag.redaction.visible_text import bracket_end, line_end, quoted_span

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
_HARMLESS_PASSES = frozenset(
    "compass bypass trespass surpass overpass underpass encompass lowpass highpass bandpass".split()
)
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
    if any(word.removesuffix("s").endswith(_STRONG) or word in {"cred", "creds"} for word in words):
        return True
    if name in {"sig", "Signature"} or (words[-1] == "signature" and len(words) > 1):
        return True
    if name.isupper() and any(word in name.lower() for word in _STRONG):
        return True
    return _is_key(name, words) or _is_pass(words) or _is_auth(name)


def is_key_in_company(name: str, before: str) -> bool:
    """Whether it is the key of "api key", with *before* it "api "."""
    is_key = before.endswith(" ") and name.lower() in {"key", "keys"}
    return is_key and _COMPANY.search(before) is not None


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


HIDDEN = "[hidden]"
#: Words with which names end of places where a secret is kept.
_PLACES = frozenset("file filename path dir directory folder location url uri".split())
_PLACE = re.compile(r"(?:[./~]|[A-Za-z]:\\|\w{1,20}://)")
#: A word of a name.
NAME_WORD = re.compile(r"[A-Z]{2,}(?![a-z])|[A-Z]?[a-z]+|[A-Z]")

#: What may end a value without quotes, and what must follow so that it does.
_STOPS = re.compile(r"[\s\"'`,;&<)\]}\\]")
_ELEMENT_PAIR = r"[\w.-]{1,60}[\"']?[ ]?(?:=|:(?!//))"
_ENDS = {
    ",": re.compile(rf",(?:\s|$|[\"']|[ ]?{_ELEMENT_PAIR})"),
    ";": re.compile(rf";(?:\s|$|[\"']|{_ELEMENT_PAIR})"),
    "&": re.compile(rf"&(?:(?:amp;|lt;|quot;|\#3[49];)|{_ELEMENT_PAIR}|$)"),
    "<": re.compile(r"</|<br"),
    ")": re.compile(r"[)\]}]{1,8}(?:[\s,;:.\"'\\]|$)"),
    "'": re.compile(r"[\"'`]{1,3}(?:[\s,;:.)\]}>&\\]|$)"),
    "\\": re.compile(rf"\\{{1,16}}(?:[\"']|[rn](?:\\|[\"'\s{{]|$|{_ELEMENT_PAIR}))"),
}
_ENDS |= {"]": _ENDS[")"], "}": _ENDS[")"], '"': _ENDS["'"], "`": _ENDS["'"]}
_SCHEME = re.compile(
    r"(?i)(?:bearer|basic|digest|negotiate|token|apikey|api-key|key|splunk|aws4-hmac-sha256|oauth)[ ]+"
)
_LINE_BEGINS = re.compile(r"(?:^|\n)[ \t]*(?:-[ ]|export[ ]|set[ ])?$")
_CALL = re.compile(r"(?:await[ ])?[A-Za-z_][\w.]{0,80}(?=[(\[])")
_BLOCK = re.compile(r"[|>][+-]?\d?[ \t]*\r?\n")
_HEADER_STOP = re.compile(r"[\r\n]|\\r\\n|\\n")
_HEADER_STOPS = {quote: re.compile(rf"{quote}|{_HEADER_STOP.pattern}") for quote in "\"'"}
_SEMICOLON = re.compile(r"[;\r\n]")

#: What programs write in the place of a secret.
_HARMLESS_VALUE = re.compile(
    r"(?i:true|false|none|null|nil|undefined|yes|no|on|off|str|int|bytes|bool|float|object|optional|any"
    r"|secretstr|string|required|missing|unset|empty|not|redacted|hidden|masked|\*{2,}|x{3,}|\.{3}|\u2026|-+"
    r"|(?:optional|union)\[[\w, .|]{1,60}\]|<(?:redacted|hidden|masked|removed|your[^<>]*|class[^<>]*)>"
    r"|<(?:function[^<>]*|[^<>]* object at 0x[0-9a-f]+)>|\[(?:hidden|redacted|filtered|masked)\])[.,:;)\]}]*"
    r"|\$\{\w*\}|\$[A-Z_][A-Z0-9_]*|%\(?\w*\)?[sdr]"
)
_KEY_FILE = re.compile(r"[\w./~\\:-]{1,400}\.(?:pem|key|crt|cer|p12|pfx|jks)")
_NUMBER = re.compile(r"[-+]?\d{1,6}(?:\.\d{0,6})?(?:e[-+]?\d+)?[smhBKMG%]?[.,:;)\]}]*")
_VARIABLE = re.compile(r"\$\{\w*\}(?:[\s\"'`,;)\]}&<\\]|$)")
#: Source code in a traceback that fetches the value from elsewhere.
_CODE = re.compile(
    r"(?:self|cls|args|kwargs|kw|config|conf|cfg|settings|options|opts|params|os|env|environ|ctx|request)"
    r"\.[A-Za-z_][\w.]*[,:;)\]}]*"
)
_FETCHES = re.compile(
    r"environ|getenv|getpass|input|prompt|get|pop|get_\w+|read_\w+|load_\w+|fetch_\w+|make_\w+"
    r"|create_\w+|tokenize|normalize_token|uuid4|uuid1|len|open|token_hex|token_urlsafe|_\w+"
)
#: Names whose value is a secret even if it is a number.
_PASSES = re.compile(r"(?i)pass[^e]|pwd|secret")
#: Kubernetes names the object that has the secret.
_REFERENCE = re.compile(r"\[?\s?\{\s?[\"']?name[\"']?\s?:\s?[\"']?[\w.-]{1,253}[\"']?\s?\}\s?\]?[,}]{0,4}")
#: What a command has where a person puts the secret in.
_PLACEHOLDER = re.compile("PASSWORD|PASSWD|TOKEN|SECRET|(?:API_|ACCESS_|SECRET_)?KEY")
_CONSTANTS = re.compile(r"None|True|False|null|true|false|\[hidden\]")
_NOTHING = re.compile(r"[\[\](){}\s,:.\d-]*")


def is_no_secret(name: str, value: str) -> bool:
    """Whether the whole *value* of a secret's name is empty, a placeholder, a small number or a place."""
    stripped = value.strip()
    is_place = _is_about_place(name, stripped) or _KEY_FILE.fullmatch(stripped) is not None
    is_count = _PASSES.search(name) is None and _NUMBER.fullmatch(stripped) is not None
    return not stripped or is_count or is_place or _HARMLESS_VALUE.fullmatch(stripped) is not None


def value_at(text: str, at: int, name: str, *, begins: int, spaced: bool) -> tuple[int, int] | None:
    """Return the span to hide of the value at *at*; None if there is none or it is not a secret.

    *begins* is where the name begins. With *spaced* an unquoted value may have blanks, as in ``password: two
    words``.
    """
    if found := quoted_span(text, at):
        begin, end, _ = found
        return None if is_no_secret(name, text[begin:end]) else _after_scheme(text, begin, end)
    if _is_header(name):
        return _secret_span(name, text, *_after_scheme(text, at, _header_end(text, at, begins)))
    if _BLOCK.match(text, at):
        return _yaml_block(text, at, begins)
    return _unquoted_value(text, at, name, begins=begins, spaced=spaced)


def _unquoted_value(text: str, at: int, name: str, *, begins: int, spaced: bool) -> tuple[int, int] | None:
    if text.startswith(HIDDEN, at):
        behind = at + len(HIDDEN)
        end = (
            _connection_string_end(text, behind)
            if text[begins - 1 : begins] == ";"
            else _unquoted_end(text, behind)
        )
        return (at, end) if end > behind else None
    if _VARIABLE.match(text, at):
        return None
    if text[at : at + 1] in {"[", "(", "{"}:
        end = _unquoted_end(text, bracket_end(text, at))
        if _REFERENCE.fullmatch(text, at, end):
            return None
        return None if _NOTHING.fullmatch(_CONSTANTS.sub("", text[at:end])) else (at, end)
    if call := _CALL.match(text, at):
        return _call_value(text, at, call.end(), call[0].rpartition(".")[2])
    return _bare_value(text, at, name, begins=begins, spaced=spaced)


def _bare_value(text: str, at: int, name: str, *, begins: int, spaced: bool) -> tuple[int, int] | None:
    if text[begins - 1 : begins] == ";":  # a connection string
        end = _connection_string_end(text, at)
    elif spaced:
        is_line_start = _LINE_BEGINS.search(text, max(0, begins - 60), begins) is not None
        end = line_end(text, at) if is_line_start else _unquoted_end(text, at, spaced=True)
        end = at + len(text[at:end].rstrip())
    else:
        begin = at
        if scheme := _SCHEME.match(text, at):
            begin = scheme.end()
        end = _unquoted_end(text, begin)
        at = begin if end > begin else at
    return _secret_span(name, text, at, end)


def _secret_span(name: str, text: str, at: int, end: int) -> tuple[int, int] | None:
    value = text[at:end]
    return None if not value.strip() or _is_harmless(name, value) else (at, end)


def _connection_string_end(text: str, at: int) -> int:
    """Where a value of a connection string ends; it may have blanks in it."""
    found = _SEMICOLON.search(text, at)
    return found.start() if found and found[0] == ";" else _unquoted_end(text, at)


def _unquoted_end(text: str, at: int, *, spaced: bool = False) -> int:
    """Return the end of a value without quotes, including everything that may belong to it."""
    while found := _STOPS.search(text, at):
        at = found.start()
        if found[0].isspace():
            if not spaced or found[0] in "\r\n":
                return at
        elif not text.endswith(HIDDEN, 0, at + 1) and _ENDS[found[0]].match(text, at):
            return at
        at += 1
    return len(text)


def _header_end(text: str, at: int, begins: int) -> int:
    """The end of the line, or of the quotes that opened before the name."""
    stop = _HEADER_STOPS.get(text[begins - 1 : begins], _HEADER_STOP).search(text, at)
    end = stop.start() if stop else len(text)
    return end if stop is None or stop[0] not in {'"', "'"} else at + len(text[at:end].rstrip("\\"))


def _after_scheme(text: str, begin: int, end: int) -> tuple[int, int]:
    scheme = _SCHEME.match(text, begin, end)
    return (scheme.end(), end) if scheme and scheme.end() < end else (begin, end)


def _yaml_block(text: str, at: int, begins: int) -> tuple[int, int] | None:
    """A block of YAML: the lines that are further in than the name."""
    start = end = line_end(text, at)
    line_begins = text.rfind("\n", max(0, begins - 200), begins) + 1
    before = text[line_begins:begins]
    indent = -1 if before.strip(" -") else len(before)
    while end < len(text):
        stop = line_end(text, end + 1)
        line = text[end + 1 : stop]
        if line.strip() and len(line) - len(line.lstrip()) <= max(0, indent):
            break
        end = stop
    hidden = text[start + 1 : end]
    if not hidden.strip() or hidden.strip() == HIDDEN:
        return None
    return start + 1 + len(hidden) - len(hidden.lstrip()), end


def _call_value(text: str, at: int, opens: int, called: str) -> tuple[int, int] | None:
    end = bracket_end(text, opens)
    if _FETCHES.fullmatch(called) or not re.search(r"[\"']", text[opens:end]):
        rest = text[end : end + 1]
        return None if not rest or rest in " \t\r\n,;:.)]}\"'" else (at, _unquoted_end(text, end))
    return at, _unquoted_end(text, end)


def _is_harmless(name: str, value: str) -> bool:
    word = value.strip()
    if is_no_secret(name, word) or _CODE.fullmatch(word) or _PLACEHOLDER.fullmatch(word):
        return True
    low = name.lower()
    return word.rstrip(",:;)]}").lower().removeprefix("_") in {low, low.rpartition(".")[2]}


def _is_about_place(name: str, value: str) -> bool:
    """Whether it says where a secret is kept: ``password_file=/run/secrets/db``."""
    words = NAME_WORD.findall(name)
    return bool(words) and words[-1].lower() in _PLACES and _PLACE.match(value) is not None


def _is_header(name: str) -> bool:
    word = name.lower().rpartition("-")[2]
    return word in {"authorization", "cookie", "cookie2"}
