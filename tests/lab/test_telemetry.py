"""One real death, as it arrives in a log, in Sentry and in OpenTelemetry."""

from __future__ import annotations

import io
import logging

import dask
import pytest

pytest.importorskip("sentry_sdk")
pytest.importorskip("opentelemetry.sdk")

import sentry_sdk
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor

import workerdiag
from support.sentry_transport import KeepingTransport
from workerdiag.integrations.logs import DiagnosisFilter
from workerdiag.integrations.opentelemetry import emit_diagnosis
from workerdiag.integrations.sentry import WorkerdiagIntegration

from . import tasks
from .cluster import IMPATIENT
from .processes import PATIENCE_S

pytestmark = pytest.mark.lab


@pytest.fixture
def killed(lab):
    """The exception of a real death, while its cluster is still there; nobody has looked at it yet."""
    lab.scheduler(**IMPATIENT)
    lab.worker()
    client = lab.client()
    workerdiag.auto(client, on=False)
    with dask.config.set({"scheduler-address": lab.address}):
        with pytest.raises(Exception, match="Attempted to run task") as caught:
            client.submit(tasks.segfault, key="crash").result()
        yield caught.value


def test_a_log_ends_with_the_cause(killed):
    """As ``log.exception`` writes it, with nothing but the filter."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.addFilter(DiagnosisFilter(timeout_s=PATIENCE_S))
    logger = logging.getLogger("lab.telemetry")
    logger.addHandler(handler)
    try:
        logger.error("step failed", exc_info=killed)
    finally:
        logger.removeHandler(handler)
    assert "Cause: Segmentation fault (SIGSEGV) in native code" in written.getvalue().splitlines()[-3]


def test_sentry_groups_by_the_cause(killed):
    """Through the SDK's own pipeline, with the evidence attached."""
    transport = KeepingTransport()
    sentry_sdk.init(
        dsn="http://key@127.0.0.1:1/1",
        transport=transport,
        default_integrations=False,
        integrations=[WorkerdiagIntegration(attach_bundle=True, timeout_s=PATIENCE_S)],
    )
    try:
        sentry_sdk.capture_exception(killed)
    finally:
        sentry_sdk.get_client().close()
        sentry_sdk.get_global_scope().set_client(None)
    event = transport.envelopes[-1].get_event()
    assert event["tags"]["workerdiag.cause"] == "signal.segfault"
    assert event["fingerprint"][0] == "workerdiag"
    assert [each for each in transport.envelopes[-1].items if each.type == "attachment"]


def test_opentelemetry_gets_a_record(killed):
    """With the names of the semantic conventions."""
    exporter, provider = InMemoryLogRecordExporter(), LoggerProvider()
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    assert emit_diagnosis(killed, logger_provider=provider, timeout_s=PATIENCE_S).top.id == "signal.segfault"
    (finished,) = exporter.get_finished_logs()
    assert finished.log_record.attributes["exception.type"] == "distributed.scheduler.KilledWorker"
