"""Read many logs at once: tables of the deaths, their causes and what could not be read."""

from workerdiag.lazy import call_module as _call_module

_call_module(__name__, "workerdiag.triage.work", "triage")
