"""
The words with which Dask says that somebody asked a worker to stop.
"""

from __future__ import annotations

#: So begin the reasons of ``closing-worker`` events and "Stopping worker" lines where it was asked for
#: (``reason`` and ``stimulus`` in worker.py, nanny.py and scheduler.py, 2022.10.1 to 2026.8.0).
STOP_REQUEST_REASONS = (
    "signal-",
    "scheduler-",
    "nanny-close",
    "nanny-plugin-",
    "worker-lifetime-reached",
    "worker-close",
    "nanny-kill",
    "nanny-restart",
    "workerprocess-",
    "client-restart",
    "retire-workers",
)
#: So begin all reasons that Dask gives by itself, asked for or not.
_DASK_REASONS = (
    "signal-",
    "scheduler-",
    "nanny-",
    "worker-",
    "workerprocess-",
    "client-",
    "check-worker-ttl",
    "failure-to-start",
    "retire-workers",
    "idle-timeout",
    "unknown",
)


def is_stop_request(reason: str) -> bool:
    """
    Whether somebody asked for the stop: in Dask's words, or in those of code that gave a reason of its own.
    """
    if not reason or reason.startswith(STOP_REQUEST_REASONS):
        return bool(reason)
    return not reason.startswith(_DASK_REASONS)
