"""PagerDuty, against a local HTTP server."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings

from support.http_server import HttpAnswer, HttpServer
from support.notices import HOSTILE, delivery_of, notices, sample_notice
from workerdiag.watch.sinks.base import DeliveryError, SinkSetupError
from workerdiag.watch.sinks.pagerduty import (
    MAX_EVENT_BYTES,
    MAX_KEY_CHARS,
    MAX_SUMMARY_CHARS,
    PagerDutySink,
    alert_event,
    change_event,
)

KEY = "0123456789abcdef0123456789abcdef"
ACCEPTED = HttpAnswer({"status": "success"}, status=202)


def sent(*deliveries):
    """Path and body of each request."""
    with HttpServer(lambda _: ACCEPTED) as server:
        sink = PagerDutySink(KEY, api=server.url)
        for each in deliveries:
            assert sink.deliver(each) == {"dedup_key": each.notice.case_id}
    return [(request.path, json.loads(request.body)) for request in server.requests]


def test_a_case_is_one_alert_from_trigger_to_resolve():
    """Everything that is said of a case goes to one alert, and its end closes it."""
    reasons = ("new", "escalating", "resolved")
    events = sent(*(delivery_of(sample_notice(each)) for each in reasons))
    assert {path for path, _ in events} == {"/v2/enqueue"}
    assert [event["event_action"] for _, event in events] == ["trigger", "trigger", "resolve"]
    assert {event["dedup_key"] for _, event in events} == {"case-1"}
    assert [event["payload"]["severity"] for _, event in events] == ["error", "critical", "info"]


def test_the_event_says_what_whom_and_what_to_do():
    """Who is woken sees cause, cluster, deaths, advice, links and how to silence it."""
    ((_, event),) = sent(delivery_of())
    assert event["routing_key"] == KEY
    assert event["payload"]["summary"] == "3 workers of prod died: memory limit (93%)"
    assert event["payload"]["source"] == "prod"
    assert event["payload"]["timestamp"] == "2023-11-14T22:15:00.000+00:00"
    assert event["payload"]["class"] == "nanny.memory-terminate"
    assert event["links"] == [{"href": "https://docs.example.org/causes/nanny", "text": "About this cause"}]
    details = event["payload"]["custom_details"]
    assert details["advice"] == ["Give each worker at least 4 GiB.", "Split the partitions."]
    assert details["Saved evidence"] == "/var/lib/deaths/1.zip"
    assert details["Silence"].startswith("workerdiag watch silence case-1")
    assert details["delivery"] == "case-1:1:sink"


@pytest.mark.parametrize(("reason", "action"), [("ended", "resolve"), ("blind", "trigger")])
def test_an_end_closes_and_blindness_opens(reason, action):
    """A cluster that went keeps nobody awake, and is not called resolved; a watcher that cannot see does."""
    ((_, event),) = sent(delivery_of(sample_notice(reason)))
    assert event["event_action"] == action
    assert ("Not resolved" in event["payload"]["custom_details"]) == (reason == "ended")


def test_a_digest_wakes_nobody():
    """What was held back is a change event: it is seen, and opens no alert."""
    ((path, event),) = sent(delivery_of(sample_notice("digest", text="2 notices were held back")))
    assert path == "/v2/change/enqueue"
    assert "event_action" not in event
    assert event["payload"]["custom_details"]["text"] == "2 notices were held back"


@pytest.mark.parametrize(("status", "is_final"), [(400, True), (403, True), (429, False), (500, False)])
def test_refusals_are_told_apart(status, is_final):
    """A wrong key is final, a limit is not, and the key is not shown."""
    answer = HttpAnswer({"status": "invalid event", "errors": [f"no such key {KEY}"]}, status=status)
    with HttpServer(lambda _: answer) as server:
        sink = PagerDutySink(KEY, api=server.url)
        with pytest.raises(DeliveryError, match="invalid event") as caught:
            sink.deliver(delivery_of())
    assert caught.value.is_final == is_final
    assert KEY not in f"{caught.value}{sink!r}{sink.name}"


@pytest.mark.parametrize("key", ["", "short", KEY + "0", None])
def test_a_key_that_is_none_is_refused_at_once(key):
    """PagerDuty takes keys of 32 letters and digits; another one is found when the watcher starts."""
    with pytest.raises(SinkSetupError, match="routing key is invalid"):
        PagerDutySink(key)


def test_hostile_text_is_no_link():
    """Only web addresses become links; what else stands in a notice is a value."""
    links = {"cause": "javascript:alert(1)", "x": HOSTILE, "y": "https://me@evil.example/"}
    event = alert_event(delivery_of(sample_notice(title=HOSTILE, links=links)), "trigger")
    assert event["links"] == []
    assert "\n" not in event["payload"]["summary"]


@settings(max_examples=50)
@given(notices)
def test_any_notice_is_within_pagerdutys_limits(notice):
    """Whatever stands in a notice, PagerDuty takes it."""
    delivery = delivery_of(notice)
    for event in (alert_event(delivery, "trigger"), change_event(delivery)):
        body = json.dumps(event, ensure_ascii=False, allow_nan=False).encode()
        assert len(body) < MAX_EVENT_BYTES
        assert 0 < len(event["payload"]["summary"]) <= MAX_SUMMARY_CHARS
        assert event["payload"]["source"]
        assert 0 < len(event.get("dedup_key", "-")) <= MAX_KEY_CHARS
