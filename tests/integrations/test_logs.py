"""``log.exception("...")`` says why the workers died."""

from __future__ import annotations

import io
import json
import logging
import logging.config

import pytest

import workerdiag
from support.diagnoses import GOOD, diagnosis_with
from support.raising import raised
from workerdiag.api.annotate import remember
from workerdiag.integrations.logs import DiagnosisFilter
from workerdiag.model.diagnosis import RetryPolicy
from workerdiag.model.vocabulary import NOTE_START

LOGGER = "tests.integrations.logs"


class JsonFormatter(logging.Formatter):
    def format(self, record):
        return json.dumps({"message": record.getMessage(), "workerdiag": getattr(record, "workerdiag", None)})


@pytest.fixture
def log():
    """A logger with a filtered handler, set up as by a program's configuration, and what it wrote."""
    written = io.StringIO()
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "filters": {"workerdiag": {"()": "workerdiag.integrations.logs.DiagnosisFilter"}},
            "handlers": {"text": {"class": "logging.StreamHandler", "stream": written, "filters": ["workerdiag"]}},
            "loggers": {LOGGER: {"handlers": ["text"], "propagate": False}},
        }
    )
    logger = logging.getLogger(LOGGER)
    yield logger, written
    logger.handlers.clear()


def test_an_exception_is_logged_with_its_diagnosis(log, killed):
    """Below its traceback stands what to do and why."""
    logger, written = log
    remember(killed, workerdiag.explain(logs=GOOD))
    try:
        raised(killed)
    except Exception:
        logger.exception("step failed")
    text = written.getvalue()
    assert text.startswith("step failed\nTraceback")
    assert NOTE_START in text
    assert "Cause: Segmentation fault" in text


def test_structured_logs_have_it_as_values(log, killed):
    """A JSON formatter finds what programs search by, also where another handler formatted the record before."""
    logger, _ = log
    remember(killed, workerdiag.explain(logs=GOOD))
    structured = io.StringIO()
    handler = logging.StreamHandler(structured)
    handler.setFormatter(JsonFormatter())
    handler.addFilter(DiagnosisFilter())
    logger.handlers.insert(0, logging.StreamHandler(io.StringIO()))
    logger.addHandler(handler)
    logger.error("step failed", exc_info=killed)
    facts = json.loads(structured.getvalue())["workerdiag"]
    assert facts["cause"] == "signal.segfault"
    assert facts["outcome"] == "explained"


@pytest.mark.parametrize("info", [None, ValueError("no"), (None, None, None), 7])
def test_other_records_pass_as_they_are(log, info):
    """Whatever stands in the place of the exception."""
    logger, _ = log
    record = logging.LogRecord(LOGGER, logging.ERROR, __file__, 1, "text", (), info)
    before = dict(vars(record))
    assert DiagnosisFilter().filter(record) is True
    assert vars(record) == before
    assert logger.isEnabledFor(logging.ERROR)


def test_where_nothing_died_nothing_is_said(killed):
    """A diagnosis that all is well is no news."""
    record = logging.LogRecord(LOGGER, logging.ERROR, __file__, 1, "text", (), (type(killed), killed, None))
    quiet = workerdiag.Diagnosis(outcome="no-death", summary="Nothing died.")
    remember(killed, quiet)
    DiagnosisFilter(timeout_s=2).filter(record)
    assert not hasattr(record, "workerdiag") or record.workerdiag["outcome"] != "no-death"


def test_one_note_however_often_it_is_logged(log, killed):
    """A record may pass several handlers and loggers."""
    logger, written = log
    remember(killed, diagnosis_with(RetryPolicy(action="retry", reason="a machine was taken back")))
    for _ in range(3):
        logger.error("step failed", exc_info=killed)
    assert len(killed.__notes__) == 1
    assert written.getvalue().count(NOTE_START) == 3
