"""Real sinks behind the real outbox: what arrives when services fail now and then."""

from __future__ import annotations

import json
import time

import pytest

from support.fake_slack import TOKEN, FakeSlack
from support.http_server import HttpAnswer, HttpServer
from support.notices import sample_notice
from workerdiag.watch.outbox import Outbox
from workerdiag.watch.sinks.slack import SlackSink
from workerdiag.watch.sinks.webhook import WebhookSink
from workerdiag.watch.store import RetrySettings, Store

NOTICES = [
    sample_notice(reason, notice_id=f"case-1-{at}", title=f"Notice {at}")
    for at, reason in enumerate(("new", "escalating", "resolved"))
]
#: Longer than any test waits.
LONG_S = 60.0


@pytest.fixture
def send():
    """Hands notices to the outbox, and waits until none is left."""

    def deliver(sink, notices):
        store = Store()
        outbox = Outbox(store, [sink], retry=RetrySettings(first_s=0.001, longest_s=0.002, max_attempts=1000))
        outbox.start()
        for notice in notices:
            store.outbox.enqueue(notice, [sink.name])
        outbox.wake()
        until = time.monotonic() + LONG_S
        while any(each.state != "sent" for each in store.outbox.stored()):
            assert time.monotonic() < until, store.outbox.stored()
            time.sleep(0.005)
        outbox.close(LONG_S)
        store.close()

    return deliver


def test_slack_has_one_message_for_a_case(send):
    """What the sink notes reaches it again at the next notice, so that the message is edited."""
    slack = FakeSlack(errors=["internal_error", "fatal_error"])
    with HttpServer(slack.answer) as server:
        send(SlackSink("#dask", TOKEN, api=server.url), NOTICES)
    in_channel = [each for each in slack.messages.values() if "thread_ts" not in each]
    assert [each["text"] for each in in_channel] == ["Notice 2"]
    assert len(slack.messages) == 3


def test_a_receiver_that_drops_repeats_has_each_notice_once_and_in_order(send):
    """A receiver that takes a notice and then answers with an error gets it again under the same key."""
    answers = [500, 429, 200, 503, 200, 408, 502, 200]
    taken = {}

    def answer(request):
        taken.setdefault(request.headers["Idempotency-Key"], request.body)
        return HttpAnswer(status=answers.pop(0), headers=(("Retry-After", "0"),))

    with HttpServer(answer) as server:
        send(WebhookSink(server.url, "s3cret"), NOTICES)
    assert not answers
    assert [json.loads(body)["notice"]["title"] for body in taken.values()] == [
        "Notice 0",
        "Notice 1",
        "Notice 2",
    ]
