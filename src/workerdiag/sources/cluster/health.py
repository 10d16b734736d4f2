"""
What a worker that is well looks like to its scheduler.
"""

from __future__ import annotations

from collections.abc import Mapping

from workerdiag.model.normalize import EventValue


def is_healthy(fields: Mapping[str, EventValue], *, interval_s: float) -> bool:
    """
    Whether a worker runs, has memory left and was heard of lately.
    """
    memory, limit = fields.get("memory_bytes") or 0, fields.get("limit_bytes") or 0
    silent_s = fields.get("seconds_since_heartbeat") or 0.0
    full = bool(limit) and float(memory) > 0.7 * float(limit)
    return fields.get("status") == "running" and not full and float(silent_s) <= max(10.0, 5 * interval_s)


def heartbeat_interval_s(count: int) -> float:
    """
    Seconds between heartbeats of one of *count* workers (``heartbeat_interval`` in scheduler.py).
    """
    if count <= 10:
        return 0.5
    if count < 50:
        return 1.0
    return 2.0 if count < 200 else count / 200 + 1
