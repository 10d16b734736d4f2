"""The diagnosis as a log record, through OpenTelemetry's own SDK into its memory."""

from __future__ import annotations

import pytest

import workerdiag
from support.diagnoses import GOOD
from support.raising import raised
from workerdiag.api.annotate import remember

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider

from workerdiag.integrations.opentelemetry import EVENT_NAME, emit_diagnosis


@pytest.fixture
def provider():
    """A provider, and where its records go."""
    exporter = InMemoryLogRecordExporter()
    provider = LoggerProvider()
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    yield provider, exporter
    provider.shutdown()


def test_the_record_has_the_names_of_the_conventions(provider, killed):
    """A backend shows the exception as any other, with the answer beside it, in the trace of the work."""
    logs, exporter = provider
    remember(killed, workerdiag.explain(logs=GOOD))
    with TracerProvider().get_tracer("test").start_as_current_span("work") as span:
        try:
            raised(killed)
        except Exception as exc:
            diagnosis = emit_diagnosis(exc, logger_provider=logs)
    (finished,) = exporter.get_finished_logs()
    record = finished.log_record
    assert record.event_name == EVENT_NAME
    assert record.severity_text == "ERROR"
    assert record.body == diagnosis.summary
    assert record.trace_id == span.get_span_context().trace_id
    attributes = dict(record.attributes)
    assert attributes["exception.type"] == "distributed.scheduler.KilledWorker"
    assert attributes["exception.message"].startswith("Attempted to run task")
    assert attributes["exception.stacktrace"].startswith("Traceback")
    assert attributes["workerdiag.cause"] == "signal.segfault"
    assert attributes["workerdiag.fingerprint"] == diagnosis.fingerprint
    assert all(name.startswith(("exception.", "workerdiag.")) for name in attributes)
    assert finished.instrumentation_scope.name == "workerdiag"


def test_a_diagnosis_alone_is_enough(provider):
    """A watcher's notice has no exception."""
    logs, exporter = provider
    diagnosis = workerdiag.explain(logs=GOOD)
    assert emit_diagnosis(diagnosis=diagnosis, logger_provider=logs) == diagnosis
    (finished,) = exporter.get_finished_logs()
    assert not any(name.startswith("exception.") for name in finished.log_record.attributes)


def test_nothing_is_emitted_for_nothing(provider):
    """Errors that did not come from Dask, and deaths that were none, are not ours to report."""
    logs, exporter = provider
    quiet = workerdiag.Diagnosis(outcome="no-death", summary="Nothing died.")
    assert emit_diagnosis(ValueError("no"), logger_provider=logs) is None
    assert emit_diagnosis(diagnosis=quiet, logger_provider=logs) is None
    assert not exporter.get_finished_logs()


def test_secrets_do_not_leave_the_process(provider, killed):
    """Messages of exceptions may hold what nobody should read."""
    logs, exporter = provider
    remember(killed, workerdiag.explain(logs=GOOD))
    killed.args = ("postgres://user:hunter2secret@host/db",)
    error = RuntimeError("password=hunter2secret")
    error.__cause__ = killed
    assert emit_diagnosis(error, logger_provider=logs) is not None
    assert "hunter2secret" not in str(dict(exporter.get_finished_logs()[0].log_record.attributes))


def test_a_processor_that_fails_is_not_felt(killed):
    """Telemetry never takes the place of the error."""

    class Broken:
        def get_logger(self, *_, **__):
            raise RuntimeError("no")

    remember(killed, workerdiag.explain(logs=GOOD))
    assert emit_diagnosis(killed, logger_provider=Broken()) is None
