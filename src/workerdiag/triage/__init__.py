"""
Many logs at once: deaths, their causes and what could not be read, as tables.

``workerdiag.triage`` is this package, called.
"""

from workerdiag.lazy import call_module as _call_module

_call_module(__name__, "workerdiag.triage.triage_function", "triage")
