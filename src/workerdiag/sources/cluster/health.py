"""Tells a healthy worker by what its scheduler knows of it."""

from __future__ import annotations

from collections.abc import Mapping

from workerdiag.model.normalize import EventValue


def is_healthy(fields: Mapping[str, EventValue], *, interval_s: float) -> bool:
    """Whether a worker is running, below 70 % of its memory limit, and has sent a heartbeat recently."""
    memory, limit = fields.get("memory_bytes") or 0, fields.get("limit_bytes") or 0
    silent_s = fields.get("seconds_since_heartbeat") or 0.0
    full = bool(limit) and float(memory) > 0.7 * float(limit)
    return fields.get("status") == "running" and not full and float(silent_s) <= max(10.0, 5 * interval_s)


def heartbeat_interval_s(count: int) -> float:
    """Return the heartbeat interval in seconds among *count* workers (``heartbeat_interval`` in scheduler.py)."""
    if count <= 10:
        return 0.5
    if count < 50:
        return 1.0
    return 2.0 if count < 200 else count / 200 + 1
