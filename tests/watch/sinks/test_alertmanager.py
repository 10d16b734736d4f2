"""Alertmanager's API, as a local server that keeps what it is sent; tests/lab has the real one."""

from __future__ import annotations

import json
import time
from datetime import datetime

import pytest
from hypothesis import given

from support.http_server import HttpAnswer, HttpServer
from support.notices import delivery_of, notices, sample_notice
from support.watch_values import make_notice, watched_case
from workerdiag.watch.outbox import Outbox
from workerdiag.watch.sinks.alertmanager import LASTS_S, AlertmanagerSink, alert_of, labels_of
from workerdiag.watch.sinks.base import DeliveryError
from workerdiag.watch.store import RetrySettings, Store

NOW = 1_700_000_200.0
#: Longer than any test waits.
LONG_S = 60.0


@pytest.fixture
def alertmanager():
    """A server that takes everything."""
    with HttpServer(lambda _: HttpAnswer()) as server:
        yield server


def sent(server):
    """The alerts of each request."""
    assert {each.path for each in server.requests} <= {"/api/v2/alerts"}
    return [json.loads(each.body) for each in server.requests]


def seconds(text):
    """The time in an alert."""
    return datetime.fromisoformat(text).timestamp()


def test_a_case_is_an_alert_that_fires_until_it_is_over(alertmanager):
    """Labels to route by; it goes on for a day without another word, and ends with the case."""
    sink = AlertmanagerSink(alertmanager.url, clock=lambda: NOW)
    receipt = sink.deliver(delivery_of())
    sink.deliver(delivery_of(sample_notice("resolved", state="resolved"), receipt=receipt))
    (first,), (last,) = sent(alertmanager)
    assert first["labels"] == {
        "alertname": "DaskTrouble",
        "fingerprint": "nanny.memory-terminate",
        "cause": "nanny.memory-terminate",
        "family": "nanny",
        "blame": "task",
        "cluster": "prod",
    }
    assert first["annotations"] == {
        "summary": sample_notice().title,
        "description": sample_notice().text,
        "runbook_url": "https://docs.example.org/causes/nanny",
    }
    assert seconds(first["startsAt"]) == sample_notice().opened_at
    assert seconds(first["endsAt"]) == NOW + LASTS_S
    assert (last["labels"], seconds(last["endsAt"])) == (first["labels"], NOW)


def test_an_alert_whose_cause_changed_replaces_the_old_one(alertmanager):
    """Another cause is another alert to Alertmanager: the first would fire for a day beside it."""
    sink = AlertmanagerSink(alertmanager.url, clock=lambda: NOW)
    receipt = sink.deliver(delivery_of(sample_notice(cause=None)))
    sink.deliver(delivery_of(sample_notice("changed"), receipt=receipt))
    (unknown,), (known, over) = sent(alertmanager)
    assert [each["labels"]["cause"] for each in (unknown, known)] == ["unknown", "nanny.memory-terminate"]
    assert over["labels"] == unknown["labels"]
    assert (seconds(known["endsAt"]), seconds(over["endsAt"])) == (NOW + LASTS_S, NOW)


def test_a_watcher_that_cannot_see_has_an_alert_of_its_own_name(alertmanager):
    """It may go to other people than deaths do."""
    labels = labels_of(sample_notice("blind", key="blind", cause=None, death_count=0))
    assert (labels["alertname"], labels["cause"]) == ("DaskUnwatched", "watcher.blind")


@given(notices)
def test_any_notice_is_an_alert(notice):
    """Whatever names are made of, labels are texts and times are times, and none begins after it ends."""
    alert = alert_of(notice, labels_of(notice), NOW)
    json.dumps(alert).encode()
    assert all(alert["labels"].values())
    assert seconds(alert["startsAt"]) <= seconds(alert["endsAt"])


def test_a_refusal_is_final_and_an_outage_is_not():
    """An address that is none of Alertmanager's is a dead letter; one that restarts is tried again."""
    for status, is_final in ((404, True), (503, False)):
        with HttpServer(lambda _, status=status: HttpAnswer(status=status)) as server:
            with pytest.raises(DeliveryError) as caught:
                AlertmanagerSink(server.url).deliver(delivery_of())
            assert caught.value.is_final is is_final


def test_what_is_open_is_sent_again_and_what_is_over_is_not(alertmanager):
    """An Alertmanager that was started again knows of no alert."""
    store = Store()
    sink = AlertmanagerSink(alertmanager.url, name="alerts", repeat_s=0.05)
    for case, state, cluster in (
        ("open", "firing", "prod"),
        ("over", "resolved", "prod"),
        ("elsewhere", "firing", "one that nobody watches now"),
    ):
        store.put_case(watched_case(case, state=state, cluster=cluster))
        store.outbox.enqueue(make_notice(case, key=case, state=state), ["alerts"])
    outbox = Outbox(store, [sink], cluster="prod", retry=RetrySettings(first_s=0.001))
    outbox.start()
    end = time.monotonic() + LONG_S
    while len(alertmanager.requests) < 5:
        outbox.wake()
        assert time.monotonic() < end
        time.sleep(0.01)
    outbox.close(LONG_S)
    names = [alert["labels"]["fingerprint"] for (alert,) in sent(alertmanager)]
    assert sorted(names[:3]) == ["elsewhere", "open", "over"]
    assert set(names[3:]) == {"open"}
    assert {each.attempts for each in store.outbox.stored()} == {1}
    store.close()
