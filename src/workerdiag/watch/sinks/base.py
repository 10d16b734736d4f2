"""What a sink owes the watcher, and what sinks share: checks of their options, names, posting by HTTP."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import math
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from email.message import Message
from email.utils import parsedate_to_datetime
from functools import partial
from http import HTTPStatus
from http.client import HTTPException
from typing import Any, Protocol, runtime_checkable
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from attrs import Factory, define, evolve, field

from workerdiag._version import __version__
from workerdiag.deadline import CALL_FAILURES, Deadline, call_in_time
from workerdiag.errors import WorkerdiagError, describe_error
from workerdiag.redaction.secrets import HIDDEN, redact_text
from workerdiag.rendering.wording import one_line, printable
from workerdiag.values import frozen
from workerdiag.watch.case import WatchedCase


@frozen(kw_only=True)
class Delivery:
    """One notice on its way to one sink."""

    #: The same in every attempt: a receiver that sees it twice may drop the second.
    id: str
    notice: WatchedCase
    #: Counted from 1.
    attempt: int = 1
    #: What this sink returned for the last notice of the case: the id of a message to edit, its thread.
    receipt: Mapping[str, str] = field(factory=dict, hash=False)


@runtime_checkable
class Sink(Protocol):
    """A place that notices go to. Each has a thread of its own, so it may wait; it is called once at a time.

    With an attribute ``repeat_s``, for a receiver that forgets, the last notice of each open case is delivered
    again after so many seconds.
    """

    @property
    def name(self) -> str:
        """Short and the same after a restart: outbox and messages name the sink by it."""

    def deliver(self, delivery: Delivery) -> Mapping[str, str]:
        """Send it; return what the next delivery of this case needs to know, at most 2 kB.

        Raises:
            DeliveryError: It could not be sent. Any other exception counts as one that may be tried again.
        """


@define
class SinkSetupError(WorkerdiagError):
    """A sink cannot work as it was set up: a token is empty, an address is invalid."""

    #: What kind of sink: ``webhook``, ``slack``.
    sink: str
    #: What is wrong, without secrets.
    problem: str
    #: What to do about it.
    remedy: str
    _sentence = "cannot use the {sink} sink: {problem}"


def _delay_s(given: object) -> float | None:
    """A number of seconds, also as text; None for anything else."""
    try:
        seconds = float(given)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return seconds if math.isfinite(seconds) else None


@define
class DeliveryError(WorkerdiagError):
    """A notice could not be sent."""

    #: What was wrong, for a person, without secrets.
    problem: str
    #: Whether another attempt is of no use: a wrong token, a message that is refused.
    is_final: bool = False
    #: Seconds after which the receiver wants to be tried again (``Retry-After``). Text that is no number
    #: counts as not given.
    retry_after_s: float | None = field(default=None, converter=_delay_s)
    _sentence = "{problem}"


#: Seconds that one delivery may take, from the look-up of the host to the end of the answer.
TIMEOUT_S = 20.0

#: attrs calls it with the sink, the field and its value.
Validator = Callable[[object, object, Any], None]

#: An address may have no others (RFC 3986, section 2), and a header none of these.
_UNUSABLE = re.compile(r"[\x00-\x20\x7f-\U0010ffff]")


def text_given(sink: str, what: str, remedy: str, *, is_secret: bool = False) -> Validator:
    """A validator: one line of text that is not empty; a secret can be sent in a header."""

    def check(_sink: object, _field: object, value: object) -> None:
        if not isinstance(value, str) or not value.strip():
            raise SinkSetupError(sink, f"{what} is empty", remedy)
        if _UNUSABLE.search(value) if is_secret else not value.isprintable():
            raise SinkSetupError(sink, f"{what} has blanks or characters in it that it may not have", remedy)

    return check


def url_given(sink: str, remedy: str) -> Validator:
    """A validator: an address that HTTP can post to."""

    def check(_sink: object, _field: object, value: object) -> None:
        if problem := url_problem(value):
            raise SinkSetupError(sink, f"the URL {problem}", remedy)

    return check


def url_problem(url: object) -> str:
    """What is wrong with an address, without a part of it that may be secret; empty if nothing is."""
    if not isinstance(url, str) or not url:
        return "is empty"
    if _UNUSABLE.search(url):
        return "has blanks or characters beyond ASCII in it"
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  reading it checks it
    except ValueError:
        return "is malformed"
    if parts.scheme not in {"http", "https"}:
        return "does not begin with https:// or http://"
    if not parts.hostname:
        return "names no host"
    return "has a user or a password before the host" if "@" in parts.netloc else ""


def name_field(sink: str, name_of: Callable[[Any], str]) -> str:
    """A sink's field ``name``, by default what *name_of* makes of the sink."""
    validator = text_given(sink, "the name", "give a short one")
    return field(default=Factory(name_of, takes_self=True), validator=validator)


def sink_name(kind: str, address: object, place: str = "") -> str:
    """``webhook:bots.example.org/3f9a1c``: the same after a restart, and with another token in the query."""
    text = str(address).partition("?")[0]
    digest = hashlib.sha256(text.encode("utf-8", errors="replace")).hexdigest()[:6]
    return f"{kind}:{place or host_of(text)}/{digest}"


