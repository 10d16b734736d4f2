"""
How the recorder is configured, the same way in workers, nannies and schedulers.
"""

from __future__ import annotations

from typing import Any

#: Under what name the plugins are registered, and what a server carries while it records.
PLUGIN_NAME = "workerdiag-recorder"


def setting(name: str, default: object = None) -> Any:
    """
    The value of ``workerdiag.recorder.<name>`` in Dask's configuration.
    """
    import dask.config

    return dask.config.get(f"workerdiag.recorder.{name}", default)
