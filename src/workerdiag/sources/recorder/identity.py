"""
Whose a recorded death is.
"""

from __future__ import annotations

from attrs import evolve

from workerdiag.model.identity import Identity
from workerdiag.sources.addresses import identity_of
from workerdiag.wire.recorded_death import RecordedDeath


def identity_of_death(death: RecordedDeath) -> Identity:
    """
    The identity that its evidence has.
    """
    who = death.identity
    identity = identity_of(worker=who.worker, pid=who.pid, nanny=who.nanny, name=who.name)
    return evolve(identity, boot_id=who.boot_id)
