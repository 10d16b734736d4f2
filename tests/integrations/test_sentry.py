"""Sentry's own SDK, with a transport that keeps what it would send."""

from __future__ import annotations

import io
import zipfile

import pytest
from attrs import evolve

import workerdiag
from support.diagnoses import GOOD
from support.raising import raised
from workerdiag.integrations import diagnose

pytest.importorskip("sentry_sdk")

import sentry_sdk

from support.sentry_transport import KeepingTransport
from workerdiag.integrations.sentry import WorkerdiagIntegration


@pytest.fixture
def sentry():
    """Switches Sentry on with our integration; what was sent is in the transport that it returns."""

    def start(**options):
        transport = KeepingTransport()
        sentry_sdk.init(
            dsn="http://key@127.0.0.1:1/1",
            transport=transport,
            default_integrations=False,
            integrations=[WorkerdiagIntegration(**options)],
        )
        return transport

    yield start
    sentry_sdk.get_client().close()
    sentry_sdk.get_global_scope().set_client(None)


@pytest.fixture
def answer(monkeypatch):
    """What is said of each exception of Dask."""
    diagnosis = workerdiag.explain(logs=GOOD)
    monkeypatch.setattr(diagnose, "diagnose", lambda *_, **__: diagnosis)
    return diagnosis


def capture(transport, exc, scope=lambda _: None):
    """The event of an exception."""
    with sentry_sdk.new_scope() as new:
        scope(new)
        try:
            raised(exc)
        except Exception as caught:
            sentry_sdk.capture_exception(caught)
    return transport.envelopes[-1].get_event()


def test_an_error_of_dask_has_its_cause(sentry, answer, killed):
    """As tags to search by, as a context to read, and as the fingerprint, so that one cause is one issue."""
    event = capture(sentry(), killed)
    assert event["tags"]["workerdiag.cause"] == "signal.segfault"
    assert event["tags"]["workerdiag.blame"] == answer.blame.verdict
    assert event["contexts"]["workerdiag"]["summary"] == answer.summary
    assert event["contexts"]["workerdiag"]["do_now"]
    assert event["fingerprint"] == ["workerdiag", answer.fingerprint]
    assert event["exception"]["values"][-1]["type"] == "KilledWorker"


def test_an_unsure_cause_does_not_group(sentry, answer, killed, monkeypatch):
    """Below 80 % Sentry goes by the stack, as for any error."""
    top = evolve(answer.top, probability=0.79)
    unsure = evolve(answer, causes=(top,), unknown_probability=0.21)
    monkeypatch.setattr(diagnose, "diagnose", lambda *_, **__: unsure)
    event = capture(sentry(), killed)
    assert event["tags"]["workerdiag.cause"] == "signal.segfault"
    assert "fingerprint" not in event


def test_what_the_program_set_stays(sentry, answer, killed):
    """A fingerprint, a tag or a context of its own."""

    def scope(new):
        new.fingerprint = ["mine"]
        new.set_tag("workerdiag.cause", "mine")

    event = capture(sentry(), killed, scope)
    assert event["fingerprint"] == ["mine"]
    assert event["tags"]["workerdiag.cause"] == "mine"


def test_a_bundle_on_wish(sentry, answer, killed):
    """One that `explain` reads again; without the wish there is none."""
    transport = sentry(attach_bundle=True)
    capture(transport, killed)
    (bundle,) = [each for each in transport.envelopes[-1].items if each.type == "attachment"]
    assert "diagnosis.json" in zipfile.ZipFile(io.BytesIO(bundle.get_bytes())).namelist()
    again = workerdiag.explain(logs=io.BytesIO(bundle.get_bytes()))
    assert again.top.id == answer.top.id
    transport = sentry()
    capture(transport, killed)
    assert not [each for each in transport.envelopes[-1].items if each.type == "attachment"]


def test_other_errors_and_messages_pass_as_they_are(sentry):
    """Also where our own code would fail."""
    transport = sentry()
    event = capture(transport, ValueError("no"))
    assert "workerdiag" not in str(event.get("tags")) + str(event.get("contexts"))
    sentry_sdk.capture_message("hello")
    assert transport.envelopes[-1].get_event()["message"] == "hello"
