"""The signed webhook, against a real HTTP server."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import threading

import pytest
from hypothesis import given

import workerdiag
from support.diagnoses import GOOD
from support.http_server import HttpAnswer, HttpServer
from support.notices import delivery_of, notices, sample_notice
from workerdiag.watch.sinks.base import DeliveryError, SinkSetupError
from workerdiag.watch.sinks.webhook import WebhookSink, verify_signature

SECRET = "s3cret-of-the-bots"
NOW = 1_700_000_200.0


def sink_for(server, path="/hook", **options):
    return WebhookSink(f"{server.url}{path}", SECRET, clock=lambda: NOW, **options)


def refused(answer, **options):
    """The error of a delivery that is answered so."""
    with HttpServer(lambda _: answer) as server, pytest.raises(DeliveryError) as caught:
        sink_for(server, **options).deliver(delivery_of())
    return caught.value


def test_what_arrives_is_signed_json():
    """The receiver gets every field of the notice, and can check who sent it with nothing but the standard library."""
    with HttpServer(lambda _: HttpAnswer()) as server:
        assert sink_for(server).deliver(delivery_of()) == {}
    (request,) = server.requests
    body = json.loads(request.body)
    assert body["schema"] == 1
    assert body["delivery_id"] == "case-1:1:sink"
    assert body["notice"]["title"] == sample_notice().title
    assert body["notice"]["hosts"] == ["host-a", "host-b"]
    headers = {name.lower(): value for name, value in request.headers.items()}
    assert headers["idempotency-key"] == headers["webhook-id"] == "case-1:1:sink"
    assert headers["webhook-timestamp"] == "1700000200"
    signed = b"case-1:1:sink.1700000200." + request.body
    right = base64.b64encode(hmac.new(SECRET.encode(), signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{right}"
    assert verify_signature(request.body, request.headers, SECRET, now=NOW)


def test_the_diagnosis_can_be_read_back():
    """A program that gets the webhook has the whole diagnosis, as if it had asked itself."""
    diagnosis = workerdiag.explain(logs=GOOD)
    with HttpServer(lambda _: HttpAnswer()) as server:
        sink_for(server).deliver(delivery_of(sample_notice(diagnosis_json=diagnosis.to_json())))
    received = json.loads(server.requests[0].body)["diagnosis"]
    assert workerdiag.Diagnosis.from_json(json.dumps(received)) == diagnosis


@pytest.mark.parametrize("diagnosis", ["", "{", "[" * 100_000, '"' + "x" * 900_000 + '"'])
def test_a_diagnosis_that_cannot_be_sent_keeps_back_no_notice(diagnosis):
    """One that is missing, broken or longer than servers take is left out."""
    with HttpServer(lambda _: HttpAnswer()) as server:
        sink_for(server).deliver(delivery_of(sample_notice(diagnosis_json=diagnosis)))
    body = json.loads(server.requests[0].body)
    assert body["diagnosis"] is None
    assert body["notice"]["id"] == "case-1"


def test_a_second_attempt_has_the_same_key_and_body():
    """A receiver can tell a repeat from a second notice, byte for byte."""
    with HttpServer(lambda _: HttpAnswer()) as server:
        sink_for(server).deliver(delivery_of())
        sink_for(server).deliver(delivery_of(attempt=2))
    first, second = server.requests
    assert first.body == second.body
    assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"]


def test_only_an_untouched_request_of_now_is_genuine():
    """Another body, secret, id or time, or no signature, is no request of ours."""
    with HttpServer(lambda _: HttpAnswer()) as server:
        sink_for(server).deliver(delivery_of())
    body, headers = server.requests[0].body, server.requests[0].headers
    assert not verify_signature(body + b" ", headers, SECRET, now=NOW)
    assert not verify_signature(body, headers, "other", now=NOW)
    assert not verify_signature(body, headers, "", now=NOW)
    assert not verify_signature(body, headers, SECRET, now=NOW + 301)
    assert not verify_signature(body, headers, SECRET)
    assert not verify_signature(body, {}, SECRET, now=NOW)
    for name in headers:
        if name.lower().startswith("webhook-"):
            assert not verify_signature(body, {**headers, name: "1700000201"}, SECRET, now=NOW)


def test_a_secret_may_be_in_base64():
    """Libraries for this kind of webhook want ``whsec_`` and Base64, and agree with us on the signature.

    Another text that begins so is a secret like any other.
    """
    odd = "whsec_that is no Base64".replace(" ", "-")
    with HttpServer(lambda _: HttpAnswer()) as server:
        WebhookSink(server.url, odd, clock=lambda: NOW).deliver(delivery_of())
    assert verify_signature(server.requests[0].body, server.requests[0].headers, odd, now=NOW)
    encoded = "whsec_" + base64.b64encode(SECRET.encode()).decode()
    with HttpServer(lambda _: HttpAnswer()) as server:
        WebhookSink(server.url, encoded, clock=lambda: NOW).deliver(delivery_of())
    request = server.requests[0]
    assert verify_signature(request.body, request.headers, SECRET, now=NOW)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 422])
def test_a_refusal_is_final(status):
    """What the receiver will never take is not tried again, and the message says what to do."""
    problem = refused(HttpAnswer(f"bad signature {SECRET}", status=status))
    assert problem.is_final
    assert str(status) in str(problem)
    assert "check the URL and the secret" in str(problem)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503])
def test_trouble_of_the_receiver_is_not_final(status):
    """An overloaded or broken receiver is asked again, when it says so."""
    problem = refused(HttpAnswer(status=status, headers=(("Retry-After", "17"),)))
    assert not problem.is_final
    assert problem.retry_after_s == 17


def test_a_date_to_try_again_is_understood():
    """``Retry-After`` may be a date; one that has passed means at once."""
    late = refused(HttpAnswer(status=503, headers=(("Retry-After", "Fri, 01 Jan 2021 00:00:00 GMT"),)))
    assert late.retry_after_s == 0
    assert refused(HttpAnswer(status=503, headers=(("Retry-After", "soon"),))).retry_after_s is None


@pytest.mark.parametrize("status", [400, 500, 302])
def test_no_message_shows_a_secret(status):
    """Neither the secret nor the path of the URL stands in an error, also where the receiver repeats them."""
    answer = HttpAnswer(
        f"no route /T000/verysecretpath?sig=tokentoken {SECRET}",
        status=status,
        headers=(("Location", "http://a"),),
    )
    shown = str(refused(answer))
    with HttpServer(lambda _: answer) as server:
        sink = sink_for(server, "/T000/verysecretpath?sig=tokentoken")
        with pytest.raises(DeliveryError) as caught:
            sink.deliver(delivery_of())
    for text in (shown, str(caught.value), repr(sink)):
        assert SECRET not in text
    for text in (str(caught.value), repr(sink)):
        assert "verysecretpath" not in text
        assert "tokentoken" not in text
    assert str(caught.value).startswith(sink.name)


@pytest.mark.parametrize("answer", [HttpAnswer(hangs=True), HttpAnswer(drips=True)])
def test_a_receiver_that_hangs_is_left_in_time(answer):
    """A receiver that never answers, or sends a byte now and then, costs the time limit and no more."""
    problem = refused(answer, timeout_s=0.5)
    assert not problem.is_final


def test_a_line_that_is_cut_is_tried_again():
    """A receiver that reads everything and closes the line may or may not have taken it: it gets it again."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            line, _ = listener.accept()
            with line:
                line.recv(65536)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(DeliveryError, match="cannot reach") as caught:
            WebhookSink(f"http://127.0.0.1:{listener.getsockname()[1]}/", SECRET).deliver(delivery_of())
        thread.join()
    assert not caught.value.is_final


