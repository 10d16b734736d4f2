"""PagerDuty by its Events API v2: a case is an alert, which is triggered, updated and resolved under one key."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal, assert_never

from attrs import field, frozen

from workerdiag.model.vocabulary import NoticeReason
from workerdiag.watch.case import Notice
from workerdiag.watch.sinks.base import (
    Delivery,
    Endpoint,
    SinkSetupError,
    name_field,
    sink_name,
    timeout_field,
    url_given,
)
from workerdiag.watch.sinks.notice_parts import Card, card_of, line

Severity = Literal["critical", "error", "warning", "info"]
Action = Literal["trigger", "resolve", "change"]

API = "https://events.pagerduty.com"
#: https://developer.pagerduty.com/docs/send-alert-event: what is longer is refused; titles are shorter.
MAX_SUMMARY_CHARS = 1_024
MAX_KEY_CHARS = 255
#: https://developer.pagerduty.com/docs/events-api-v2-overview: 512 kB an event.
MAX_EVENT_BYTES = 512_000
#: An integration key has 32 letters and digits; PagerDuty refuses another length.
_KEY = re.compile(r"[0-9A-Za-z]{32}")
_REMEDY = "give the 32 letters and digits of an integration of the type Events API V2"


def _key_given(_sink: object, _field: object, value: Any) -> None:
    if not isinstance(value, str) or not _KEY.fullmatch(value):
        raise SinkSetupError("pagerduty", "the routing key is invalid", _REMEDY)


def action_of(reason: NoticeReason) -> Action:
    """What PagerDuty shall do.

    PagerDuty knows no third end: the alert of a case whose cluster went is closed, as nobody else would close
    it, and the event says that the case was not resolved. A digest wakes nobody: it is a change event.
    """
    match reason:
        case "new" | "recurring" | "escalating" | "changed" | "reminder" | "blind":
            return "trigger"
        case "resolved" | "ended":
            return "resolve"
        case "digest":
            return "change"
        case _:
            assert_never(reason)


def severity_of(reason: NoticeReason) -> Severity:
    """How bad it is, in PagerDuty's words."""
    match reason:
        case "escalating":
            return "critical"
        case "new" | "recurring" | "changed" | "reminder":
            return "error"
        case "blind":
            return "warning"
        case "resolved" | "ended" | "digest":
            return "info"
        case _:
            assert_never(reason)


@frozen
class PagerDutySink:
    """Alerts of one integration. The case's id is the key of its alert, so a repeat changes nothing."""

    routing_key: str = field(repr=False, validator=_key_given)
    name: str = name_field("pagerduty", lambda sink: sink_name("pagerduty", sink.routing_key, "events"))
    timeout_s: float = timeout_field("pagerduty")
    #: For the service region Europe, ``https://events.eu.pagerduty.com``.
    api: str = field(default=API, validator=url_given("pagerduty", "leave `api` out"))

    def deliver(self, delivery: Delivery) -> Mapping[str, str]:
        """Send the event; note its key."""
        notice = delivery.notice
        action = action_of(notice.reason)
        path = "/v2/change/enqueue" if action == "change" else "/v2/enqueue"
        event = change_event(delivery) if action == "change" else alert_event(delivery, action)
        endpoint = Endpoint(
            sink=self.name,
            url=f"{self.api.rstrip('/')}{path}",
            timeout_s=self.timeout_s,
            remedy=_REMEDY,
            secrets=(self.routing_key,),
        )
        body = json.dumps({"routing_key": self.routing_key, **event}, separators=(",", ":")).encode()
        endpoint.post(body, {"Content-Type": "application/json"})
        return {"dedup_key": dedup_key(notice)}


def dedup_key(notice: Notice) -> str:
    """The case's id; of one that is too long, its hash."""
    key = line(notice.case_id, MAX_KEY_CHARS + 1)
    if key == notice.case_id and 0 < len(key) <= MAX_KEY_CHARS:
        return key
    return hashlib.sha256(notice.case_id.encode("utf-8", errors="surrogatepass")).hexdigest()


def alert_event(delivery: Delivery, action: Literal["trigger", "resolve"]) -> Mapping[str, object]:
    """An event for an alert, without the routing key."""
    notice, card = delivery.notice, card_of(delivery.notice)
    return {
        "event_action": action,
        "dedup_key": dedup_key(notice),
        "client": "workerdiag",
        "links": _alert_links(card),
        "payload": {
            **_payload(delivery, card),
            "severity": severity_of(notice.reason),
            "component": line(notice.first_victim),
            "group": line(notice.cluster),
            "class": line(notice.cause or "unknown"),
        },
    }


def change_event(delivery: Delivery) -> Mapping[str, object]:
    """An event that only informs, without the routing key."""
    card = card_of(delivery.notice)
    return {"links": _alert_links(card), "payload": _payload(delivery, card)}


def _payload(delivery: Delivery, card: Card) -> Mapping[str, object]:
    notice = delivery.notice
    details: dict[str, object] = {"reason": card.reason, **dict(card.facts)}
    details |= {"text": card.text} if card.text else {}
    details |= {"advice": list(card.advice)} if card.advice else {}
    details |= dict(card.commands)
    return {
        "summary": card.title,
        "source": line(notice.cluster) or "dask",
        **_timestamp(notice.at),
        "custom_details": {**details, "delivery": line(delivery.id)},
    }


def _timestamp(when: float) -> Mapping[str, str]:
    """When it was said, left out where it is no time."""
    try:
        return {"timestamp": datetime.fromtimestamp(when, UTC).isoformat(timespec="milliseconds")}
    except (ValueError, OverflowError, OSError):
        return {}


def _alert_links(card: Card) -> list[Mapping[str, str]]:
    return [{"href": address, "text": label} for label, address in card.links]


def from_option(value: str, _: Mapping[str, str]) -> PagerDutySink:
    """Return the sink for an integration key."""
    return PagerDutySink(value)
