"""Posts to a service by HTTP, and says in a `DeliveryError` what went wrong."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from email.message import Message
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from attrs import field, frozen

from workerdiag._version import __version__
from workerdiag.deadline import CALL_FAILURES, Deadline, call_in_time
from workerdiag.errors import describe_error
from workerdiag.redaction.secrets import HIDDEN, redact_text
from workerdiag.rendering.wording import one_line, printable
from workerdiag.watch.sinks.setup import host_of
from workerdiag.watch.sinks.sink import DeliveryError

#: Statuses below 500 after which the same request may succeed (RFC 9110, section 15.5; RFC 8470; RFC 6585).
_TEMPORARY = frozenset({408, 409, 421, 423, 425, 429})
#: A redirect that is meant to stay (RFC 9110, section 15.4); any other may be a page shown for an hour.
_PERMANENT_REDIRECTS = frozenset({301, 308})
_MAX_ANSWER_BYTES = 256 * 1024
_MAX_DETAIL_CHARS = 200
#: Longer waits than a day are not believed.
_MAX_RETRY_AFTER_S = 86_400.0
_DIGITS = re.compile(r"\d{1,9}")


@frozen(kw_only=True)
class Endpoint:
    """An address that one sink posts to."""

    #: Name of the sink, which begins each message.
    sink: str
    url: str = field(repr=False)
    timeout_s: float
    #: What to do about a refusal: ``check the token``.
    remedy: str
    #: What no message may show; of an address that is its path and its query.
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def post(self, body: bytes, headers: Mapping[str, str]) -> bytes:
        """Post *body*, and return the answer's body.

        A redirect is followed to the same host only. Proxies are those of the environment.

        Raises:
            DeliveryError: There was no answer in time, or it is a refusal.
        """
        request = Request(  # noqa: S310  http or https: `url_given`
            self.url,
            data=body,
            headers={"User-Agent": f"workerdiag/{__version__}", **headers},
            method="POST",
        )
        try:
            answer = call_in_time(
                f"workerdiag-post-{self.sink}",
                lambda: self._exchange(request),
                Deadline.after(self.timeout_s),
            )
        except CALL_FAILURES as problem:
            raise DeliveryError(self._worded(f"{host_of(self.url)}: {problem}")) from None
        if isinstance(answer, DeliveryError):
            raise answer
        return answer

    def _exchange(self, request: Request) -> bytes | DeliveryError:
        try:
            with build_opener(_SameHostRepeats).open(request, timeout=self.timeout_s) as answer:
                body: bytes = answer.read(_MAX_ANSWER_BYTES)
        except HTTPError as refusal:
            return self._refused(refusal)
        except (OSError, HTTPException, ValueError) as problem:
            return DeliveryError(
                self._worded(f"cannot reach {host_of(self.url)}: {describe_error(problem, most_chars=300)}")
            )
        return body

    def _refused(self, refusal: HTTPError) -> DeliveryError:
        status = refusal.code
        if 300 <= status < 400:
            return self._redirected(status, refusal.headers)
        with refusal:
            detail = self.shown(_detail_of(refusal))
        is_final = status < 500 and status not in _TEMPORARY
        said = f"{host_of(self.url)} answered {status} {_phrase(status)}{detail and f' ({detail})'}"
        return DeliveryError(
            self._worded(f"{said}; {self.remedy}" if is_final else said),
            is_final=is_final,
            retry_after_s=retry_after_s(refusal.headers),
        )

    def _redirected(self, status: int, headers: Message) -> DeliveryError:
        target = host_of(headers.get("Location", "")) or "an unnamed place"
        return DeliveryError(
            self._worded(
                f"{host_of(self.url)} answered {status}, a redirect to {target}, which is not followed; "
                "set up the sink with the address that answers itself"
            ),
            is_final=status in _PERMANENT_REDIRECTS,
        )

    def _worded(self, problem: str) -> str:
        return f"{self.sink}: {self.shown(problem)}"

    def shown(self, text: str) -> str:
        """The *text* on one line, without secrets and without anything a terminal acts upon."""
        return without_secrets(text, *self.secrets)


def without_secrets(text: str, *secrets: str) -> str:
    """The *text* on one line without the *secrets*, or what looks like another one.

    Of an address the path and the query are secret, too.
    """
    for secret in secrets:
        path = secret.partition("://")[2].partition("/")[2]
        for part in (secret, path, path.partition("?")[2]):
            if len(part) > 3:
                text = text.replace(part, HIDDEN)
    return printable(one_line(redact_text(text)))


class _SameHostRepeats(HTTPRedirectHandler):
    """Repeats the whole request where a redirect asks for that at the same place, and follows no other one."""

    def redirect_request(
        self, req: Request, fp: object, code: int, msg: str, headers: object, newurl: str
    ) -> Request | None:
        del fp, msg, headers
        before, after = urlsplit(req.full_url), urlsplit(newurl)
        if code not in {307, 308} or (before.scheme, before.netloc) != (after.scheme, after.netloc):
            return None
        return Request(newurl, data=req.data, headers=req.headers, method="POST")  # noqa: S310  as before


def _detail_of(refusal: HTTPError) -> str:
    try:
        said = refusal.read(4 * _MAX_DETAIL_CHARS)
    except (OSError, HTTPException):
        return ""
    text = one_line(said.decode("utf-8", errors="replace"))
    return "" if text.startswith("<") else text[:_MAX_DETAIL_CHARS]  # a page in HTML says nothing here


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def retry_after_s(headers: Message) -> float | None:
    """``Retry-After``: a number of seconds, or a date (RFC 9110, section 10.2.3); None if it says neither."""
    said = (headers.get("Retry-After") or "").strip()
    if _DIGITS.fullmatch(said):
        return min(float(said), _MAX_RETRY_AFTER_S)
    try:
        left_s = parsedate_to_datetime(said).timestamp() - time.time()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return min(max(0.0, left_s), _MAX_RETRY_AFTER_S) if math.isfinite(left_s) else None
