"""
Watches a cluster: live deaths become incidents, incidents become cases, cases become notices.

``workerdiag.watch`` is this package, called: so it is the function whether or not a module of the package
was imported before.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

__all__ = ["watch"]


class _CallablePackage(ModuleType):
    """
    The package as the function `workerdiag.watch.start.watch`.
    """

    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        from workerdiag.watch.start import watch

        return watch(*arguments, **settings)


watch = sys.modules[__name__]
watch.__class__ = _CallablePackage
