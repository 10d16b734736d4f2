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
    from workerdiag.api.rescue_work import rescue
    from workerdiag.errors import (
        BadBoxError,
        BadReportError,
        BundleError,
        InstallError,
        KitError,
        RuleFileError,
        TableError,
        TriageError,
        UnreadableInputError,
        WorkerdiagError,
    )
    from workerdiag.model.check import Check
    from workerdiag.model.evidence import LogText
    from workerdiag.recorder.install import install, uninstall
    from workerdiag.replay.kit import Kit
    from workerdiag.rulebook.load import load_rulebook
    from workerdiag.triage.fleet.fleet import fleet
    from workerdiag.triage.work import triage
    from workerdiag.watch.watcher import watch

__all__ = [
    "BadBoxError",
    "BadReportError",
    "BundleError",
    "Check",
    "Diagnosis",
    "InstallError",
    "Kit",
    "KitError",
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
    "rescue",
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
    "Kit": "replay.kit",
    "KitError": "errors",
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
    "rescue": "rescue",
    "triage": "triage",
    "uninstall": "recorder.install",
    "unload_ipython_extension": "integrations.notebook",
    "watch": "watch",
}


__getattr__, __dir__ = _lazy_names(__name__, globals(), _MODULE_OF, __all__)
