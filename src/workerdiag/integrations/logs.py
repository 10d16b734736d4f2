"""Logging: ``log.exception("...")`` says why the workers died.

    handler.addFilter(DiagnosisFilter())

The answer is a note in the exception, so every formatter writes it below the traceback; structured formatters
also find it as ``record.workerdiag``.
"""

from __future__ import annotations

import logging

from workerdiag.api.annotate import add_note
from workerdiag.integrations.diagnose import TIMEOUT_S, diagnose_in_passing, facts, is_answer


class DiagnosisFilter(logging.Filter):
    """Adds the diagnosis to each record whose exception came from Dask. All records pass, and it never raises.

    On a handler it serves all loggers; on a logger only that one. Within an event loop, and for a known
    exception, it adds what is known already.

    Args:
        scheduler: Address of a scheduler that outlives the program; None: what `annotate`, `auto` or
            `explaining` found, the client at hand, or Dask's setting ``scheduler-address``.
        timeout_s: Seconds by which a record is delayed, at most.
    """

    def __init__(self, scheduler: str | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        super().__init__()
        self._scheduler = scheduler
        self._timeout_s = timeout_s

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True for every record."""
        exc = record.exc_info[1] if isinstance(record.exc_info, tuple) else record.exc_info
        if not isinstance(exc, BaseException) or hasattr(record, "workerdiag"):
            return True
        diagnosis = diagnose_in_passing(exc, self._scheduler, timeout_s=self._timeout_s)
        if diagnosis is not None and is_answer(diagnosis):
            add_note(exc, diagnosis)
            record.workerdiag = facts(diagnosis)
            record.exc_text = None  # an earlier handler may have cached the traceback without the note
        return True
