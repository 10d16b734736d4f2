"""Microsoft Teams, against a local HTTP server."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings

from support.http_server import HttpAnswer, HttpServer
from support.notices import HOSTILE, delivery_of, notices, sample_notice
from workerdiag.watch.sinks.base import DeliveryError, SinkSetupError
from workerdiag.watch.sinks.teams import MAX_COUNTED_BYTES, TeamsSink, counted_bytes, teams_message


def card_in(body):
    (attachment,) = json.loads(body)["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    return attachment["content"]


def runs_of(card):
    return [run["text"] for each in card["body"] for run in each["inlines"]]


def test_a_card_arrives():
    """The workflow gets a message with one Adaptive Card: what, why, what to do, and a button to the page."""
    with HttpServer(lambda _: HttpAnswer(status=202)) as server:
        sink = TeamsSink(f"{server.url}/workflows/1?sig=secretsecret")
        assert sink.deliver(delivery_of()) == {}
    (request,) = server.requests
    assert request.query == {"sig": ["secretsecret"]}
    card = card_in(request.body)
    assert "3 workers of prod died: memory limit (93%)" in runs_of(card)
    assert "\N{BULLET} Give each worker at least 4 GiB." in runs_of(card)
    assert [each["url"] for each in card["actions"]] == ["https://docs.example.org/causes/nanny"]
    assert "secretsecret" not in f"{sink!r}{sink.name}"


def test_no_markdown_is_looked_for():
    """Text stands in text runs alone, which show it as it is, and no date is put in for ``{{DATE()}}``."""
    card = card_in(teams_message(sample_notice(title=HOSTILE, advice=(HOSTILE,))))
    assert {each["type"] for each in card["body"]} == {"RichTextBlock"}
    assert any("[click](https://evil.example)" in text for text in runs_of(card))
    assert not any("{{" in text for text in runs_of(card))


def test_a_workflow_that_is_gone_is_final():
    """The message names the sink and what to set up, not the address, whose query is the password."""
    with (
        HttpServer(lambda _: HttpAnswer("gone", status=404)) as server,
        pytest.raises(DeliveryError, match="check the workflow") as caught,
    ):
        TeamsSink(f"{server.url}/workflows/1?sig=secretsecret").deliver(delivery_of())
    assert caught.value.is_final
    assert "secretsecret" not in str(caught.value)


def test_a_wrong_address_is_refused_at_once():
    """What is no address is found when the watcher starts."""
    with pytest.raises(SinkSetupError, match="cannot use the teams sink"):
        TeamsSink("prod-team")


def test_a_long_notice_loses_its_end_first():
    """What does not fit is left out, the links and the later advice before the title and the facts."""
    advice = tuple("\N{FIRE}" * 240 for _ in range(5))
    links = {str(at): f"https://a.example/{at}/{'x' * 1_900}" for at in range(5)}
    body = teams_message(sample_notice(advice=advice, links=links))
    card = card_in(body)
    assert counted_bytes(body) <= MAX_COUNTED_BYTES
    assert len(card["actions"]) < 5
    assert "nanny.memory-terminate (93%)" in runs_of(card)
    lines = sample_notice("digest", text="\n".join("x" * 1_400))
    assert runs_of(card_in(teams_message(lines)))[0] == sample_notice().title


@settings(max_examples=50)
@given(notices)
def test_any_notice_is_within_what_teams_takes(notice):
    """Whatever stands in a notice, Teams takes it, shortened where it must be."""
    body = teams_message(notice)
    assert counted_bytes(body) <= MAX_COUNTED_BYTES
    assert all(text for text in runs_of(card_in(body)))
