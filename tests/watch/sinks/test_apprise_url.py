"""Apprise itself, sending to a local HTTP server."""

from __future__ import annotations

import json
import sys

import pytest

from support.http_server import HttpAnswer, HttpServer
from support.notices import HOSTILE, delivery_of, sample_notice
from workerdiag.watch.sinks.apprise_url import AppriseSink, without_mentions
from workerdiag.watch.sinks.base import DeliveryError, SinkSetupError


def url_of(server, path="/hook"):
    return server.url.replace("http://", "json://") + path


def test_apprise_sends_it():
    """A service of Apprise's gets title, text and how bad it is."""
    with HttpServer(lambda _: HttpAnswer()) as server:
        sink = AppriseSink(url_of(server))
        assert sink.deliver(delivery_of()) == {}
        sink.deliver(delivery_of(sample_notice("resolved")))
    first, second = (json.loads(request.body) for request in server.requests)
    assert first["title"] == sample_notice().title
    assert "Do now: Give each worker at least 4 GiB." in first["message"]
    assert (first["type"], second["type"]) == ("failure", "success")


def test_what_apprise_says_is_passed_on_without_secrets():
    """A refusal is an error that names the sink and what Apprise says, not the URL's tokens."""
    with HttpServer(lambda _: HttpAnswer(status=401)) as server:
        sink = AppriseSink(url_of(server, "/secretsecret/tokentoken"))
        with pytest.raises(DeliveryError, match="401") as caught:
            sink.deliver(delivery_of())
    shown = f"{caught.value}{sink!r}{sink.name}"
    assert str(caught.value).startswith("notify:json/")
    assert "secretsecret" not in shown
    assert "tokentoken" not in shown
    assert not caught.value.is_final


def test_a_service_that_hangs_is_left_in_time():
    """Apprise's own time limits are not relied upon."""
    with HttpServer(lambda _: HttpAnswer(hangs=True)) as server, pytest.raises(DeliveryError):
        AppriseSink(url_of(server), timeout_s=0.5).deliver(delivery_of())


@pytest.mark.parametrize(
    "url", ["", "https-is-missing", "nosuchservice://token-of-mine", "discord://token-of-mine", "discord://"]
)
def test_a_url_that_apprise_does_not_know_is_refused_at_once(url, caplog):
    """A mistake shows when the watcher starts, and what was typed is not repeated, nor logged by Apprise."""
    with pytest.raises(SinkSetupError, match="cannot use the notify sink") as caught:
        AppriseSink(url)
    assert "token-of-mine" not in f"{caught.value}{caplog.text}"


def test_without_apprise_the_extra_is_named(monkeypatch):
    """Who has not installed it reads how to."""
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(SinkSetupError, match=r"pip install 'workerdiag\[notify\]'"):
        AppriseSink("json://127.0.0.1/")


def test_nobody_is_mentioned():
    """What wakes a whole channel in one service or another is broken up, and still reads the same."""
    text = without_mentions(HOSTILE)
    for mention in ("@everyone", "<!channel>", "<@U012AB3CD>"):
        assert mention not in text
    assert text.replace("\N{ZERO WIDTH SPACE}", "") == HOSTILE
