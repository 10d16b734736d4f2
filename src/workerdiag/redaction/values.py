"""Where the value behind the name of a secret begins and ends, and which values are no secrets."""

from __future__ import annotations

import re

from workerdiag.redaction.visible_text import bracket_end, line_end, quoted_span

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
    "\\": re.compile(rf"\\{{1,16}}(?:[\"']|[rn](?:\\|[\"'\s]|$|{_ELEMENT_PAIR}))"),
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
        end = line_end(text, at) if _is_line_start(text, begins) else _unquoted_end(text, at, spaced=True)
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


def _is_line_start(text: str, begins: int) -> bool:
    return _LINE_BEGINS.search(text, max(0, begins - 60), begins) is not None


def _unquoted_end(text: str, at: int, *, spaced: bool = False) -> int:
    """Return the end of a value without quotes, including everything that may belong to it."""
    while found := _STOPS.search(text, at):
        at = found.start()
        if found[0].isspace():
            if not spaced or found[0] in "\r\n":
                return at
        elif not _ends_hidden(text, at) and _ENDS[found[0]].match(text, at):
            return at
        at += 1
    return len(text)


def _ends_hidden(text: str, at: int) -> bool:
    return text[at] == "]" and text.endswith(HIDDEN, 0, at + 1)


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
    """Whether it is a header whose value extends to the end of the line."""
    word = name.lower().rpartition("-")[2]
    return word in {"authorization", "cookie", "cookie2"}
