"""
The words with which Dask says that somebody asked a worker to stop.
"""

from __future__ import annotations

#: So begin the reasons of ``closing-worker`` events and "Stopping worker" lines where it was asked for
#: (``reason`` and ``stimulus`` in worker.py, nanny.py and scheduler.py, 2022.10.1 to 2026.8.0).
ASKED_REASONS = (
    "signal-",
    "scheduler-",
    "nanny-close",
    "nanny-plugin-",
    "worker-lifetime-reached",
    "worker-close",
    "client-restart",
    "retire-workers",
)
