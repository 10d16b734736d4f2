"""Hides what looks like a secret before a report can leak it.

Reports go into chats, tickets and bug trackers; log lines, commands and error messages hold passwords and keys.
Hidden is the value; the name before it stays, as it may be the clue. One pass finds all that can begin or name a
secret; only there one looks closer.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from workerdiag.redaction.named_values import HIDDEN, name_at, value_of
from workerdiag.redaction.visible_text import quoted_span, visible_text
from workerdiag.values import frozen

__all__ = ["HIDDEN", "redact_text"]

Span = tuple[int, int]

#: What stands beside something hidden may belong to it; mostly the second pass finds nothing more.
_MOST_PASSES = 4

#: Short texts that were found to have no secret: each report says the same of a cause, again and again.
_HARMLESS: set[str] = set()
_MOST_HARMLESS, _HARMLESS_CHARS = 2000, 400

_BEARER = re.compile(r"(?i)(?<![\w-])bearer\s{1,4}((?=\S{0,60}[\d._=+/A-Z])[\w.~+/=-]{6,}|[\w-]{20,})")
_BASIC = re.compile(r"(?<![\w-])(?i:basic)\s{1,4}((?=\S{0,60}[A-Z])(?=\S{0,60}[a-z])[A-Za-z0-9+/]{8,}={0,2})")
_IDENTIFIED = re.compile(r"(?i)identified by (?:password )?(?=[\"'`\\])")


def redact_text(text: str, *, keep_lines: bool = False) -> str:
    """The *text* with what looks like a password, key or token hidden; *keep_lines* keeps its line ends.

    Takes time linear in the length of the text and returns at most eight times as many characters. Escapes and
    invisible characters hide no secret; they are left out of a text in which one is hidden.
    """
    if text in _HARMLESS:
        return text
    given = text
    for _ in range(_MOST_PASSES):
        hidden = _redact_once(text, keep_lines=keep_lines)
        if hidden == text:
            break
        text = hidden
    if text == given and len(text) <= _HARMLESS_CHARS:
        if len(_HARMLESS) >= _MOST_HARMLESS:
            _HARMLESS.clear()
        _HARMLESS.add(text)
    return text


def _redact_once(given: str, *, keep_lines: bool) -> str:
    text = visible_text(given)
    data = text.encode("ascii", "replace").lower()  # one byte per character; only ASCII begins a secret
    if _engine(f"{_NAMES}|{_URLS}|{_TOKEN_HINTS}|{_KEY_LINES}").search(data) is None:
        return given
    parts: list[str] = []
    done = 0
    for begin, end in sorted(_secret_spans(text, data)):
        if begin > done or not parts:
            parts += (text[done:begin], HIDDEN)
            done = begin
        if end > done:
            parts.append("\n" * text.count("\n", done, end) * keep_lines)
            done = end
    return "".join((*parts, text[done:])) if parts else given


def _secret_spans(text: str, data: bytes) -> Iterator[Span]:
    yield from _named_value_spans(text, data)
    yield from _url_spans(text, data)
    for at, _ in _hints(_KEY_LINES, data):
        if found := _KEY_LINE.match(text, at):
            yield found.span()
    yield from _token_spans(text, data)


def _named_value_spans(text: str, data: bytes) -> Iterator[Span]:
    done = 0
    for at, hint in _hints(_NAMES, data):
        if at < done:
            continue
        done, name = name_at(text, at, hint)
        if name is not None and (span := value_of(text, name)) and span[0] < span[1]:
            done = span[1]
            yield span


def _url_spans(text: str, data: bytes) -> Iterator[Span]:
    done = 0
    for at, hint in _hints(_URLS, data):
        if at >= done:
            done, found = _userinfo_at(text, at, at + (3 if hint[0] == ":" else 1))
            yield from found


def _token_spans(text: str, data: bytes) -> Iterator[Span]:
    """Find secrets by their form, or by the program or the scheme before them."""
    done = 0  # everything before it is hidden or no secret
    for at, hint in _hints(_TOKEN_HINTS, data):
        if at < done:
            continue
        if hint[0] == "?":
            done, found = _query_at(text, at)
        else:
            found = [span for span in _tokens_at(text, at, hint, done) if span and span[0] < span[1]]
        for span in found:
            done = max(done, span[1])
            yield span


def _tokens_at(text: str, at: int, hint: str, done: int) -> Iterator[Span | None]:
    if hint in PREFIXES:
        yield from _token_at(text, at, hint)
    elif hint == "-----begin ":
        yield _key_from(text, at)
    elif hint == "-----end ":
        yield _key_until(text, at, done)
    elif hint == "identified by":
        yield _identified_by(text, at)
    elif hint[0].isspace() or hint[0] in "\"'([,":
        yield _option_value(text, at + 1)
    elif found := _PUTTY.match(text, at):
        yield found.span()
    elif hint[0] == "b":
        if found := _BEARER.match(text, at) or _BASIC.match(text, at):
            yield found.span(1)
    else:
        yield from _token_around(text, at + len(hint) - 2 if hint[-2:] == "==" else at)


def _identified_by(text: str, at: int) -> Span | None:
    """The password of ``CREATE USER x IDENTIFIED BY 'password'``."""
    named = _IDENTIFIED.match(text, at)
    string = quoted_span(text, named.end()) if named else None
    return None if string is None or text[string[0] : string[1]] == HIDDEN else string[:2]


#: What follows in a token of a service, with the fixed prefix that the service documents for secret scanners, in
#: small letters. Quantifiers are bounded below, so that words of people do not count, and a token that a log has
#: cut off mostly does.
_BEHIND: Mapping[str, str] = {
    r"[\w-]{10,}": "ya29. gldt- glcbt- glptt- glft- glimt- glagent- glsoat- gloas- gr1348941 hvs. hvb. hvr.",
    r"[A-Za-z0-9]{20,}": "nfp_ npm_ api_org_ r8_ gsk_ xai- pplx- pnu_ pnb_ ntn_",
    r"[0-9a-f]{16,}": "dop_v1_ doo_v1_ dor_v1_ sntryu_ shpat_ shpca_ shppa_ shpss_",
    r"[\w-]{16,}": "gocspx- dckr_pat_ nrii- nrjs- nraa- xapp- figd_",
    r"\w{10,}": "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ ccipat_",
    r"[\w-]{20,}": "1//0 hrku- fo1_ xkeysib- cfpat-",
    r"[A-Za-z0-9]{16,}": "hf_ lin_api_ lin_oauth_",
    r"(?:live|test|prod)_\w{8,}": "sk_ rk_ pk_",
    r"[0-9a-f]{20,}": "sbp_ rubygems_",
    r"[\w.-]{10,}": "glpat- glrt-",
    r"[0-9a-f]{32}": "dose dkea",
    r"[\w+/=]{16,}": "glc_ whsec_",
    r"[\w=-]{16,}": "atatt3 atctt3",
}
_BY_PREFIX: Mapping[str, str] = {
    **{prefix: re.escape(prefix) + rest for rest, prefixes in _BEHIND.items() for prefix in prefixes.split()},
    **{each.lower(): f"(?-i:{each}[0-9A-Z]{{12,}})" for each in ("AKIA", "ASIA", "ABIA", "ACCA")},
    "a3t": r"(?-i:A3T[A-Z0-9]{13,})",
    "absk": r"(?-i:ABSK[A-Za-z0-9+/=]{40,})",
    "amzn.mws.": r"amzn\.mws\.[0-9a-f-]{30,}",
    "aiza": r"(?-i:AIza[\w-]{20,})",
    "ltai": r"(?-i:LTAI[A-Za-z0-9]{12,})",
    "akid": r"(?-i:AKID[A-Za-z0-9]{28,})",
    "flyv1 ": r"FlyV1\ [\w+/=,-]{20,}",
    "tskey-": r"tskey-[\w-]{12,}",
    "pscale_": r"pscale_(?:tkn|pw|oauth)_[\w=.-]{16,}",
    "pypi-": r"pypi-AgE[\w-]{16,}",
    "clojars_": r"CLOJARS_[0-9a-z]{30,}",
    "oy2": r"oy2[a-z0-9]{43}",
    "akcp": r"(?-i:AKCp[A-Za-z0-9]{20,})",
    "bkua_": r"bkua_[0-9a-z]{20,}",
    "pul-": r"pul-[0-9a-f]{30,}",
    "dp.": r"dp\.(?:pt|st|ct|sa|scim|audit)\.[\w.-]{16,}",
    "dapi": r"dapi[0-9a-f]{24,}(?:-\d)?",
    "sk-": r"sk-(?=[\w-]{0,60}\d)[\w-]{16,}",
    "lsv2_": r"lsv2_(?:pt|sk)_\w{16,}",
    "glsa_": r"glsa_\w{16,}",
    "nrak-": r"NRAK-[A-Z0-9]{16,}",
    "sntrys_": r"sntrys_[\w+/=-]{16,}",
    "dt0c01.": r"dt0c01\.[A-Z0-9]{16,}\.[A-Z0-9]{16,}",
    "pmak-": r"PMAK-[0-9a-f-]{20,}",
    "xox": r"xox[a-z](?:\.xox[a-z])?-[\w-]{8,}",
    "sq0": r"sq0[a-z]{3}-[\w-]{20,}",
    "eaaa": r"(?-i:EAAA[\w-]{50,})",
    "sg.": r"(?-i:SG\.[\w-]{16,}(?:\.[\w-]{16,})?)",
    "key-": r"key-[0-9a-f]{32}\b",
    "sl.": r"sl\.[\w-]{40,}",
    "atbb": r"(?-i:ATBB[\w=-]{16,})",
    "secret_": r"secret_[A-Za-z0-9]{40,}",
    "pat-": r"pat-[a-z]{2}\d-[0-9a-f-]{30,}",
    "rdme_": r"rdme_\w{20,}",
    "eyj": r"(?-i:eyJ[\w-]{8,}(?:\.[\w-]{4,}){0,4})",
    "age-secret-key-": r"AGE-SECRET-KEY-1[0-9A-Z]{20,}",
    "hooks.slack.com/": r"hooks\.slack\.com/(?:services|workflows|triggers)/([\w/+-]{8,})",
    "/api/webhooks/": r"/api/webhooks/\d{1,30}/([\w-]{8,})",
    "webhook.office.com/": r"webhook\.office\.com/([\w/@-]{8,})",
}
PREFIXES = tuple(_BY_PREFIX)
#: A secret key of AWS, which nothing but its id before it gives away.
_AWS_ID = re.compile(r"(?:AKIA|ASIA)[0-9A-Z]{16}(?![0-9A-Z])")
_AWS_SECRET = re.compile(
    r"[^\w+/]{1,8}+(?:[A-Za-z_](?:[A-Za-z_-]{0,28}[A-Za-z_])?+[^\w+/]{1,9}+)?([A-Za-z0-9+/]{40})(?![A-Za-z0-9+/])"
)
_DIGITS, _HEX = "0123456789", "0123456789abcdef"
_ALNUM = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" + _DIGITS
_KEY_LINE = re.compile(
    r"(?<![\w+/=-])(?=\S{0,63}[A-Z])(?=\S{0,63}[a-z])(?=\S{0,63}\d)[A-Za-z0-9+/]{64}(?![\w+/=-])"
)
_BEGINS = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_ENDS = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_MAX_CHARS = 16_000
#: What a key is made of, with the marks that programs put before lines.
_BODY = re.compile(r"(?:\s*(?:Proc-Type|DEK-Info):[^\n]{0,200})?[A-Za-z0-9+/=\s\\|>]{0,16000}")
_PUTTY = re.compile(r"(?i)private-lines:\s{0,4}\d{1,4}[\sA-Za-z0-9+/=\\]{16,8000}")


@frozen
class InnerHint:
    """A secret that begins with nothing definite, by something definite within it."""

    #: What is searched for, in small letters, in RE2's language.
    hint: str
    #: Characters before the hint, and how many of them at least and at most.
    chars: str
    least: int
    most: int
    #: Its continuation at the hint.
    rest: re.Pattern[str]


#: Bot tokens of Telegram and Discord, keys of Twilio, Azure, Mailchimp, New Relic and Terraform, and hashes.
INNER_HINTS = (
    InnerHint(":aa", _DIGITS, 8, 10, re.compile(r":AA[\w-]{20,}")),
    InnerHint("[a-z0-9+/]{9}==", _ALNUM + "+/", 86, 86, re.compile("==")),
    InnerHint(  # an older token of Vault
        r"\bs\.[a-z0-9]{24}\b",
        "",
        0,
        0,
        re.compile(r"s\.(?=[A-Za-z]{0,23}\d)(?=[a-z0-9]{0,23}[A-Z])[A-Za-z0-9]{24}\b"),
    ),
    InnerHint(r"\b(?:sk|ac)[0-9a-f]{32}\b", "", 0, 0, re.compile(r"(?:SK|AC)[0-9a-f]{32}\b")),
    InnerHint("q~", _ALNUM + "_~.-", 4, 4, re.compile(r"Q~[\w~.-]{25,40}")),
    InnerHint("-us", _HEX, 32, 32, re.compile(r"-us\d{1,2}\b")),
    InnerHint("nral", _HEX, 36, 36, re.compile(r"NRAL\b")),
    InnerHint(r"\.atlasv1\.", _ALNUM, 14, 14, re.compile(r"\.atlasv1\.[\w-]{20,}")),
    InnerHint(r"\.[\w-]{6}\.[\w-]{27}", _ALNUM + "_-", 24, 28, re.compile(r"\.[\w-]{6}\.[\w-]{27,40}")),
    InnerHint(
        r"\$(?:2[aby]|argon2id?|[156y])\$", "", 0, 0, re.compile(r"\$(?:2[aby]|argon2id?|[156y])\$[\w./$=,+-]{20,}")
    ),
)


def _token_at(text: str, at: int, prefix: str) -> list[tuple[int, int]]:
    found = _token_shape(prefix).match(text, at)
    if found is None:
        return []
    spans = [found.span(found.lastindex or 0)]
    if _AWS_ID.match(text, at) and (secret := _AWS_SECRET.match(text, found.end())):
        spans.append(secret.span(1))
    return spans


@cache
def _token_shape(prefix: str) -> re.Pattern[str]:
    """A pattern that matches where the prefix stands; compiling all of them takes 20 ms."""
    look = _BY_PREFIX[prefix]
    return re.compile(f"(?i){look}" if prefix[0] == "/" else rf"(?i)(?<![A-Za-z0-9]){look}")


def _token_around(text: str, at: int) -> list[tuple[int, int]]:
    """The span of the secret for which the hint of an `InnerHint` stands at *at*, if there is one."""
    for middle in INNER_HINTS:
        if rest := middle.rest.match(text, at):
            before = text[max(0, at - middle.most - 1) : at]
            count = len(before) - len(before.rstrip(middle.chars)) if middle.chars else 0
            if middle.least <= count <= middle.most:
                return [(at - count, rest.end())]
    return []


def _key_from(text: str, at: int) -> tuple[int, int] | None:
    begins = _BEGINS.match(text, at)
    if begins is None:
        return None
    ends = text.find("-----END ", at, at + _MAX_CHARS)
    if ends >= 0 and (end := _ENDS.match(text, ends)):
        return at, end.end()
    body = _BODY.match(text, begins.end())
    end_at = body.end() if body else begins.end()
    return at, begins.end() + len(text[begins.end() : end_at].rstrip())


def _key_until(text: str, at: int, begins: int) -> tuple[int, int] | None:
    """The span of the key whose last line begins at *at*, after what is hidden up to *begins*."""
    end = _ENDS.match(text, at)
    if end is None:
        return None
    before = text[max(begins, at - _MAX_CHARS) : at]
    before_key = before.rstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=\r\n\\")
    start = at - (len(before) - len(before_key))
    start += len(text[start:at]) - len(text[start:at].lstrip())
    return start, end.end()


#: A URL ends here, also where the next one begins; of a longer one the beginning is read.
_END = re.compile(r"[\s\"'<>`\\]|://")
_MAX_URL_CHARS = 2000
_PORT = re.compile(r":\d{1,5}(?:[/?#,;)\]}]|$)")
_QUERY_VALUE = re.compile(r"([?&;](?:amp;)?[\w.%~\[\]-]{1,64}=)([^&\s\"'<>#`\\;,)}\]]*)")
#: Schemes with a user, a container or a bucket before the host, which is not a secret.
_WITH_USER = frozenset("ssh sftp git scp abfs abfss wasb wasbs adl hdfs tcp tls ucx ucxx inproc smtp s3 gs".split())
_TOKEN = re.compile(r"(?=[^\s]{0,40}\d)[\w.~%-]{16,}$")
_PATH = re.compile(r"[/?#]")
_NO_PASSWORD = re.compile(r"(?:x-oauth-basic)?\Z")


def _userinfo_at(text: str, at: int, begin: int) -> tuple[int, list[tuple[int, int]]]:
    """Return the end of the URL with ``://`` at *at*, and the spans of user and password from *begin* to hide."""
    stop = _END.search(text, begin, begin + _MAX_URL_CHARS)
    end = stop.start() if stop else min(len(text), begin + _MAX_URL_CHARS)
    ends = text.rfind("@", begin, end)
    if ends < begin:
        return begin, []
    colon = text.find(":", begin, ends)
    found = _PATH.search(text, begin, end)
    slash = found.start() if found else end
    if colon < 0 or (slash < colon):
        return begin, _token_user(text, at, begin, text.find("@", begin, end), slash)
    if slash < ends and (text.startswith("[", begin) or _PORT.match(text, colon)):
        return begin, []  # ``host:8080/path@x``
    is_hidden = text.startswith(HIDDEN, colon + 1) and ends == colon + 1 + len(HIDDEN)
    spans = [] if is_hidden or ends == colon + 1 else [(colon + 1, ends)]
    if _is_token(text[begin:colon]) or _NO_PASSWORD.match(text, colon + 1, ends):
        spans = [*_span_list(text, begin, colon), *spans]
    return ends, spans


