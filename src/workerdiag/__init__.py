"""Why did my Dask worker die, and what do I do now?

The public names are imported when first used, so that ``import workerdiag`` costs next to
nothing in a process that may never need an explanation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workerdiag._version import __version__ as __version__
from workerdiag.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from workerdiag.api.annotate import annotate, explaining
    from workerdiag.api.auto_notes import auto
    from workerdiag.api.check import check
    from workerdiag.api.diagnosis import Diagnosis
    from workerdiag.api.explain import explain
    from workerdiag.errors import (
        BadBoxError,
        BadReportError,
        BundleError,
        InstallError,
        RuleFileError,
        TableError,
        TriageError,
        UnreadableInputError,
        WorkerdiagError,
    )
    from workerdiag.model.check import Check
    from workerdiag.model.evidence import LogText
    from workerdiag.recorder.install import install, uninstall
    from workerdiag.rulebook.load import load_rulebook
    from workerdiag.triage.fleet.fleet import fleet
    from workerdiag.triage.triage_function import triage
    from workerdiag.watch.watch_function import watch

__all__ = [
    "BadBoxError",
    "BadReportError",
    "BundleError",
    "Check",
    "Diagnosis",
    "InstallError",
    "LogText",
    "RuleFileError",
    "TableError",
    "TriageError",
    "UnreadableInputError",
    "WorkerdiagError",
    "annotate",
    "auto",
    "check",
    "explain",
    "explaining",
    "fleet",
    "install",
    "load_rulebook",
    "triage",
    "uninstall",
    "watch",
]

_MODULE_OF = {
    "BadBoxError": "errors",
    "BadReportError": "errors",
    "BundleError": "errors",
    "Check": "model.check",
    "Diagnosis": "api.diagnosis",
    "InstallError": "errors",
    "LogText": "model.evidence",
    "RuleFileError": "errors",
    "TableError": "errors",
    "TriageError": "errors",
    "UnreadableInputError": "errors",
    "WorkerdiagError": "errors",
    "annotate": "api.annotate",
    "auto": "auto",
    "check": "api.check",
    "explain": "api.explain",
    "explaining": "api.annotate",
    "fleet": "triage.fleet.fleet",
    "install": "recorder.install",
    "load_ipython_extension": "integrations.notebook",  # IPython looks for it
    "load_rulebook": "rulebook.load",
    "triage": "triage",
    "uninstall": "recorder.install",
    "unload_ipython_extension": "integrations.notebook",
    "watch": "watch",
}


__getattr__, __dir__ = _lazy_names(__name__, globals(), _MODULE_OF, __all__)
