"""
Many logs at once: deaths, their causes and what could not be read, as tables.

``workerdiag.triage`` is this package, called: so it is the function whether or not a module of the package
was imported before.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

__all__ = ["triage"]


class _CallablePackage(ModuleType):
    """
    The package as the function `workerdiag.triage.start.triage`.
    """

    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        from workerdiag.triage.start import triage

        return triage(*arguments, **settings)


triage = sys.modules[__name__]
triage.__class__ = _CallablePackage