def _query_at(text: str, at: int) -> tuple[int, list[tuple[int, int]]]:
    found = []
    while pair := _QUERY_VALUE.match(text, at):
        at = pair.end()
        if text.startswith("[hidden", pair.start(2)) and text.startswith("]", at):
            at += 1
        elif pair[2]:
            found.append(pair.span(2))
    return at, found


def _token_user(text: str, at: int, begin: int, end: int, slash: int) -> list[tuple[int, int]]:
    """A token in the place of the user: ``https://0123456789abcdef@sentry.example/1``."""
    before = text[max(0, at - 20) : at]
    scheme = re.split(r"[^A-Za-z0-9+.-]", before)[-1].lower()
    if slash < end or scheme in _WITH_USER or not _is_token(text[begin:end]):
        return []
    return _span_list(text, begin, end)


def _is_token(user: str) -> bool:
    return _TOKEN.match(user) is not None


def _span_list(text: str, begin: int, end: int) -> list[tuple[int, int]]:
    return [] if text[begin:end] in {HIDDEN, ""} else [(begin, end)]


try:
    import re2

    if not hasattr(re2, "Options"):  # another package of that name (pyre2, fb-re2)
        re2 = None
except ImportError:  # no wheel for this platform: `re` stands in, at a tenth of the speed
    re2 = None

