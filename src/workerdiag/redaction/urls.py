"""Secrets in URLs: a password, a token in the place of the user, values in the query."""

from __future__ import annotations

import re

from workerdiag.redaction.values import HIDDEN

#: A URL ends here; so that each character is looked at once, also where the next one begins.
_END = re.compile(r"[\s\"'<>`\\]|://|$")
_PORT = re.compile(r":\d{1,5}(?:[/?#,;)\]}]|$)")
_QUERY_VALUE = re.compile(r"([?&;](?:amp;)?[\w.%~\[\]-]{1,64}=)([^&\s\"'<>#`\\;,)}\]]*)")
#: Schemes with a user, a container or a bucket before the host, which is not a secret.
_NAMES = frozenset(
    "ssh sftp git scp abfs abfss wasb wasbs adl hdfs tcp tls ucx ucxx inproc smtp s3 gs".split()
)
_TOKEN = re.compile(r"(?=[^\s]{0,40}\d)[\w.~%-]{16,}$")
_MAX_SCHEME_CHARS = 20
_PATH = re.compile(r"[/?#]")
_NO_PASSWORD = re.compile(r"(?:x-oauth-basic)?\Z")


class Userinfo:
    """Users and passwords in the URLs of one text, requested in the order of the text."""

    def __init__(self, text: str) -> None:
        self._text = text
        #: Where the URL that was read last ends, and the last ``@`` in it.
        self._end = self._ends = -1

    def at(self, at: int, begin: int) -> tuple[int, list[tuple[int, int]]]:
        """Return the end of the URL read, and the spans of its user and password to hide.

        *at* is the place of ``://``, *begin* the place of the user or host.
        """
        text, ends = self._text, self._last_at(begin)
        if ends < begin:
            return begin, []
        colon = text.find(":", begin, ends)
        found = _PATH.search(text, begin, self._end)
        slash = found.start() if found else self._end
        if colon < 0 or (slash < colon):
            return begin, _token_user(text, at, begin, text.find("@", begin, self._end), slash)
        if slash < ends and (text.startswith("[", begin) or _PORT.match(text, colon)):
            return begin, []  # ``host:8080/path@x``
        is_hidden = text.startswith(HIDDEN, colon + 1) and ends == colon + 1 + len(HIDDEN)
        spans = [] if is_hidden or ends == colon + 1 else [(colon + 1, ends)]
        if _is_token(text[begin:colon]) or _NO_PASSWORD.match(text, colon + 1, ends):
            spans = [*_span_list(text, begin, colon), *spans]
        return ends, spans

    def _last_at(self, begin: int) -> int:
        if begin > self._end:
            stop = _END.search(self._text, begin)
            self._end = stop.start() if stop else len(self._text)
            self._ends = self._text.rfind("@", begin, self._end)
        return self._ends


def query_at(text: str, at: int) -> tuple[int, list[tuple[int, int]]]:
    """Where the query ends that begins with the question mark at *at*, and the values in it."""
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
    before = text[max(0, at - _MAX_SCHEME_CHARS) : at]
    scheme = re.split(r"[^A-Za-z0-9+.-]", before)[-1].lower()
    if slash < end or scheme in _NAMES or not _is_token(text[begin:end]):
        return []
    return _span_list(text, begin, end)


def _is_token(user: str) -> bool:
    return _TOKEN.match(user) is not None


def _span_list(text: str, begin: int, end: int) -> list[tuple[int, int]]:
    return [] if text[begin:end] in {HIDDEN, ""} else [(begin, end)]
