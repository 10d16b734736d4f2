"""Rows of deaths as triage writes them, for tests of the code that counts them."""

from __future__ import annotations

from typing import Any

from workerdiag.triage.tables import DeathRow

#: Time of the first death, in seconds since the epoch: a Monday morning.
BEGIN = 1_784_538_000.0
HOUR_S = 3600.0


def fleet_row(number: int = 0, **changes: Any) -> DeathRow:
    """Return the death of another worker by the memory limit, *number* hours after the first death."""
    cause = changes.get("cause", "nanny.memory-terminate")
    return DeathRow(
        **{
            "case": f"case of {cause}",
            "cause": cause,
            "family": None if cause is None else cause.partition(".")[0],
            "probability": 0.0 if cause is None else 0.9,
            "outcome": "unknown" if cause is None else "explained",
            "host": f"node-{number % 7}",
            "worker": f"tcp://10.0.{number // 250}.{number % 250}:4000",
            "pid": 1000 + number,
            "died_at": BEGIN + number * HOUR_S,
            "run": "cafe",
            "url": "s3://logs/scheduler.log",
            "offset": 100 * number,
            "knowledge": "2026.11",
            **changes,
        }
    )
