"""Every service that Apprise knows, by its URL. Needs the extra ``notify``."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from workerdiag.deadline import CALL_FAILURES, Deadline, call_in_time
from workerdiag.model.vocabulary import NoticeReason
from workerdiag.values import field, frozen
from workerdiag.watch.case import WatchedCase
from workerdiag.watch.sinks.base import (
    TIMEOUT_S,
    Delivery,
    DeliveryError,
    SinkSetupError,
    name_field,
    sink_name,
    without_secrets,
)

if TYPE_CHECKING:
    from apprise import Apprise

_URL_REMEDY = "see https://github.com/caronc/apprise/wiki for the URL of each service"
#: What wakes people in one service or another, if it stands in a text.
_MENTION = re.compile(r"@(?=[\w{])|<(?=[@!#])")
#: How Apprise marks a notice.
_TYPES: Mapping[NoticeReason, str] = {
    "new": "failure",
    "recurring": "failure",
    "escalating": "failure",
    "changed": "warning",
    "blind": "warning",
    "resolved": "success",
    "ended": "info",
}
#: Parts of a URL between these may be tokens.
_BETWEEN = re.compile(r"[/@:?&=]+")


def _url_given(_sink: object, _field: object, value: Any) -> None:
    if not isinstance(value, str) or "://" not in value or not value.isprintable():
        raise SinkSetupError("notify", "this is not a URL", _URL_REMEDY)
    _service_of(value)


def _service_of(url: str) -> Apprise:
    try:
        from apprise import Apprise
    except ImportError:
        raise SinkSetupError("notify", "Apprise is not installed", "pip install 'workerdiag[notify]'") from None
    # What is too long is split, unless the URL says otherwise: Apprise would send it, and be refused.
    split = "" if "overflow=" in url else f"{'&' if '?' in url else '?'}overflow=split"
    service = Apprise()
    with _Warnings():
        is_known = service.add(f"{url}{split}")
    if not is_known:
        raise SinkSetupError("notify", f"Apprise cannot use this URL for {_kind_of(url)}://", _URL_REMEDY)
    return service


def _kind_of(url: object) -> str:
    return str(url).partition("://")[0][:20]


@frozen
class AppriseSink:
    """A message for each notice, which is never edited: Apprise hands over no id of it."""

    url: str = field(repr=False, validator=_url_given)
    name: str = name_field("notify", lambda sink: sink_name("notify", sink.url, _kind_of(sink.url)))
    timeout_s: float = TIMEOUT_S

    def deliver(self, delivery: Delivery) -> Mapping[str, str]:
        """Send it; nothing is noted for the next time."""
        try:
            limit = Deadline.after(self.timeout_s)
            problem = call_in_time(f"workerdiag-{self.name}", lambda: self._notify(delivery.notice), limit)
        except CALL_FAILURES as failure:
            problem = str(failure)
        if problem:
            raise DeliveryError(f"{self.name}: {self._shown(problem)}")
        return {}

    def _notify(self, notice: WatchedCase) -> str:
        service = _service_of(self.url)
        with _Warnings() as warnings:
            result = service.notify(
                title=without_mentions(notice.title),
                body=without_mentions(notice.text.partition("\n")[2]),
                notify_type=_TYPES[notice.reason],
                body_format="text",
            )
        if result:
            return ""
        said = [entry.message for entry in result.logs()] if hasattr(result, "logs") else [warnings.last]
        return next(filter(None, reversed(said)), "Apprise could not send it, for an unknown reason")

    def _shown(self, problem: str) -> str:
        tokens = [part for part in _BETWEEN.split(self.url) if len(part) >= 8]
        return without_secrets(problem, self.url, *tokens)[:500]


def without_mentions(text: str) -> str:
    """The text in which nobody is mentioned: after ``@``, and in ``<!channel>``, stands a character of no width."""
    return _MENTION.sub(lambda found: f"{found[0]}\N{ZERO WIDTH SPACE}", text)


class _Warnings(logging.Filter):
    """Keeps to itself what Apprise logs in this thread: it may show a URL that it cannot read.

    Before 2.2 that is also where alone Apprise says what went wrong.
    """

    def __init__(self) -> None:
        super().__init__()
        self.last = ""
        self._thread = threading.get_ident()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.thread != self._thread:
            return True
        if record.levelno >= logging.WARNING:
            self.last = record.getMessage()
        return False

    def __enter__(self) -> Self:
        logging.getLogger("apprise").addFilter(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("apprise").removeFilter(self)


def from_option(value: str, _: Mapping[str, str]) -> AppriseSink:
    """Return the sink for a URL of Apprise."""
    return AppriseSink(value)