def test_nobody_there_is_not_final():
    """A receiver that is down is asked again later."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(DeliveryError, match=r"cannot reach 127\.0\.0\.1") as caught:
        WebhookSink(f"http://127.0.0.1:{port}/", SECRET).deliver(delivery_of())
    assert not caught.value.is_final


def test_a_redirect_elsewhere_gets_nothing():
    """A notice is sent to nobody but the host it was set up for."""
    with HttpServer(lambda _: HttpAnswer()) as other:
        there = HttpAnswer(status=307, headers=(("Location", f"{other.url}/take"),))
        problem = refused(there)
    assert not other.requests
    assert "is not followed" in str(problem)
    assert not problem.is_final
    assert refused(HttpAnswer(status=301, headers=(("Location", "http://a.example/"),))).is_final


def test_a_redirect_at_the_same_host_gets_everything():
    """Where the receiver moved its path, the same request is made again, body and signature with it."""

    def answer(request):
        moved = HttpAnswer(status=308, headers=(("Location", "/new"),))
        return HttpAnswer() if request.path == "/new" else moved

    with HttpServer(answer) as server:
        sink_for(server).deliver(delivery_of())
    old, new = server.requests
    assert (new.method, new.body) == ("POST", old.body)
    assert verify_signature(new.body, new.headers, SECRET, now=NOW)


def test_the_proxy_of_the_environment_is_used(monkeypatch):
    """Where the way out is a proxy, notices take it."""
    with HttpServer(lambda _: HttpAnswer()) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        WebhookSink("http://bots.invalid/hook", SECRET).deliver(delivery_of())
    assert proxy.requests[0].headers["Host"] == "bots.invalid"


@pytest.mark.parametrize(
    ("url", "secret", "problem"),
    [
        ("", SECRET, "the URL is empty"),
        ("bots.example.org/hook", SECRET, "does not begin with https"),
        ("file:///etc/passwd", SECRET, "does not begin with https"),
        ("https:///hook", SECRET, "names no host"),
        ("https://a.example:port/", SECRET, "is malformed"),
        ("https://me:pw@a.example/", SECRET, "has a user or a password"),
        ("https://a.example/x\ny", SECRET, "has blanks"),
        ("https://a.example/", "", "the secret is empty"),
        ("https://a.example/", "a b", "the secret has blanks"),
    ],
)
def test_wrong_options_are_refused_at_once(url, secret, problem):
    """A mistake shows when the sink is made, not at the first death, and the message says what to give."""
    with pytest.raises(SinkSetupError, match=problem) as caught:
        WebhookSink(url, secret)
    assert "pw" not in str(caught.value)


def test_two_addresses_are_two_sinks():
    """A sink's name is the same after a restart and with another token in the query, and no one else's."""
    name = WebhookSink("https://a.example/one?sig=1", SECRET).name
    assert name == WebhookSink("https://a.example/one?sig=2", SECRET).name
    assert name != WebhookSink("https://a.example/two?sig=1", SECRET).name


@given(notices)
def test_any_notice_is_valid_json(notice):
    """Whatever clusters, hosts and tasks are called, the body is JSON in UTF-8 without half characters."""
    from workerdiag.watch.sinks.webhook import delivery_json

    body = json.dumps(delivery_json(delivery_of(notice)), allow_nan=False)
    json.dumps(json.loads(body), ensure_ascii=False).encode("utf-8")
