"""
Settings, as Dask has them: ``workerdiag.*`` in its configuration files and ``DASK_WORKERDIAG__*`` variables.

The defaults are in workerdiag.yaml, which Dask gets when a setting is first read; workerdiag-schema.yaml says
which values are allowed. Importing ``dask.config`` takes longer than reading a log does, so a process without
Dask reads the defaults itself, if nobody has configured workerdiag.
"""

from __future__ import annotations

from typing import Any

from workerdiag.settings.defaults import defaults
from workerdiag.settings.presence import is_configured
from workerdiag.units import parse_duration


def setting(key: str) -> Any:
    """
    The value of ``workerdiag.<key>``, e.g. of ``recorder.deaths``.

    The default stands in for a value that cannot be used, which is logged once with what is allowed.

    Raises:
        KeyError: There is no such setting.
    """
    default = defaults()[key]
    if not is_configured():
        return default
    from workerdiag.settings.configured import configured_value

    return configured_value(key, default)


def seconds(key: str) -> float:
    """
    The value of a setting that is a duration, in seconds.
    """
    return parse_duration(str(setting(key)))


def documentation_url(cause_id: str) -> str:
    """
    The address of the page of a cause; empty if ``workerdiag.documentation-url`` is not set.
    """
    base = setting("documentation-url")
    return f"{str(base).rstrip('/')}/causes/{cause_id.replace('.', '/')}.html" if base else ""