#: What names of secrets have in them.
_WORDS = "pass|pwd|secret|token|key|cookie|cred|auth|jwt|sess(?:ion)?_?id|signature|sig="
#: Such a name, and behind it what may give it a value: a quote, a sign, a blank after an option.
_NAMES = (
    rf"(?:{_WORDS})[\w.-]*(?:[\"'`\\?&\])><]|\s{{0,20}}[=:%]|[,;]?\s{{0,80}}.{{0,3}}value)"
    rf"|(?:pass|pwd)[\w.-]*\s"
    rf"|-[\w.-]*(?:{_WORDS})[\w.-]*\s"
    rf"|<[\w.:-]*(?:{_WORDS})[\w.-]*[\s<]"
)
#: A URL with a user, maybe; and one that has lost its scheme.
_URLS = r"://[^\s@]*@|/[\w.-]{1,64}:[^\s@/:]{1,200}@"
#: In RE2's language: options of one letter that take a secret, queries of URLs, schemes, keys in PEM.
_OTHERS = (
    r"[\s\"'(\[,]-[upaw]",
    r"[\s\"']--?(?:proxy-)?user\b",
    r"\?[\w.%~\[\]-]{1,64}=",
    r"bearer\s",
    r"basic\s",
    "-----begin ",
    "-----end ",
    "identified by",
    "private-lines:",
)
_KEY_LINES = "[a-z0-9+/]{64}"
_FIXED = sorted(PREFIXES, key=lambda prefix: (-len(prefix), prefix))
_TOKEN_HINTS = "|".join((*(inner.hint for inner in INNER_HINTS), *_OTHERS, *map(re.escape, _FIXED)))


def _hints(shape: str, data: bytes) -> Iterator[tuple[int, str]]:
    """Yield where something of the *shape* may be or name a secret, and how it begins."""
    for found in _engine(shape).finditer(data):
        at, end = found.span()
        yield at, data[at:end].decode("ascii")


@cache
def _engine(shape: str) -> Any:
    return (re2 or re).compile(shape.encode())


# RE2 locks what a pattern has learnt; where a thread held such a lock at a fork, nobody lets go of it.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_engine.cache_clear)


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


def _option_value(text: str, at: int) -> Span | None:
    """The span to hide behind the option that begins at *at*, if the program before it takes a secret with it."""
    command = text[max(0, at - 600) : at].rpartition("\n")[2].lower()
    program = max(_OPTIONS, key=command.rfind)
    if program not in command or not (option := _OPTIONS[program].match(text, at)):
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
