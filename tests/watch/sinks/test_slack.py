"""Slack, against a local one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from slack_sdk.models.blocks import Block

from support.fake_slack import TOKEN, FakeSlack, texts_in
from support.http_server import HttpAnswer, HttpServer
from support.notices import HOSTILE, delivery_of, notices, sample_notice, worded_notice
from workerdiag.watch.sinks.base import DeliveryError, SinkSetupError
from workerdiag.watch.sinks.slack import SlackSink, SlackUrlSink, slack_blocks, slack_reply_blocks, slack_text

#: Characters of a text (https://docs.slack.dev/reference/block-kit/blocks).
MAX_TEXT_CHARS = 3_000


@pytest.fixture
def slack():
    return FakeSlack()


@pytest.fixture
def sink(slack):
    with HttpServer(slack.answer) as server:
        yield SlackSink("#dask", TOKEN, api=f"{server.url}/api/")


def test_a_case_is_one_message_that_is_edited(slack, sink):
    """The channel has one message for a case, as it last was; what happened in between stands in its thread."""
    receipt = sink.deliver(delivery_of())
    assert receipt == {"channel": "C012AB3CD", "ts": "1700000000.000000"}
    for reason in ("escalating", "resolved"):
        receipt = sink.deliver(delivery_of(worded_notice(reason), receipt=receipt))
    methods = [method for method, _ in slack.calls]
    assert methods == ["chat.postMessage", *["chat.update", "chat.postMessage"] * 2]
    message, *replies = slack.messages.values()
    assert texts_in(message["blocks"])[0].startswith("Resolved: ")
    assert [each["thread_ts"] for each in replies] == ["1700000000.000000"] * 2
    assert [each["reply_broadcast"] for each in replies] == [True, False]
    assert slack.calls[0][1]["channel"] == "#dask"
    assert slack.calls[1][1]["channel"] == "C012AB3CD"


def test_each_message_carries_the_delivery(slack, sink):
    """A repeat after a crash can be recognised by the id in the message's metadata."""
    sink.deliver(delivery_of())
    metadata = slack.calls[0][1]["metadata"]
    assert metadata["event_payload"]["delivery_id"] == "case-1:1:sink"


@pytest.mark.parametrize("error", ["message_not_found", "edit_window_closed", "cant_update_message"])
def test_a_message_that_cannot_be_edited_is_posted_anew(slack, sink, error):
    """Somebody deleted the message or editing is forbidden: the notice arrives all the same."""
    first = sink.deliver(delivery_of())
    slack.errors.append(error)
    second = sink.deliver(delivery_of(sample_notice("resolved"), receipt=first))
    assert second["ts"] != first["ts"]
    assert "thread_ts" not in slack.messages[second["ts"]]


def test_a_wrong_token_is_final_and_not_shown(slack, sink):
    """The message says which token to set, and not the one that was wrong."""
    wrong = SlackSink("#dask", "xoxb-9876543210-wrongwrong", api=sink.api)
    with pytest.raises(DeliveryError, match=r"invalid_auth.*SLACK_TOKEN") as caught:
        wrong.deliver(delivery_of())
    assert caught.value.is_final
    assert "wrongwrong" not in f"{caught.value}{wrong!r}"


@pytest.mark.parametrize(
    ("error", "is_final"),
    [
        ("channel_not_found", True),
        ("not_in_channel", True),
        ("internal_error", False),
        ("what_is_new", False),
    ],
)
def test_slacks_errors_are_told_apart(slack, sink, error, is_final):
    """What only a person can change is final; Slack's own trouble, and what nobody knows, is tried again."""
    slack.errors.append(error)
    with pytest.raises(DeliveryError, match=error) as caught:
        sink.deliver(delivery_of())
    assert caught.value.is_final == is_final


def test_too_many_messages_wait_as_slack_says():
    """A rate limit holds the notice back for as long as Slack asks."""
    limited = HttpAnswer({"ok": False}, status=429, headers=(("Retry-After", "30"),))
    with HttpServer(lambda _: limited) as server, pytest.raises(DeliveryError) as caught:
        SlackSink("#dask", TOKEN, api=server.url).deliver(delivery_of())
    assert (caught.value.is_final, caught.value.retry_after_s) == (False, 30)


def test_an_answer_that_is_not_slacks_is_tried_again():
    """A proxy's page with status 200 does not count as delivered."""
    with (
        HttpServer(lambda _: HttpAnswer("<html>sign in</html>")) as server,
        pytest.raises(DeliveryError, match="is not Slack") as caught,
    ):
        SlackSink("#dask", TOKEN, api=server.url).deliver(delivery_of())
    assert not caught.value.is_final


