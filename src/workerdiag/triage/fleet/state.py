"""
The deaths of a watcher's state file as rows like those of triage.
"""

from __future__ import annotations

from workerdiag.incidents.state_tables import KeptDeath
from workerdiag.triage.rows import DeathRow


def death_row(death: KeptDeath) -> DeathRow:
    """
    The row of a death that a watcher keeps. Its place is its id, which is the same in each state file.
    """
    who = death.identity
    return DeathRow(
        case=death.case_key or f"not judged: {death.id}",
        cause=death.cause,
        family=death.cause.partition(".")[0] if death.cause is not None else None,
        probability=death.probability,
        outcome="explained" if death.cause is not None else "unknown",
        blame=death.blame,
        stop_requested=death.is_expected,
        host=who.host,
        worker=who.worker,
        nanny=who.nanny,
        name=who.name,
        pid=who.pid,
        died_at=death.at,
        scheduler=death.cluster,
        run=death.cluster,
        lost_compute_s=death.lost_compute_s,
        url=f"watched:{death.id}",
        offset=0,
        knowledge="",
    )