def host_of(url: str) -> str:
    """The host of an address, the only part of it that a message may show; empty if it has none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


#: Statuses below 500 after which the same request may succeed (RFC 9110, section 15.5; RFC 8470; RFC 6585).
_TEMPORARY = frozenset({408, 409, 421, 423, 425, 429})


def post(
    sink: Any, url: str, body: bytes, headers: Mapping[str, str], *, remedy: str, secrets: Iterable[str]
) -> bytes:
    """Post the *body* of a sink, and return the answer's body. Proxies are those of the environment.

    A redirect is followed to the same host only. Raises DeliveryError, which shows no *secrets*, without an answer
    in time, and for a refusal, with the *remedy*: ``check the token``.
    """
    request = Request(  # noqa: S310  http or https: `url_given`
        url, data=body, headers={"User-Agent": f"workerdiag/{__version__}", **headers}, method="POST"
    )
    limit = Deadline.after(sink.timeout_s)
    answer: bytes | DeliveryError
    try:
        exchange = partial(_exchange, request, sink.timeout_s, remedy)
        answer = call_in_time(f"workerdiag-post-{sink.name}", exchange, limit)
    except CALL_FAILURES as problem:
        answer = DeliveryError(f"{host_of(url)}: {problem}")
    if isinstance(answer, DeliveryError):
        raise evolve(answer, problem=f"{sink.name}: {without_secrets(answer.problem, *secrets)}")
    return answer


def _exchange(request: Request, timeout_s: float, remedy: str) -> bytes | DeliveryError:
    host = host_of(request.full_url)
    try:
        with build_opener(_SameHostRepeats).open(request, timeout=timeout_s) as answer:
            body: bytes = answer.read(256 * 1024)
    except HTTPError as refusal:
        return _refused(refusal, host, remedy)
    except (OSError, HTTPException, ValueError) as problem:
        return DeliveryError(f"cannot reach {host}: {describe_error(problem, most_chars=300)}")
    return body


def _refused(refusal: HTTPError, host: str, remedy: str) -> DeliveryError:
    status = refusal.code
    if 300 <= status < 400:
        target = host_of(refusal.headers.get("Location", "")) or "an unnamed place"
        what = f"{host} answered {status}, a redirect to {target}, which is not followed"
        is_to_stay = status in {301, 308}  # RFC 9110, section 15.4; any other may be a page shown for an hour
        return DeliveryError(f"{what}; set up the sink with the final address", is_final=is_to_stay)
    with refusal:
        detail = _detail_of(refusal)
    is_final = status < 500 and status not in _TEMPORARY
    phrase = HTTPStatus(status).phrase if status in set(HTTPStatus) else ""
    said = f"{host} answered {status} {phrase}{detail and f' ({detail})'}{f'; {remedy}' if is_final else ''}"
    return DeliveryError(said, is_final=is_final, retry_after_s=retry_after_s(refusal.headers))


def without_secrets(text: str, *secrets: str) -> str:
    """The *text* on one line without the *secrets*, the path and query of an address among them, and others."""
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
        said = refusal.read(800)
    except (OSError, HTTPException):
        return ""
    text = one_line(said.decode("utf-8", errors="replace"))
    return "" if text.startswith("<") else text[:200]  # a page in HTML says nothing here


def retry_after_s(headers: Message) -> float | None:
    """``Retry-After``: a number of seconds, or a date (RFC 9110, section 10.2.3); None if it says neither."""
    said = (headers.get("Retry-After") or "").strip()
    if re.fullmatch(r"\d{1,9}", said):
        return float(said)
    try:
        return max(0.0, parsedate_to_datetime(said).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _function_given(_sink: object, _field: object, value: Any) -> None:
    if not callable(value):
        remedy = "give a function that takes a notice, or an object with name and deliver()"
        raise SinkSetupError("function", f"{type(value).__name__} is not a function", remedy)


def _default_name(sink: FunctionSink) -> str:
    kind = type(sink.function).__name__
    return f"function:{getattr(sink.function, '__qualname__', kind)}"[:200]


@frozen
class FunctionSink:
    """Calls a function, or awaits one that is asynchronous, with each notice.

    It may see a notice twice, with the same ``notice.notice_id``. A notice counts as delivered when it returns;
    if it raises it is called again later, unless it raises a `DeliveryError` that is final.
    """

    function: Callable[[WatchedCase], object] = field(validator=_function_given)
    #: Two functions of one name need different ones.
    name: str = name_field("function", _default_name)

    def deliver(self, delivery: Delivery) -> Mapping[str, str]:
        """Call it; nothing is noted for the next time."""
        returned = self.function(delivery.notice)
        if inspect.isawaitable(returned):
            asyncio.run(_awaited(returned))
        return {}


async def _awaited(returned: Awaitable[object]) -> None:
    await returned


def as_sink(given: Sink | Callable[[WatchedCase], object]) -> Sink:
    """A sink as it is, and a function as a sink; raises SinkSetupError."""
    if not isinstance(given, Sink):
        return FunctionSink(given)
    text_given(type(given).__name__, "the name", "give it an attribute `name`")(None, None, given.name)
    return given


def environment_variable(kind: str, environment: Mapping[str, str], name: str) -> str:
    """Return the value of the variable *name*, which a sink needs; raises SinkSetupError if it is not set."""
    value = environment.get(name, "")
    if not value:
        raise SinkSetupError(kind, f"the variable {name} is not set", f"export {name}=...")
    return value
