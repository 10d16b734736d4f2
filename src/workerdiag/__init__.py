"""
Why did my Dask worker die, and what do I do now?

The public names are imported when first used, so that ``import workerdiag`` costs next to
nothing in a process that may never need an explanation.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workerdiag.api import Diagnosis, explain
    from workerdiag.errors import BadReportError, RuleFileError, UnreadableInputError, WorkerdiagError
    from workerdiag.model.evidence import LogText
    from workerdiag.rulebook import load_rulebook

__version__ = "0.1.0"

__all__ = [
    "BadReportError",
    "Diagnosis",
    "LogText",
    "RuleFileError",
    "UnreadableInputError",
    "WorkerdiagError",
    "explain",
    "load_rulebook",
]

_MODULE_OF = {
    "BadReportError": "errors",
    "Diagnosis": "api",
    "LogText": "model.evidence",
    "RuleFileError": "errors",
    "UnreadableInputError": "errors",
    "WorkerdiagError": "errors",
    "explain": "api",
    "load_rulebook": "rulebook",
}


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