def test_a_webhook_gets_text_and_blocks():
    """Without a bot, each notice is a message of its own."""
    with HttpServer(lambda _: HttpAnswer("ok", type="text/plain")) as server:
        sink = SlackUrlSink(f"{server.url}/services/T0/B0/secretsecret")
        assert sink.deliver(delivery_of()) == {}
    sent = json.loads(server.requests[0].body)
    assert sent["text"] == "3 workers of prod died: memory limit (93%)"
    assert sent["blocks"] == slack_blocks(sample_notice())
    assert "secretsecret" not in f"{sink!r}"
    assert sink.name == SlackUrlSink(f"{server.url}/services/T0/B0/anothersecret").name


def test_a_revoked_webhook_is_final():
    """Slack answers 404 ``no_service``; the message says what to do and hides the address."""
    with (
        HttpServer(lambda _: HttpAnswer("no_service", status=404)) as server,
        pytest.raises(DeliveryError, match=r"no_service.*new incoming webhook") as caught,
    ):
        SlackUrlSink(f"{server.url}/services/T0/B0/secretsecret").deliver(delivery_of())
    assert caught.value.is_final
    assert "secretsecret" not in str(caught.value)


def test_the_blocks_say_what_to_do():
    """They are the lines of the notice, with its labels in bold and its own web addresses as links."""
    (block,) = slack_blocks(sample_notice())
    (section,) = block["elements"]
    assert "".join(texts_in(block)) == sample_notice().text
    bold = [each["text"] for each in section["elements"] if each.get("style")]
    assert bold == [sample_notice().title, "\nWhere: ", "\nDo now: ", "\nMore: ", "\nEvidence: "]
    links = [each["url"] for each in section["elements"] if each["type"] == "link"]
    assert links == ["https://docs.example.org/causes/nanny"]


@pytest.mark.parametrize("reason", ["new", "blind", "resolved"])
def test_slacks_own_library_takes_the_blocks(reason):
    """The blocks are of types that Slack's library knows, and have every field that these need."""
    blocks = slack_blocks(sample_notice(reason))
    parsed = Block.parse_all(blocks)
    for each in parsed:
        each.validate_json()
    assert [each.to_dict() for each in parsed] == blocks


def test_hostile_text_stays_text():
    """A mention, link or mark-up in a name wakes nobody: blocks take it as it is, the fallback escapes it."""
    names = {"first_victim": "https://evil.example/", "hosts": frozenset({HOSTILE, "https://evil.example/"})}
    notice = worded_notice(cluster=HOSTILE, what=HOSTILE, **names)
    kinds = {each["type"] for each in _elements(slack_blocks(notice))}
    assert kinds == {"rich_text", "rich_text_section", "text"}
    assert "<" not in slack_text(notice)
    assert "&lt;!channel&gt; &lt;@U012AB3CD&gt;" in slack_text(notice)
    assert "\x1b" not in json.dumps(slack_blocks(notice), ensure_ascii=False)


def _elements(value):
    if isinstance(value, list):
        return [inner for each in value for inner in _elements(each)]
    if isinstance(value, dict):
        found = [value] if "type" in value else []
        return found + [inner for each in value.values() for inner in _elements(each)]
    return []


@settings(max_examples=50)
@given(notices)
def test_any_notice_is_within_slacks_limits(notice):
    """Whatever stands in a notice, Slack takes it: no empty text, none too long, not too much."""
    for blocks in (slack_blocks(notice), slack_reply_blocks(notice)):
        json.dumps(blocks, ensure_ascii=False, allow_nan=False).encode()
        lengths = [len(text.encode("utf-16-le")) // 2 for text in texts_in(blocks)]
        assert all(0 < length <= MAX_TEXT_CHARS for length in lengths)
        assert sum(lengths) < 13_000
    assert 0 < len(slack_text(notice)) < 4_000


@pytest.mark.parametrize(
    ("channel", "token", "problem"),
    [
        ("", TOKEN, "the channel is empty"),
        ("#dask", "", "the token is empty"),
        ("#dask", "a\n", "has blanks"),
    ],
)
def test_wrong_options_are_refused_at_once(channel, token, problem):
    """An empty token is found when the watcher starts, not at the first death."""
    with pytest.raises(SinkSetupError, match=problem):
        SlackSink(channel, token)
