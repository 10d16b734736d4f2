"""OpenTelemetry: the diagnosis as a log record in the trace of the work.

    except KilledWorker as exc:
        emit_diagnosis(exc)
        raise

It needs only the API; the SDK of the program decides where records go. Names follow the semantic conventions
(``exception.type``); our own begin with ``workerdiag.``.
"""

from __future__ import annotations

import time
import traceback
from typing import Final

from workerdiag.api.diagnosis import Diagnosis
from workerdiag.errors import error_text
from workerdiag.guard import guarded
from workerdiag.integrations.diagnose import TIMEOUT_S, diagnose_in_passing, facts, is_answer
from workerdiag.redaction.objects import redact_object
from workerdiag.sources.tracebacks import type_name

try:
    from opentelemetry._logs import LoggerProvider, LogRecord, SeverityNumber, get_logger
    from opentelemetry.context import get_current
except ImportError as problem:
    raise ImportError(
        "log records need the API of OpenTelemetry, 1.35 or newer: pip install 'workerdiag[opentelemetry]'",
        name="opentelemetry",
    ) from problem

#: Name of the event, which distinguishes our records in a backend.
EVENT_NAME: Final = "workerdiag.diagnosis"


def emit_diagnosis(
    exc: BaseException | None = None,
    diagnosis: Diagnosis | None = None,
    *,
    scheduler: str | None = None,
    logger_provider: LoggerProvider | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Diagnosis | None:
    """Emit a log record of severity ERROR in the current context, if workers died or may have; never raises.

    Args:
        exc: The exception; None: *diagnosis* alone, e.g. that of a notice.
        diagnosis: A known diagnosis; None: ask, as for `DiagnosisFilter`.
        scheduler: Address of a scheduler that outlives the program.
        logger_provider: Where to emit; None: the global one.
        timeout_s: Time limit for asking, in seconds.

    Returns:
        The diagnosis that was emitted, or None.
    """
    if diagnosis is None and exc is not None:
        diagnosis = diagnose_in_passing(exc, scheduler, timeout_s=timeout_s)
    if diagnosis is None or not is_answer(diagnosis):
        return None
    with guarded("emitting a log record") as emitting:
        get_logger("workerdiag", diagnosis.version, logger_provider).emit(_record(diagnosis, exc))
    return diagnosis if emitting.problem is None else None


def _record(diagnosis: Diagnosis, exc: BaseException | None) -> LogRecord:
    attributes = {f"workerdiag.{name}": value for name, value in facts(diagnosis).items()}
    if exc is not None:
        of_exception = {
            "exception.type": type_name(exc),
            "exception.message": error_text(exc),
            "exception.stacktrace": "".join(traceback.format_exception(exc))[-20_000:],
        }
        attributes |= redact_object(of_exception)
    now = time.time_ns()
    return LogRecord(
        timestamp=now,
        observed_timestamp=now,
        context=get_current(),
        severity_text="ERROR",
        severity_number=SeverityNumber.ERROR,
        body=diagnosis.summary,
        attributes=attributes,
        event_name=EVENT_NAME,
    )
