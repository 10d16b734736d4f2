"""Checks a sink's options as it is made, and gives it a name."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from attrs import Factory, field

from workerdiag.watch.sinks.sink import SinkSetupError

#: Seconds that one delivery may take, from the look-up of the host to the end of the answer.
TIMEOUT_S = 20.0

#: attrs calls it with the sink, the field and its value.
Validator = Callable[[object, object, Any], None]

#: An address may have no others (RFC 3986, section 2), and a header none of these.
_UNUSABLE = re.compile(r"[\x00-\x20\x7f-\U0010ffff]")


def secret_given(sink: str, what: str, remedy: str) -> Validator:
    """A validator: a token or key that can be sent in a header."""

    def check(_sink: object, _field: object, value: object) -> None:
        if not isinstance(value, str) or not value:
            raise SinkSetupError(sink, f"{what} is empty", remedy)
        if _UNUSABLE.search(value):
            raise SinkSetupError(sink, f"{what} has blanks or characters beyond ASCII in it", remedy)

    return check


def text_given(sink: str, what: str, remedy: str) -> Validator:
    """A validator: a text of one line that is not empty."""

    def check(_sink: object, _field: object, value: object) -> None:
        if not isinstance(value, str) or not value.strip() or not value.isprintable():
            raise SinkSetupError(sink, f"{what} is empty or no single line of text", remedy)

    return check


def url_given(sink: str, remedy: str) -> Validator:
    """A validator: an address that HTTP can post to."""

    def check(_sink: object, _field: object, value: object) -> None:
        if problem := _url_problem(value):
            raise SinkSetupError(sink, f"the URL {problem}", remedy)

    return check


def _url_problem(url: object) -> str:
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


def positive(sink: str, what: str) -> Validator:
    """A validator: a number of seconds above 0."""

    def check(_sink: object, _field: object, value: object) -> None:
        if not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise SinkSetupError(sink, f"{what} is {value!r}", "give a number of seconds above 0")

    return check


def timeout_field(sink: str) -> float:
    """A sink's field ``timeout_s``."""
    return field(default=TIMEOUT_S, validator=positive(sink, "timeout_s"))


def name_field(sink: str, name_of: Callable[[Any], str]) -> str:
    """A sink's field ``name``, by default what *name_of* makes of the sink."""
    validator = text_given(sink, "the name", "give a short one")
    return field(default=Factory(name_of, takes_self=True), validator=validator)


def sink_name(kind: str, address: object, place: str = "") -> str:
    """``webhook:bots.example.org/3f9a1c``: the same after a restart, different for different addresses.

    The query is left out: that is where tokens stand that change. *place* stands for the host.
    """
    text = str(address).partition("?")[0]
    digest = hashlib.sha256(text.encode("utf-8", errors="replace")).hexdigest()[:6]
    return f"{kind}:{place or host_of(text)}/{digest}"


def host_of(url: str) -> str:
    """The host of an address, the only part of it that a message may show; empty if it has none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
