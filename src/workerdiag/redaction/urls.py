"""
What is secret in a URL: the password, a token in the place of the user, and the values of its query.
"""

from __future__ import annotations

import re

from workerdiag.redaction.values import HIDDEN

#: A URL ends here; so that each character is looked at once, also where the next one begins.
_END = re.compile(r"[\s\"'<>`\\]|://|$")
_PORT = re.compile(r":\d{1,5}(?:[/?#,;)\]}]|$)")
_QUERY_VALUE = re.compile(r"([?&;](?:amp;)?[\w.%~\[\]-]{1,64}=)([^&\s\"'<>#`\\;,)}\]]*)")
#: Schemes in which a name alone, before the host, is that of a user, a container or a bucket.
_NAMES = frozenset(
    "ssh sftp git scp abfs abfss wasb wasbs adl hdfs tcp tls ucx ucxx inproc smtp s3 gs".split()
)
_TOKEN = re.compile(r"(?=[^\s]{0,40}\d)[\w.~%-]{16,}$")
_MOST_SCHEME_CHARS = 20


def userinfo_at(text: str, at: int, begin: int) -> tuple[int, list[tuple[int, int]]]:
    """
    Up to where a URL was read, and what of its user and password is to be hidden.

    Args:
        text: The text.
        at: Where its ``://`` stands.
        begin: Where its user, or its host, begins.
    """
    stop = _END.search(text, begin)
    end = stop.start() if stop else len(text)
    ends = text.rfind("@", begin, end)
    if ends < 0:
        return begin, []
    colon = text.find(":", begin, ends)
    slash = _first(text, "/?#", begin, end)
    if colon < 0 or (slash < colon):
        return begin, _user(text, at, begin, min(ends, text.find("@", begin, end)), slash)
    if slash < ends and (text.startswith("[", begin) or _PORT.match(text, colon)):
        return begin, []  # ``host:8080/path@x``
    found = [] if text[colon + 1 : ends] in {HIDDEN, ""} else [(colon + 1, ends)]
    if _is_token(text[begin:colon]) or text[colon + 1 : ends] in {"", "x-oauth-basic"}:
        found = [*_whole(text, begin, colon), *found]
    return begin, found


def query_at(text: str, at: int) -> tuple[int, list[tuple[int, int]]]:
    """
    Where the query ends that begins with the question mark at *at*, and the values in it.
    """
    found = []
    while pair := _QUERY_VALUE.match(text, at):
        at = pair.end()
        if text.startswith("[hidden", pair.start(2)) and text.startswith("]", at):
            at += 1
        elif pair[2]:
            found.append(pair.span(2))
    return at, found


def _user(text: str, at: int, begin: int, end: int, slash: int) -> list[tuple[int, int]]:
    """
    A token in the place of the user: ``https://0123456789abcdef@sentry.example/1``.
    """
    before = text[max(0, at - _MOST_SCHEME_CHARS) : at]
    scheme = re.split(r"[^A-Za-z0-9+.-]", before)[-1].lower()
    if slash < end or scheme in _NAMES or not _is_token(text[begin:end]):
        return []
    return _whole(text, begin, end)


def _is_token(user: str) -> bool:
    return _TOKEN.match(user) is not None


def _whole(text: str, begin: int, end: int) -> list[tuple[int, int]]:
    return [] if text[begin:end] in {HIDDEN, ""} else [(begin, end)]


def _first(text: str, chars: str, begin: int, end: int) -> int:
    return min((at for char in chars if (at := text.find(char, begin, end)) >= 0), default=end)
