"""Notices as JSON, and a signed webhook that posts them, as https://www.standardwebhooks.com specifies it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import isfinite
from urllib.parse import quote

from attrs import asdict, field

from workerdiag.errors import utf8_safe
from workerdiag.rendering.wording import map_texts
from workerdiag.values import frozen
from workerdiag.watch.case import WatchedCase
from workerdiag.watch.sinks.base import (
    TIMEOUT_S,
    Delivery,
    environment_variable,
    name_field,
    post,
    sink_name,
    text_given,
    url_given,
)

_ENCODED = "whsec_"
_SECRET_REMEDY = "give the secret that the receiver checks signatures with"  # noqa: S105  no secret
#: Of the body's format; one more when a reader of the old one would misread it.
SCHEMA = 1
_INTERNAL = frozenset({"diagnosis_json", "progress", "unexplained_ids"})
#: Without the diagnosis if it would be longer: nginx refuses more than 1 MB unless told otherwise
#: (https://nginx.org/en/docs/http/ngx_http_core_module.html#client_max_body_size).
_MAX_DIAGNOSIS_CHARS = 800_000


@frozen
class WebhookSink:
    """Posts each notice as JSON, signed.

    Headers: ``webhook-id`` and ``Idempotency-Key`` are the same in every attempt of a delivery, so that a
    receiver can drop what it has; ``webhook-timestamp`` is when this attempt was made; ``webhook-signature``
    is ``v1,`` and the Base64 of the HMAC-SHA256, by the secret, of ``ID.TIMESTAMP.BODY``. The body is the
    same in every attempt. Any status of 200 to 299 counts as delivered.
    """

    url: str = field(repr=False, validator=url_given("webhook", "give the address of the receiver, https://..."))
    #: Text, or ``whsec_`` and Base64.
    secret: str = field(repr=False, validator=text_given("webhook", "the secret", _SECRET_REMEDY, is_secret=True))
    name: str = name_field("webhook", lambda sink: sink_name("webhook", sink.url))
    timeout_s: float = TIMEOUT_S
    #: Seconds since the epoch.
    clock: Callable[[], float] = field(default=time.time, repr=False)

    def deliver(self, delivery: Delivery) -> Mapping[str, str]:
        """Post it; nothing is noted for the next time."""
        body = json.dumps(delivery_json(delivery), separators=(",", ":")).encode()
        remedy = "check the URL and the secret of the webhook"
        headers = self._headers(quote(delivery.id, safe=":/@#+=,"), body)
        post(self, self.url, body, headers, remedy=remedy, secrets=(self.url, self.secret))
        return {}

    def _headers(self, delivery_id: str, body: bytes) -> Mapping[str, str]:
        stamp = str(int(self.clock()))
        return {
            "Content-Type": "application/json",
            "Idempotency-Key": delivery_id,
            "webhook-id": delivery_id,
            "webhook-timestamp": stamp,
            "webhook-signature": _signature(delivery_id, stamp, body, self.secret),
        }


def verify_signature(
    body: bytes, headers: Mapping[str, str], secret: str, *, tolerance_s: float = 300.0, now: float | None = None
) -> bool:
    """Whether a request comes from someone who has the secret, and was made just now.

    For receivers. Do nothing with a request for which it is False, and drop one whose ``Idempotency-Key`` was
    seen before.

    Args:
        body: As it was received, before any decoding.
        headers: Of the request; upper and lower case are the same.
        secret: The one that the sink was made with.
        tolerance_s: How far the request's time and *now* may be apart; by default as the specification's libraries
            have it.
        now: Seconds since the epoch; None for this machine's clock.
    """
    given = {name.lower(): value for name, value in headers.items()}
    stamp = given.get("webhook-timestamp", "")
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) < 16 and secret):
        return False
    if abs((time.time() if now is None else now) - int(stamp)) > tolerance_s:
        return False
    right = _signature(given.get("webhook-id", ""), stamp, body, secret).encode()
    signatures = given.get("webhook-signature", "").encode("utf-8", errors="replace").split()
    return any(hmac.compare_digest(right, each) for each in signatures)


def _signature(delivery_id: str, stamp: str, body: bytes, secret: str) -> str:
    signed = f"{delivery_id}.{stamp}.".encode("utf-8", errors="replace") + body
    digest = hmac.new(_key_of(secret), signed, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def _key_of(secret: str) -> bytes:
    if secret.startswith(_ENCODED):
        with suppress(ValueError):  # it only looks like Base64
            return base64.b64decode(secret.removeprefix(_ENCODED), validate=True)
    return secret.encode("utf-8", errors="replace")


def delivery_json(delivery: Delivery) -> Mapping[str, object]:
    """The body of a webhook, with the fields of `WatchedCase` and, unless it is too long, `Diagnosis.to_dict`."""
    return {
        "schema": SCHEMA,
        "type": "workerdiag.notice",
        "delivery_id": utf8_safe(delivery.id),
        "notice": notice_json(delivery.notice),
        "diagnosis": _diagnosis(delivery.notice),
    }


def notice_json(notice: WatchedCase) -> Mapping[str, object]:
    """The fields of a notice as plain values, without its diagnosis and what only the watcher needs."""
    fields = asdict(notice, filter=lambda each, _: each.name not in _INTERNAL)
    fields |= {"hosts": sorted(notice.hosts), "unexplained_count": notice.unexplained_count}
    finite = (None if isinstance(each, float) and not isfinite(each) else each for each in fields.values())
    return map_texts(utf8_safe, dict(zip(fields, finite, strict=True)))


def _diagnosis(notice: WatchedCase) -> object:
    if not notice.diagnosis_json or len(notice.diagnosis_json) > _MAX_DIAGNOSIS_CHARS:
        return None
    try:
        return map_texts(utf8_safe, json.loads(notice.diagnosis_json))
    except (ValueError, RecursionError):
        return None


def from_option(value: str, environment: Mapping[str, str]) -> WebhookSink:
    """Return the sink for a URL."""
    return WebhookSink(value, environment_variable("webhook", environment, "WORKERDIAG_WEBHOOK_SECRET"))
